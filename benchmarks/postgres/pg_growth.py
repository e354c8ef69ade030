"""Growth on PostgreSQL: what schedule, claim and settle cost with few and with many waiting.

And bloat: the size of tables and indexes before and after many full cycles.
"""

import itertools
import time
from contextlib import closing

from pg_server import serving

import measure  # isort: skip - the server's module has made it findable
from tarry.attempt import Done
from tarry.due import In
from tarry.request import Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef

BODY = b'{"n":"%s"}' % (b"x" * 92)
KIND = "kind.0"
CALLS = itertools.count()


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 5_000_000])
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--cycles", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.batch, options.cycles = [1_000, 4_000], 1_000, 3_000
    report = measure.Report(options)
    with serving(options) as server, closing(connect(server.url, namespace="bench")) as store:
        there = 0
        first: dict[str, float] = {}
        for size in options.sizes:
            schedule(store, size - there, In(measure.HOUR_MS * 24))
            there = size
            costs = costs_of(store, options.batch)
            for verb, cost in costs.items():
                report.add(f"{verb}_{size}", cost * 1e6, "µs/task")
                grown = cost / first.setdefault(verb, cost)
                report.add(f"{verb}_{size}_growth", grown, "times", "< 1.6")
        report.add("size_before", _bytes(store) / 1e6, "MB")
        for _ in range(0, options.cycles, options.batch):
            costs_of(store, options.batch)
        report.add("size_after_cycles", _bytes(store) / 1e6, "MB")
    report.show()


def _bytes(store: Store) -> int:
    return int(store.facts()["size"].split()[0].replace(",", ""))


def schedule(store: Store, count: int, due: In) -> float:
    began = time.perf_counter()
    for _ in range(0, count, 500):
        number = next(CALLS)
        requests = [Request(TaskRef(KIND, f"{number:08d}.{n}"), due, BODY) for n in range(500)]
        store.schedule(requests, call=f"many.{number}")
    return time.perf_counter() - began


def costs_of(store: Store, count: int) -> dict[str, float]:
    """Return the seconds that a schedule, a claim and a settlement of one task take."""
    spent = {"schedule": schedule(store, count, In(0)), "claim": 0.0, "settle": 0.0}
    done = 0
    while done < count:
        number, began = next(CALLS), time.perf_counter()
        claimed = store.claim([KIND], limit=100, lease_ms=30_000, holder="bench", call=number)
        between = time.perf_counter()
        store.settle([Settlement(lease, Done()) for lease in claimed.leases], call=f"s{number}")
        spent["claim"] += between - began
        spent["settle"] += time.perf_counter() - between
        done += len(claimed.leases)
    return {verb: seconds / count for verb, seconds in spent.items()}


if __name__ == "__main__":
    main()
