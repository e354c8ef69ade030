"""Lateness on Redis: the server's clock at the handler's first line minus due, many waiting.

Dues are random milliseconds, scheduled well ahead; the worker is a process of its own. Then once
more with the worker's wall clock wrong by a minute either way; the marks its handlers write are set
right by what the clock is known to be off.
"""

import argparse
from pathlib import Path

import above  # noqa: F401 - for the next imports
import measure
from ledger import Ledger
from redis_server import RedisServer, serving

GOALS = {
    "250": {"p50": "≤ 1 ms", "p99": "≤ 4 ms"},
    "2000": {"p50": "", "p99": "≤ 5 ms"},
}
# libfaketime would do it for the whole process, but makes it late by itself: set to no offset at
# all, 250 tasks a second started 47 ms late at the median, next to 2 ms without it.
WRONG_CLOCK = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {off}
time.time_ns = lambda: _time_ns() + {off} * 1_000_000_000
"""


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, nargs=2, default=[20.0, 10.0])
    parser.add_argument("--off", type=int, default=60, help="seconds a wrong clock is off")
    parser.add_argument("--handler", choices=["async", "sync"], default="async")
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.seconds = 2_000, [1.0, 0.5]
    report = measure.Report(options)
    rounds = [("250", 0), ("2000", 0), ("250", options.off), ("250", -options.off)]
    with serving(options) as server, measure.scratch(options) as folder:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(server.url, options.waiting)
        for rate, off in rounds:
            seconds = options.seconds[rate != "250"]
            report.note(f"{rate}/s for {seconds:g} s, clock off by {off} s")
            late = lateness(server, folder, int(rate), seconds, off, options)
            name = f"at_{rate}" + ("_ahead" if off > 0 else "_behind" if off else "")
            for percent in (50, 99):
                value = measure.percentile(late, percent)
                report.add(f"p{percent}_{name}", value, "ms", GOALS[rate][f"p{percent}"])
            report.add(f"max_{name}", max(late), "ms")
            report.add(f"min_{name}", min(late), "ms", "≥ 0: none early")
            report.add(f"early_{name}", sum(value < 0 for value in late), "tasks", "0")
    report.show()


def lateness(
    server: RedisServer,
    folder: Path,
    rate: int,
    seconds: float,
    off: int,
    options: argparse.Namespace,
) -> list[float]:
    """Return the lateness of each task in ms."""
    count = int(rate * seconds)
    ledger = Ledger.create(folder / "ledger", count)
    environment = wrong_clock(folder, off) if off else {}
    with (
        measure.worker(server.url, ledger.path, "--handler", options.handler, **environment),
        measure.app_on(server.url) as app,
    ):
        first = measure.now_ms() + 2_000 + count // 4
        dues = measure.spread(count, first, int(seconds * 1_000))
        measure.place(app, dues)
        if measure.now_ms() > first - 500:
            raise SystemExit("the tasks were not scheduled in time: is the machine busy?")
        limit = (first - measure.now_ms()) / 1_000 + seconds + 30
        if not ledger.wait(count, seconds=limit, every=0.5):
            raise SystemExit(f"only {ledger.ran():,} of {count:,} tasks ran")
    starts = [start - off * 1_000_000_000 for start in ledger.first()]
    return measure.lateness_ms(dues, starts)


def wrong_clock(folder: Path, off: int) -> dict[str, str]:
    """Return an environment in which Python's calendar is wrong; elapsed time goes on as it is."""
    (folder / "sitecustomize.py").write_text(WRONG_CLOCK.format(off=off))
    return {"PYTHONPATH": str(folder)}


if __name__ == "__main__":
    main()
