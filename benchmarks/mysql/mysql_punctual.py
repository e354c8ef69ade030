"""Punctual on MariaDB: lateness of a worker that learns of other processes every 100 ms.

near: tasks that another process schedules 50 ms ahead. ahead: 200 ms to 3 s ahead.
"""

import argparse
import subprocess
import sys
import threading
import time
from contextlib import closing

import above_mysql  # noqa: F401 - for the next imports
import measure
from mysql_serving import serving
from mysql_verbs import fill

from tarry import Context, Tarry
from tarry.due import In
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse
from tarry.task import TaskRef

NEAR_MS = 50
AHEAD_MS = (200, 3_000)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=250, help="tasks a second of both together")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        produce(options.produce, options.rate, options.seconds)
        return
    if options.quick:
        options.waiting, options.seconds, options.rate = 1_000, 1.5, 50
    report = measure.Report(options)
    with serving() as server:
        with closing(MysqlStore(parse(server.url), namespace="bench")) as store:
            fill(store, options.waiting)
        late = run(server.url, options)
    for name, goal in (("near", "≤ 150 ms"), ("ahead", "≤ 15 ms")):
        found = late[name]
        report.add(f"{name}_p50", measure.percentile(found, 50), "ms")
        report.add(f"{name}_p99", measure.percentile(found, 99), "ms", goal)
        report.add(f"{name}_max", max(found), "ms")
        report.add(f"{name}_early", sum(each < 0 for each in found), "")
    report.show()


def run(url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Let a worker of this process run what another process schedules."""
    app = Tarry(url, namespace="bench")
    late: dict[str, list[float]] = {"near": [], "ahead": []}
    wanted = 2 * max(1, int(options.rate * options.seconds / 2))
    done = threading.Event()

    def note(kind: str, ctx: Context) -> None:
        late[kind].append(time.time() * 1_000 - ctx.due)
        if sum(map(len, late.values())) >= wanted:
            done.set()

    @app.task("near")
    async def near(ctx: Context) -> None:
        note("near", ctx)

    @app.task("ahead")
    async def ahead(ctx: Context) -> None:
        note("ahead", ctx)

    words = [sys.executable, __file__, "--produce", url, "--rate", str(options.rate)]
    with closing(app), app.worker(concurrency=50):
        subprocess.run([*words, "--seconds", str(options.seconds)], check=True)
        if not done.wait(60):
            raise SystemExit(f"{sum(map(len, late.values()))} of {wanted} tasks ran")
    return late


def produce(url: str, rate: int, seconds: float) -> None:
    """Schedule pairs of tasks at a steady rate."""
    pairs = max(1, int(rate * seconds / 2))
    first, last = AHEAD_MS
    with closing(connect(url, namespace="bench")) as store:
        began = time.perf_counter()
        for n in range(pairs):
            wait = began + n * 2 / rate - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            ahead = In(first + (n * 7_919) % (last - first))
            store.schedule(
                [
                    Request(TaskRef("near", str(n)), In(NEAR_MS)),
                    Request(TaskRef("ahead", str(n)), ahead),
                ]
            )


if __name__ == "__main__":
    main()
