"""Loss: `kill -9` of Redis under load, then a start from its files: which acknowledged tasks lack?

Several threads schedule, one by one and in batches, and write down what was acknowledged, until
the server is gone. With a sync every second (the rest of the programs' setting), then with always.
"""

import argparse
import itertools
import random
import threading
import time
from contextlib import closing

import above  # noqa: F401 - for the next imports
import measure
from redis_server import RedisServer, serving

from tarry.due import At
from tarry.errors import StoreError
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.task import TaskRef

SINGLES, BATCHES, SIZE = 3, 1, 100
BODY = b'{"n":"%s"}' % (b"x" * 92)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="kills under each setting")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load before a kill, at most")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.seconds = 1, 0.5
    report = measure.Report(options)
    chance = random.Random(1)
    for setting in ("everysec", "always"):
        acknowledged = lost = hit = 0
        for run in range(options.runs):
            with serving(options, appendfsync=setting) as server:
                sure = load(server, options, chance)
                server.start_again()
                missing = len(sure) - found(server, sure)
            report.note(f"{setting}, run {run + 1}: {missing:,} of {len(sure):,} are lost")
            acknowledged, lost, hit = acknowledged + len(sure), lost + missing, hit + bool(missing)
        report.add(f"{setting}_acknowledged", acknowledged, "tasks")
        report.add(f"{setting}_lost", lost, "tasks", "0" if setting == "always" else "")
        report.add(f"{setting}_runs_with_loss", hit, f"of {options.runs}")
    report.show()


def load(server: RedisServer, options: argparse.Namespace, chance: random.Random) -> list[TaskRef]:
    """Schedule from several threads until the server is killed; returns what it acknowledged."""
    sure: list[list[TaskRef]] = [[] for _ in range(SINGLES + BATCHES)]
    due = At(measure.now_ms() + measure.HOUR_MS)
    with closing(connect(server.url)) as store:

        def produce(name: int, size: int) -> None:
            for turn in itertools.count():
                refs = [TaskRef(measure.KIND, f"{name}-{turn}-{n}") for n in range(size)]
                requests = [Request(ref, due, BODY) for ref in refs]
                try:
                    store.schedule(requests, call=f"{name}-{turn}")
                except StoreError:
                    return
                sure[name].extend(refs)

        sizes = [1] * SINGLES + [SIZE] * BATCHES
        threads = [
            threading.Thread(target=produce, args=(name, size)) for name, size in enumerate(sizes)
        ]
        for thread in threads:
            thread.start()
        time.sleep(options.seconds * chance.uniform(0.4, 1.0))
        server.kill()
        for thread in threads:
            thread.join()
    return list(itertools.chain.from_iterable(sure))


def found(server: RedisServer, refs: list[TaskRef]) -> int:
    """Return how many of the tasks are there."""
    there = 0
    with closing(connect(server.url)) as store:
        for start in range(0, len(refs), measure.BATCH):
            tasks = store.get(refs[start : start + measure.BATCH])
            there += sum(task is not None for task in tasks)
    return there


if __name__ == "__main__":
    main()
