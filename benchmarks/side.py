"""One side of the comparison with peers: the same work for each, in an environment of its own.

Needs nothing but Python. A side is a script that hands a `Side` to `main`.
"""

import argparse
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from ledger import Ledger

Mark = Callable[[int], None]
_HOUR_MS = 3_600_000
_FILL = 5_000
_FILLS = 200


class Side(Protocol):
    """A system under comparison, on files in one folder."""

    def schedule(self, n: int, due: int) -> None:
        """Schedule task *n* at *due* (milliseconds UTC)."""
        ...

    def work(self) -> None:
        """Run the due tasks; those whose worker lives with the producer return at once."""
        ...


@runtime_checkable
class Cancelling(Protocol):
    """A side whose cancels are compared."""

    def cancel(self, n: int) -> None:
        """Cancel task *n*, scheduled by this very object."""
        ...


@runtime_checkable
class Batching(Protocol):
    """A side that has a call for many tasks."""

    def place(self, dues: list[int]) -> None:
        """Schedule task n at the nth due."""
        ...


@runtime_checkable
class Filling(Protocol):
    """A side whose batches are compared."""

    def fill(self, numbers: range, due: int) -> None:
        """Schedule the tasks *numbers* at *due*, in batches of the size that suits it."""
        ...


Make = Callable[[Path, Mark], Side]


def main(make: Make) -> None:
    """Do what the command line asks of the side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["calls", "batches", "produce", "work", "both"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    path = options.folder / "ledger"
    side = make(options.folder, Ledger(path).mark if path.exists() else _nothing)
    if options.work == "calls":
        _say(_calls(side, options.count, options.seconds))
        return
    if options.work == "batches":
        _say({"batches": _batches(side, options.seconds)})
        return
    if options.work == "work":
        print("ready", flush=True)
        side.work()
        return
    dues = json.loads((options.folder / "dues.json").read_text())
    _say({"scheduled": _produce(side, dues, options.seconds)})
    if options.work == "both":
        side.work()
        signal.pause()


def _nothing(n: int) -> None:
    del n


def _say(answer: dict[str, float]) -> None:
    print(json.dumps(answer), flush=True)


def _calls(side: Side, count: int, seconds: float) -> dict[str, float]:
    """Return calls per second, one at a time: schedule, then cancel what was scheduled (if it can).

    As long again is not counted before, so that no side is measured on a file just made.
    """
    due = time.time_ns() // 1_000_000 + _HOUR_MS
    _timed(lambda n: side.schedule(count + n, due), count, seconds)
    scheduled, took = _timed(lambda n: side.schedule(n, due), count, seconds)
    found = {"schedule": scheduled / took}
    if isinstance(side, Cancelling):
        cancelled, cancelling = _timed(side.cancel, scheduled, seconds)
        found["cancel"] = cancelled / cancelling
    return found


def _batches(side: Side, seconds: float) -> float:
    """Return tasks per second, scheduled in batches; as long again is not counted before."""
    if not isinstance(side, Filling):
        raise SystemExit("this side has no call for many tasks")
    due = time.time_ns() // 1_000_000 + _HOUR_MS
    fill = side.fill
    _timed(lambda n: fill(range(n * _FILL, (n + 1) * _FILL), due), _FILLS, seconds)
    rest = _FILLS * _FILL
    done, took = _timed(
        lambda n: fill(range(rest + n * _FILL, rest + (n + 1) * _FILL), due), _FILLS, seconds
    )
    return done * _FILL / took


def _timed(call: Callable[[int], None], count: int, seconds: float) -> tuple[int, float]:
    began = time.perf_counter()
    for n in range(count):
        call(n)
        took = time.perf_counter() - began
        if took > seconds:
            return n + 1, took
    return count, time.perf_counter() - began


def _produce(side: Side, dues: list[int], seconds: float) -> int:
    """Schedule task n at the nth due, as many as *seconds* allow; returns how many."""
    if isinstance(side, Batching):
        side.place(dues)
        return len(dues)
    return _timed(lambda n: side.schedule(n, dues[n]), len(dues), seconds)[0]
