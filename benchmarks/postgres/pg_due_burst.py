"""Burst on PostgreSQL: tasks due at one instant, others waiting; executed/s by one worker process.

The worker is a process of its own and waits before the instant; the producer is quiet by then.
"""

import argparse
import statistics
from pathlib import Path

from pg_server import serving

import measure  # isort: skip - the server's module has made it findable
from ledger import Ledger  # isort: skip


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.waiting, options.repeat = 1_000, 1_000, 1
    report = measure.Report(options)
    with serving(options) as server, measure.scratch(options) as folder:
        measure.fill(server.url, options.waiting)
        rates = [burst(server.url, folder, options, report) for _ in range(options.repeat)]
        report.add("async", statistics.median(rates), "/s", "≥ 18,000/s")
        report.add("async_lowest", min(rates))
    report.show()


def burst(url: str, folder: Path, options: argparse.Namespace, report: measure.Report) -> float:
    """Return how many tasks a second were started."""
    ledger = Ledger.create(folder / "ledger", options.tasks)
    settings = ("--handler", "async", "--concurrency", options.concurrency)
    with measure.worker(url, ledger.path, *settings), measure.app_on(url) as app:
        instant = measure.now_ms() + 3_000 + options.tasks // 5
        measure.place(app, [instant] * options.tasks)
        spare = instant - measure.now_ms()
        report.note(f"{options.tasks:,} due in {spare} ms")
        if spare < 200:
            raise SystemExit("the burst was not scheduled in time: is the machine busy?")
        if not ledger.wait(options.tasks, seconds=60 + spare / 1_000, every=0.2):
            raise SystemExit(f"only {ledger.ran():,} of {options.tasks:,} tasks ran")
        measure.wait_empty(app, options.waiting, 30)
    starts = [(start - instant * 1_000_000) / 1e9 for start in ledger.first()]
    if max(ledger.runs()) > 1 or min(starts) < 0:
        raise SystemExit("a task ran twice or early")
    return float(options.tasks / max(starts))


if __name__ == "__main__":
    main()
