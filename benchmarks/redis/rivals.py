"""Rivals: other systems on the same Redis next to tarry: single calls, a burst, lateness.

The same work for each, one after the other in one run and on one server, emptied in between.
beanstalkd, if it is installed, has its own. Each peer is installed at fixed versions into an
environment of its own under the cache folder; one that cannot be is named and left out.
"""

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import above  # noqa: F401 - for the next imports
import measure
import peers
from environments import PINS, node_folder, python_of
from ledger import Ledger
from redis_server import RedisServer, serving

HERE = Path(__file__).resolve().parent
MEASURES = {
    "schedule": "/s",
    "burst": "/s",
    "burst_tasks": "",
    "burst_not_run": "",
    "burst_first": "ms",
    "late_p50": "ms",
    "late_p99": "ms",
    "late_max": "ms",
    "late_early": "",
    "late_not_run": "",
}
GOALS = {"schedule": "≥ 1.5 (Huey)", "burst": "≥ 3"}
TOGETHER = {"apscheduler"}
BATCHING = {"tarry", "bullmq"}
IN_FLIGHT = {"arq", "saq", "taskiq"}
"""Placing a burst, these have more than one call on its way: they place at least as many."""
GENTLY = {"rq"}
"""Ended by SIGTERM: its scheduler is a process of its own, which it must end."""
Found = dict[str, float]
Begin = Callable[..., measure.Process]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=10.0, help="of lateness")
    parser.add_argument("--call-seconds", type=float, default=0.8, help="of calls in each turn")
    parser.add_argument("--turns", type=int, default=5, help="of calls; the median counts")
    parser.add_argument("--patience", type=float, default=10.0, help="to place or run a burst")
    parser.add_argument("--peers", default=",".join(["beanstalkd", "bullmq", *PINS]))
    options = parser.parse_args()
    if options.quick:
        options.burst, options.seconds, options.turns = 200, 0.5, 1
        options.call_seconds, options.patience, options.peers = 0.1, 3.0, ""
    report = measure.Report(options)
    sides = contestants([name for name in options.peers.split(",") if name], report)
    with serving(options) as server:
        found = calls(sides, server, options, report)
        for name, figures in found.items():
            begin, rate = sides[name], figures["schedule"]
            figures.update(compare(name, begin, rate, server, options, report))
    for name, figures in found.items():
        for key, value in figures.items():
            report.add(f"{name}_{key}", value, MEASURES[key])
        for key, goal in GOALS.items():
            if name != "tarry" and figures[key]:
                times = found["tarry"][key] / figures[key]
                report.add(f"tarry_over_{name}_{key}", times, "times", goal)
    if options.json:
        report.show()
    else:
        show(found)


def show(found: dict[str, Found]) -> None:
    """Print a line for each side, and how many times faster tarry is."""
    rows = []
    for name, figures in found.items():
        row = [name]
        for key in MEASURES:
            times = found["tarry"][key] / figures[key] if key in GOALS and figures[key] else 0
            ratio = f" ({times:.1f}x)" if times and name != "tarry" else ""
            row.append(measure.number(figures[key]) + ratio)
        rows.append(row)
    measure.table(["", *MEASURES], rows)
    print("(nx): tarry does n times as many per second")


# ---- who takes part


def contestants(names: list[str], report: measure.Report) -> dict[str, Begin]:
    """Return how a process of each side is started; a peer that is not there is left out."""
    sides: dict[str, Begin] = {"tarry": _python("tarry", Path(sys.executable))}
    for name in names:
        if name == "beanstalkd":
            if shutil.which(name):
                sides[name] = _beanstalkd
            else:
                report.note("NOT INSTALLED: beanstalkd")
        elif name == "bullmq":
            folder = node_folder(report)
            if folder is not None:
                sides[name] = _node(folder)
        else:
            python = python_of(name, report)
            if python is not None:
                sides[name] = _python(name, python)
    return sides


def _python(name: str, python: Path) -> Begin:
    return lambda *words: measure.Process([python, HERE / f"redis_{name}.py", *words])


def _beanstalkd(*words: object) -> measure.Process:
    return measure.Process([sys.executable, measure.HERE / "side_beanstalkd.py", *words])


def _node(folder: Path) -> Begin:
    script = HERE / "redis_bullmq.js"
    return lambda *words: measure.Process(["node", script, *words], BULLMQ=str(folder))


# ---- the works


def calls(
    sides: Mapping[str, Begin],
    server: RedisServer,
    options: argparse.Namespace,
    report: measure.Report,
) -> dict[str, Found]:
    """Return the calls per second of each side, the median of several turns."""
    turns: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.turns):
        report.note(f"calls, turn {turn + 1} of {options.turns}")
        for name in list(turns):
            try:
                with prepared(name, server, options) as folder:
                    side = sides[name]("calls", folder, "--seconds", options.call_seconds)
                    turns[name].append(side.answer(options.call_seconds * 4 + 30)["schedule"])
            except SystemExit as error:
                report.note(f"LEFT OUT: {name}: {error}")
                del turns[name]
    for name, rates in turns.items():
        ratios = [a / b for a, b in zip(turns["tarry"], rates, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        report.note(f"{name}: tarry schedules {statistics.median(ratios):.2f} times ({spread})")
    return {name: {"schedule": statistics.median(rates)} for name, rates in turns.items()}


def compare(
    name: str,
    begin: Begin,
    rate: float,
    server: RedisServer,
    options: argparse.Namespace,
    report: measure.Report,
) -> Found:
    """Return how one side, which schedules at *rate*, runs a burst and how late it is."""
    found: Found = {}
    # One by one, only so many fit into the patience, by the rate just seen.
    fits = options.burst if name in BATCHING else int(rate * options.patience * 0.9)
    count = max(1, min(options.burst, fits))
    report.note(f"{name}: burst of {count:,}")
    first, starts = run(name, begin, [0] * count, rate, server, options)
    late = [start / 1e6 - first for start in starts if start]
    found["burst"] = len(late) / (max(late) / 1_000) if late else 0.0
    found["burst_tasks"] = len(starts)
    found["burst_not_run"] = starts.count(0)
    found["burst_first"] = min(late, default=0.0)
    report.note(f"{name}: {found['burst']:,.0f}/s; lateness")
    span = int(options.seconds * 1_000)
    offsets = measure.spread(int(options.rate * options.seconds), 0, span)
    first, starts = run(name, begin, offsets, rate, server, options)
    dues = [first + offset for offset in offsets[: len(starts)]]
    late = measure.lateness_ms(dues, starts)
    found["late_p50"] = measure.percentile(late, 50)
    found["late_p99"] = measure.percentile(late, 99)
    found["late_max"] = max(late, default=0.0)
    found["late_early"] = sum(value < -1 for value in late)
    found["late_not_run"] = starts.count(0)
    return found


def run(
    name: str,
    begin: Begin,
    offsets: list[int],
    rate: float,
    server: RedisServer,
    options: argparse.Namespace,
) -> tuple[int, list[int]]:
    """Schedule a task at each offset (ms), let them run; returns instant 0 and each start (ns).

    Scheduling has twice as long as *rate* promises; what does not fit is left out.
    """
    with prepared(name, server, options) as folder:
        ledger = Ledger.create(folder / "ledger", len(offsets))
        limit = min(options.patience, 2 * len(offsets) / rate + 0.5)
        first = measure.now_ms() + int(limit * 1_000) + (1_500 if options.quick else 4_000)
        (folder / "dues.json").write_text(json.dumps([first + offset for offset in offsets]))
        last = first + max(offsets)
        if name in TOGETHER:
            with begin("both", folder, "--seconds", limit) as both:
                count = wait(both, ledger, last, options)
                both.kill()
        else:
            with begin("work", folder).await_ready() as work:
                with begin("produce", folder, "--seconds", limit) as producer:
                    count = wait(producer, ledger, last, options)
                if name not in GENTLY:
                    # What is left over is not waited for.
                    work.kill()
        return first, ledger.first()[:count]


def wait(producer: measure.Process, ledger: Ledger, last: int, options: argparse.Namespace) -> int:
    """Wait until all that was scheduled ran, or the patience ends; returns how many those are."""
    count: int = json.loads(producer.line(options.patience * 3 + 30))["scheduled"]
    ahead = max(0.0, (last - measure.now_ms()) / 1_000)
    ledger.wait(count, seconds=ahead + options.patience * 3)
    return count


@contextmanager
def prepared(name: str, server: RedisServer, options: argparse.Namespace) -> Iterator[Path]:
    """Lend a fresh folder that names the port of an empty server."""
    if name == "beanstalkd":
        with peers.prepared(name, options) as folder:
            yield folder
        return
    with closing(server.client()) as client:
        client.flushall()
    with measure.scratch(options) as folder:
        (folder / "port").write_text(str(server.port))
        yield folder


if __name__ == "__main__":
    main()
