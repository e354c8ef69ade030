"""Peers: Huey and APScheduler 3 on SQLite (and beanstalkd, if it is installed) next to tarry.

The same work for each, one after the other in one run: single calls, a burst, lateness, cancels.
The peers are installed, at fixed versions, into an environment under the cache folder.
"""

import argparse
import hashlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import measure
from ledger import Ledger

PINS = ("huey==3.5.4", "apscheduler==3.11.3", "sqlalchemy==2.1.8")
MEASURES = {
    "schedule": "/s",
    "cancel": "/s",
    "burst": "/s",
    "burst_tasks": "",
    "burst_not_run": "",
    "late_p50": "ms",
    "late_p99": "ms",
    "late_max": "ms",
    "late_early": "",
    "late_tasks": "",
    "late_not_run": "",
}
RATES = ("schedule", "cancel", "burst")
TOGETHER = {"apscheduler"}
BATCHING = {"tarry"}
Found = dict[str, float]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=10.0, help="of lateness")
    parser.add_argument("--call-seconds", type=float, default=0.8, help="for each kind of call")
    parser.add_argument("--turns", type=int, default=3, help="of calls; the median counts")
    parser.add_argument("--patience", type=float, default=6.0, help="to place or run a burst")
    parser.add_argument("--environment", type=Path, help="where the peers are installed")
    options = parser.parse_args()
    if options.quick:
        options.burst, options.seconds = 200, 0.5
        options.call_seconds, options.patience, options.turns = 0.1, 2.0, 1
    report = measure.Report(options)
    pythons = {"tarry": Path(sys.executable)}
    peers = environment("peers", PINS, report, options.environment)
    pythons |= {"huey": peers, "apscheduler": peers}
    if shutil.which("beanstalkd"):
        pythons["beanstalkd"] = Path(sys.executable)
    else:
        report.note("SKIPPED: beanstalkd is not installed")
    found = calls(pythons, options, report)
    for name, python in pythons.items():
        found[name] |= compare(name, python, found[name]["schedule"], options, report)
    for name, figures in found.items():
        for key, value in figures.items():
            report.add(f"{name}_{key}", value, MEASURES[key])
        if name != "tarry":
            for key in RATES:
                report.add(f"tarry_over_{name}_{key}", found["tarry"][key] / figures[key], "times")
    if options.json:
        report.show()
    else:
        show(found)


def show(found: dict[str, Found]) -> None:
    """Print the sides next to one another, and how many times faster tarry is."""
    rows = []
    for key, unit in MEASURES.items():
        row = [f"{key} {unit}"]
        for name, figures in found.items():
            times = found["tarry"][key] / figures[key] if key in RATES else 0
            ratio = f"  ({times:.1f}x)" if times and name != "tarry" else ""
            row.append(measure.number(figures[key]) + ratio)
        rows.append(row)
    measure.table(["measure", *found], rows)
    print("(nx): tarry does n times as many per second")


# ---- the environment of the peers


def environment(
    name: str, pins: Sequence[str], report: measure.Report, wanted: Path | None = None
) -> Path:
    """Return a Python that has the packages of *pins*, made at the first call."""
    folder = wanted or cache_of(name, pins)
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        report.note(f"installing {', '.join(pins)} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        (folder / "complete").touch()
    return python


def cache_of(name: str, pins: Sequence[str]) -> Path:
    """Return the folder where packages at these versions are installed for this Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = hashlib.sha256(repr((pins, sys.version)).encode()).hexdigest()[:12]
    return cache / "tarry-benchmarks" / f"{name}-{version}"


# ---- the works


def calls(
    pythons: dict[str, Path], options: argparse.Namespace, report: measure.Report
) -> dict[str, Found]:
    """Return the calls per second of each side, the median of several turns."""
    turns: dict[str, list[Found]] = {name: [] for name in pythons}
    for turn in range(options.turns):
        report.note(f"calls, turn {turn + 1} of {options.turns}")
        for name, python in pythons.items():
            with prepared(name, options) as folder:
                side = begin(name, python, "calls", folder, "--seconds", options.call_seconds)
                turns[name].append(side.answer(options.call_seconds * 4 + 30))
    return {
        name: {key: statistics.median(turn[key] for turn in found) for key in found[0]}
        for name, found in turns.items()
    }


def compare(
    name: str, python: Path, rate: float, options: argparse.Namespace, report: measure.Report
) -> Found:
    """Return how one side, which schedules at *rate*, runs a burst and how late it is."""
    found: Found = {}
    report.note(f"{name}: burst")
    # One by one, only so many fit into the patience, by the rate just seen.
    fits = options.burst if name in BATCHING else int(rate * options.patience * 0.9)
    count = max(1, min(options.burst, fits))
    first, starts = run(name, python, [0] * count, rate, options)
    late = [start / 1e6 - first for start in starts if start]
    found["burst"] = len(late) / (max(late) / 1_000) if late else 0.0
    found["burst_tasks"] = len(starts)
    found["burst_not_run"] = starts.count(0)
    report.note(f"{name}: lateness")
    span = int(options.seconds * 1_000)
    offsets = measure.spread(int(options.rate * options.seconds), 0, span)
    first, starts = run(name, python, offsets, rate, options)
    dues = [first + offset for offset in offsets[: len(starts)]]
    late = measure.lateness_ms(dues, starts)
    found["late_p50"] = measure.percentile(late, 50)
    found["late_p99"] = measure.percentile(late, 99)
    found["late_max"] = max(late, default=0.0)
    found["late_early"] = sum(value < -1 for value in late)
    found["late_tasks"] = len(starts)
    found["late_not_run"] = starts.count(0)
    return found


def run(
    name: str, python: Path, offsets: list[int], rate: float, options: argparse.Namespace
) -> tuple[int, list[int]]:
    """Schedule a task at each offset (ms), let them run; returns instant 0 and each start (ns).

    Scheduling has twice as long as *rate* promises; what does not fit is left out.
    """
    with prepared(name, options) as folder:
        ledger = Ledger.create(folder / "ledger", len(offsets))
        limit = min(options.patience, 2 * len(offsets) / rate + 0.5)
        first = measure.now_ms() + int(limit * 1_000) + (500 if options.quick else 2_000)
        (folder / "dues.json").write_text(json.dumps([first + offset for offset in offsets]))
        last = first + max(offsets)
        if name in TOGETHER:
            with begin(name, python, "both", folder, "--seconds", limit) as both:
                count = wait(both, ledger, last, options)
        else:
            with begin(name, python, "work", folder).await_ready() as work:
                with begin(name, python, "produce", folder, "--seconds", limit) as producer:
                    count = wait(producer, ledger, last, options)
                # What is left over is not waited for.
                work.kill()
        return first, ledger.first()[:count]


def wait(producer: measure.Process, ledger: Ledger, last: int, options: argparse.Namespace) -> int:
    """Wait until all that was scheduled ran, or the patience ends; returns how many those are."""
    count: int = json.loads(producer.line(options.patience + 30))["scheduled"]
    ahead = (last - measure.now_ms()) / 1_000
    ledger.wait(count, seconds=ahead + options.patience * 1.5)
    return count


def begin(name: str, python: Path, work: str, folder: Path, *words: object) -> measure.Process:
    """Start a process of a side."""
    return measure.Process([python, measure.HERE / f"side_{name}.py", work, folder, *words])


@contextmanager
def prepared(name: str, options: argparse.Namespace) -> Iterator[Path]:
    """Lend a fresh folder; beanstalkd gets a fresh server too."""
    with measure.scratch(options) as folder:
        if name != "beanstalkd":
            yield folder
            return
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "port").write_text(str(port))
        words = ["beanstalkd", "-l", "127.0.0.1", "-p", port, "-b", folder, "-f", 50]
        with measure.Process(words):
            wait_for_port(port)
            yield folder


def wait_for_port(port: int) -> None:
    """Wait until somebody listens there."""
    deadline = measure.now_ms() + 10_000
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if measure.now_ms() > deadline:
                raise
        else:
            return


if __name__ == "__main__":
    main()
