"""Burst: many tasks due at one instant, others waiting; executed/s from then to the last start.

The worker is a process of its own and waits before the instant; the producer is quiet by then.
"""

import argparse
import statistics
from pathlib import Path

import measure
from ledger import Ledger

GOALS = {"async": "≥ 30,000/s", "sync": "≥ 20,000/s"}


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; the median counts")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.waiting, options.repeat = 2_000, 1_000, 1
    report = measure.Report(options)
    with measure.scratch(options) as folder:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(folder / "tarry.db", options.waiting)
        for handler in ("async", "sync"):
            runs = [burst(folder, options, handler, report) for _ in range(options.repeat)]
            rates = [options.tasks / seconds for _, seconds in runs]
            report.add(handler, statistics.median(rates), "/s", GOALS[handler])
            report.add(f"{handler}_lowest", min(rates))
            report.add(f"{handler}_highest", max(rates))
            report.add(f"{handler}_first_ms", statistics.median(f for f, _ in runs), "ms")
    report.show()


def burst(
    folder: Path, options: argparse.Namespace, handler: str, report: measure.Report
) -> tuple[float, float]:
    """Return when the first task started (ms after the instant) and the last (s after it)."""
    path = folder / "tarry.db"
    ledger = Ledger.create(folder / "ledger", options.tasks)
    with (
        measure.worker(path, ledger.path, "--handler", handler),
        measure.app_on(path) as app,
    ):
        instant = measure.now_ms() + 2_000 + options.tasks // 10
        measure.place(app, [instant] * options.tasks)
        spare = instant - measure.now_ms()
        report.note(f"{handler}: {options.tasks:,} due in {spare} ms")
        if spare < 500:
            raise SystemExit("the burst was not scheduled in time: is the machine busy?")
        if not ledger.wait(options.tasks, seconds=60 + spare / 1_000):
            raise SystemExit(f"only {ledger.ran():,} of {options.tasks:,} tasks ran")
    starts = [(start - instant * 1_000_000) / 1e9 for start in ledger.first()]
    return min(starts) * 1_000, max(starts)


if __name__ == "__main__":
    main()
