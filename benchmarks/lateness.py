"""Lateness: wall clock at the handler's first line minus due, at a steady rate with others waiting.

Dues are random milliseconds, scheduled well ahead; the worker is a process of its own.
"""

import argparse
from pathlib import Path

import measure
from ledger import Ledger

GOALS = {
    250: {"p50": "≤ 1 ms", "p99": "≤ 5 ms", "min": "≥ 0: none early"},
    2_000: {"p50": "≤ 1.5 ms", "p99": "≤ 10 ms", "min": "≥ 0: none early"},
}


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, nargs=2, default=[20.0, 10.0])
    parser.add_argument("--handler", choices=["async", "sync"], default="async")
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.seconds = 2_000, [2.0, 1.0]
    report = measure.Report(options)
    with measure.scratch(options) as folder:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(folder / "tarry.db", options.waiting)
        for rate, seconds in zip(GOALS, options.seconds, strict=True):
            report.note(f"{rate}/s for {seconds:g} s")
            late = lateness(folder, rate, seconds, options)
            found = {
                "p50": measure.percentile(late, 50),
                "p99": measure.percentile(late, 99),
                "max": max(late),
                "min": min(late),
            }
            for name, value in found.items():
                report.add(f"{name}_at_{rate}", value, "ms", GOALS[rate].get(name, ""))
            report.add(f"early_at_{rate}", sum(value < 0 for value in late), "tasks", "0")
    report.show()


def lateness(folder: Path, rate: int, seconds: float, options: argparse.Namespace) -> list[float]:
    """Return the lateness of each task in ms."""
    path = folder / "tarry.db"
    count = int(rate * seconds)
    ledger = Ledger.create(folder / "ledger", count)
    with (
        measure.worker(path, ledger.path, "--handler", options.handler),
        measure.app_on(path) as app,
    ):
        first = measure.now_ms() + 2_000 + count // 4
        dues = measure.spread(count, first, int(seconds * 1_000))
        measure.place(app, dues)
        if measure.now_ms() > first - 500:
            raise SystemExit("the tasks were not scheduled in time: is the machine busy?")
        limit = (first - measure.now_ms()) / 1_000 + seconds + 30
        if not ledger.wait(count, seconds=limit, every=0.5):
            raise SystemExit(f"only {ledger.ran():,} of {count:,} tasks ran")
    return measure.lateness_ms(dues, ledger.first())


if __name__ == "__main__":
    main()
