"""Firing: lateness at 10,000 calls/s, the time-out pattern, idle processor time, GC pauses.

Lateness: 10,000 timers, each of which arms itself anew with a random delay of up to 2 s. Pattern:
time-outs of 30 s on virtual time, of which 95 % are cancelled; ns per time-out, the harness
included. Idle: a million armed, nothing due. Pause: what a million armed add to a collection.
"""

import argparse
import asyncio
import gc
import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import aloft  # noqa: F401 - for the next import
import measure
import sides
from costs import HERE, JAR

from tarry.timers import AsyncTimers, HierarchicalWheel, TimerThread
from tarry.timers.hierarchical_wheel import HierarchicalWheel as Twin

Options = argparse.Namespace
SECOND = 1_000_000_000


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each run of lateness and idle"
    )
    parser.add_argument("--timers", type=int, default=1_000_000, help="armed while idle")
    parser.add_argument("--rate", type=int, default=10_000, help="calls a second")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS])
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.timers, options.rate = 0.5, 10_000, 1_000
    report = measure.Report(options)
    for part in PARTS:
        if options.only in (None, part.__name__):
            part(options, report)
    report.show()


class Lateness:
    """Timers that arm themselves anew, and note how late they were."""

    def __init__(self, options: Options, after: Callable[[float, Any, Any], Any]) -> None:
        self.after, self.late = after, list[int]()
        self._chance = random.Random(1)
        self._ends = time.monotonic_ns() + int(options.seconds * SECOND)

    def arm(self) -> None:
        delay = self._chance.random() * 2
        self.after(delay, self.fired, time.monotonic_ns() + int(delay * SECOND))

    def fired(self, due: int) -> None:
        now = time.monotonic_ns()
        self.late.append(now - due)
        if now < self._ends:
            self.arm()


def tell_lateness(name: str, late: list[int], report: measure.Report, goal: str = "") -> None:
    report.add(f"{name}_p50", measure.percentile(late, 50) / 1_000, "µs", goal)
    report.add(f"{name}_p99", measure.percentile(late, 99) / 1_000, "µs")
    report.add(f"{name}_early", sum(value < 0 for value in late), "calls", "0" if goal else "")


def lateness(options: Options, report: measure.Report) -> None:
    """Calls at a steady rate: how late are they."""
    report.note("lateness, TimerThread")
    with TimerThread() as timers:
        run = Lateness(options, timers.after)
        for _ in range(options.rate):
            run.arm()
        time.sleep(options.seconds)
    tell_lateness("thread", run.late, report, "p50 ≤ 60 µs, none early")
    report.note("lateness, AsyncTimers")
    tell_lateness("async", asyncio.run(_async(options)), report, "p50 ≤ 80 µs, none early")
    report.note("lateness, asyncio")
    tell_lateness("asyncio", asyncio.run(_asyncio(options)), report)
    for name in ("stpe", "netty"):
        if options.quick or shutil.which("javac") is None or not JAR.exists():
            report.note(f"{name}: left out")
            continue
        report.note(f"lateness, {name}")
        command: list[Any] = [
            "java",
            "-cp",
            JAR,
            HERE / "Peers.java",
            name,
            "late",
            str(options.seconds),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        report.add(f"{name}_p50", found["p50"], "µs")
        report.add(f"{name}_p99", found["p99"], "µs")
        report.add(f"{name}_early", found["early"], "calls")


async def _async(options: Options) -> list[int]:
    async with AsyncTimers() as timers:
        run = Lateness(options, timers.after)
        for _ in range(options.rate):
            run.arm()
        await asyncio.sleep(options.seconds)
    return run.late


async def _asyncio(options: Options) -> list[int]:
    run = Lateness(options, asyncio.get_running_loop().call_later)
    for _ in range(options.rate):
        run.arm()
    await asyncio.sleep(options.seconds)
    return run.late


def pattern(options: Options, report: measure.Report) -> None:
    """Time-outs of which nearly all are cancelled."""
    wheels: dict[str, Any] = {"pattern": HierarchicalWheel(), "pattern_twin": Twin()}
    for name, wheel in wheels.items():
        report.note(f"the time-out pattern, {name}")
        chance, count, flight = random.Random(1), options.timers, max(options.timers // 10, 100)
        open_: list[Any] = []
        begun = time.perf_counter_ns()
        for n in range(count):
            now = n * 30 * SECOND // flight
            open_.append(wheel.arm(now + 30 * SECOND, sides.nothing))
            if n % 20:
                place = chance.randrange(len(open_))
                open_[place], open_[-1] = open_[-1], open_[place]
                open_.pop().disarm()
            if n % 100 == 0:
                wheel.fire(now)
        report.add(name, (time.perf_counter_ns() - begun) / count, "ns")


def idle(options: Options, report: measure.Report) -> None:
    """Nothing due: processor time of the process."""
    report.note(f"idle with {options.timers:,} armed for {options.seconds:g} s")
    with TimerThread() as timers:
        kept = [timers.after(3_600 + n % 3_600, sides.nothing) for n in range(options.timers)]
        before = time.process_time()
        threading.Event().wait(options.seconds)
        used = time.process_time() - before
        del kept
    report.add("idle_cpu", 100 * used / options.seconds, "% of a core", "≤ 0.05 %")


def pause(options: Options, report: measure.Report) -> None:
    """What armed timers add to a full collection; the caller's list of handles is in both."""
    for name in ("tarry", "tarry_thread", "asyncio"):
        report.note(f"a full collection, {name}")
        side = sides.SIDES[name]()
        kept: list[Any] = [None] * options.timers
        bare = _collection()
        kept[:] = side.arm([SECOND * (600 + n % 3_000) for n in range(options.timers)])
        report.add(
            f"pause_{name}",
            max(_collection() - bare, 0),
            "ms",
            "0, but for the list of handles" if name == "tarry" else "",
        )
        side.disarm(kept)
        side.close()
        del kept


def _collection() -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter_ns()
        gc.collect()
        best = min(best, (time.perf_counter_ns() - begun) / 1e6)
    return best


PARTS = (lateness, pattern, idle, pause)

if __name__ == "__main__":
    main()
