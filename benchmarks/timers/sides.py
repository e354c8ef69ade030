"""Sides: who is measured: tarry's structures and the timers of Python, in a process of their own.

    python sides.py NAME COUNT ROUNDS

prints one JSON object: nanoseconds per arm, disarm and expire, the best of the rounds, and bytes of
resident memory per timer. Delays are spread over an hour, handles are kept, disarming is in random
order, and expiring lets a virtual hour pass in steps of a second, calls included.
"""

import asyncio
import gc
import heapq
import importlib.util
import json
import random
import sched
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aloft  # noqa: F401 - for the imports of others

from tarry.clock import ELAPSED_ID
from tarry.timers import CORE, HashedWheel, Heap, HierarchicalWheel, TimerThread
from tarry.timers.hierarchical_wheel import HierarchicalWheel as Twin

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
LEAST = 200_000
"""So many of each call at least, however few timers there are."""
Costs = dict[str, float]


def nothing() -> None:
    """Stand for a callback."""


class Side(ABC):
    """Arms, disarms and expires; a fresh one for each round."""

    most = 5_000_000
    """More than so many take too long."""

    @abstractmethod
    def arm(self, delays: Sequence[int]) -> list[Any]:
        """Arm a timer for each delay; returns the handles."""

    @abstractmethod
    def disarm(self, handles: list[Any]) -> None:
        """Disarm them all."""

    def expire(self) -> None:
        """Let a virtual hour pass; what cannot has no figure."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Leave nothing behind."""


class Structure(Side):
    """One of tarry's structures, call by call."""

    def __init__(self, timers: Any) -> None:
        self.timers = timers

    def arm(self, delays: Sequence[int]) -> list[Any]:
        arm = self.timers.arm
        return [arm(delay, nothing) for delay in delays]

    def disarm(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.disarm()

    def expire(self) -> None:
        for now in range(0, HOUR + SECOND, SECOND):
            self.timers.fire(now)


class WithClock(Structure):
    """The wheel in one call that reads the clock itself."""

    def __init__(self) -> None:
        clock: Any = ELAPSED_ID if CORE == "native" else time.monotonic_ns
        super().__init__(HierarchicalWheel(time.monotonic_ns(), clock=clock))

    def arm(self, delays: Sequence[int]) -> list[Any]:
        arm = self.timers.arm_in
        return [arm(delay, nothing) for delay in delays]

    def expire(self) -> None:
        raise NotImplementedError


class Many(Structure):
    """The wheel in one call for all."""

    def arm(self, delays: Sequence[int]) -> list[Any]:
        handles: list[Any] = self.timers.arm_many(delays, [nothing] * len(delays))
        return handles

    def disarm(self, handles: list[Any]) -> None:
        self.timers.disarm_many(handles)


class Driver(Side):
    """TimerThread.after with seconds, as a program calls it."""

    def __init__(self) -> None:
        self.timers = TimerThread()

    def arm(self, delays: Sequence[int]) -> list[Any]:
        after, seconds = self.timers.after, [delay / SECOND for delay in delays]
        return [after(delay, nothing) for delay in seconds]

    def disarm(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.cancel()

    def close(self) -> None:
        self.timers.stop()


class Asyncio(Side):
    """call_later; expiring is one jump of the loop's clock."""

    most = 1_000_000

    def __init__(self) -> None:
        self.loop: Any = asyncio.new_event_loop()

    def arm(self, delays: Sequence[int]) -> list[Any]:
        later, seconds = self.loop.call_later, [delay / SECOND for delay in delays]
        return [later(delay, nothing) for delay in seconds]

    def disarm(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.cancel()

    def expire(self) -> None:
        ahead = time.monotonic() + 2 * 3_600
        self.loop.time = lambda: ahead
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        self.loop.close()


class Uvloop(Asyncio):
    """The same on uvloop, whose clock cannot be moved."""

    def __init__(self) -> None:
        import uvloop  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        self.loop = uvloop.new_event_loop()

    def expire(self) -> None:
        raise NotImplementedError


class Heapq(Side):
    """A heap by hand that only marks what was disarmed."""

    most = 1_000_000

    def __init__(self) -> None:
        self.heap: list[list[Any]] = []

    def arm(self, delays: Sequence[int]) -> list[Any]:
        heap, push, handles = self.heap, heapq.heappush, list[Any]()
        for n, delay in enumerate(delays):
            handle = [delay, n, nothing]
            push(heap, handle)
            handles.append(handle)
        return handles

    def disarm(self, handles: list[Any]) -> None:
        for n, handle in enumerate(handles):
            handle[2] = None
            if n % 1_000 == 0 and n > len(self.heap) // 2:
                self.heap = [entry for entry in self.heap if entry[2] is not None]
                heapq.heapify(self.heap)

    def expire(self) -> None:
        heap, pop = self.heap, heapq.heappop
        for now in range(0, HOUR + SECOND, SECOND):
            while heap and heap[0][0] <= now:
                call = pop(heap)[2]
                if call is not None:
                    call()


class Sched(Side):
    """sched.scheduler on a virtual clock; its cancel is O(n)."""

    most = 10_000

    def __init__(self) -> None:
        self.now = 0
        self.scheduler = sched.scheduler(lambda: self.now, lambda _: None)

    def arm(self, delays: Sequence[int]) -> list[Any]:
        enter = self.scheduler.enter
        return [enter(delay, 0, nothing) for delay in delays]

    def disarm(self, handles: list[Any]) -> None:
        for handle in handles:
            self.scheduler.cancel(handle)

    def expire(self) -> None:
        for now in range(0, HOUR + SECOND, SECOND):
            self.now = now
            self.scheduler.run(blocking=False)


class Threads(Side):
    """threading.Timer: a thread for each."""

    most = 1_000

    def arm(self, delays: Sequence[int]) -> list[Any]:
        handles = [threading.Timer(delay / SECOND, nothing) for delay in delays]
        for handle in handles:
            handle.start()
        return handles

    def disarm(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.cancel()
        for handle in handles:
            handle.join()


SIDES: dict[str, Callable[[], Side]] = {
    "tarry": lambda: Structure(HierarchicalWheel()),
    "tarry_clock": WithClock,
    "tarry_many": lambda: Many(HierarchicalWheel()),
    "tarry_thread": Driver,
    "tarry_twin": lambda: Structure(Twin()),
    "tarry_heap": lambda: Structure(Heap()),
    "tarry_hashed": lambda: Structure(HashedWheel()),
    "asyncio": Asyncio,
    "uvloop": Uvloop,
    "heapq": Heapq,
    "sched": Sched,
    "threading": Threads,
}
MOST = {
    "asyncio": Asyncio.most,
    "uvloop": Asyncio.most,
    "heapq": Heapq.most,
    "sched": Sched.most,
    "threading": Threads.most,
    "tarry_heap": 100_000,
    "tarry_hashed": 100_000,
    "tarry_twin": 1_000_000,
    "tarry_thread": 1_000_000,
}


def present(name: str) -> bool:
    """Say whether the side can be measured here."""
    return name != "uvloop" or importlib.util.find_spec("uvloop") is not None


def resident() -> int:
    """Return the resident memory in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


@contextmanager
def timed(costs: Costs, name: str, count: int) -> Iterator[None]:
    """Note the best time per operation."""
    begun = time.perf_counter_ns()
    yield
    each = (time.perf_counter_ns() - begun) / count
    costs[name] = min(costs.get(name, each), each)


def measure(name: str, count: int, rounds: int) -> Costs:
    """Return what each operation costs."""
    chance, costs = random.Random(1), Costs()
    delays = [chance.randrange(SECOND, HOUR) for _ in range(count)]
    shuffled = list(range(count))
    chance.shuffle(shuffled)
    gc.disable()
    for turn in range(max(rounds, LEAST // count)):
        side, before = SIDES[name](), resident()
        with timed(costs, "arm", count):
            handles = side.arm(delays)
        if turn == 0:
            # Without the list that the caller keeps.
            costs["bytes"] = max(resident() - before - 8 * count, 0) / count
        mixed = [handles[n] for n in shuffled]
        del handles
        with timed(costs, "disarm", count):
            side.disarm(mixed)
        if name == "tarry":
            # Once more does nothing: what it costs to call any method of a handle.
            with timed(costs, "call", count):
                side.disarm(mixed)
        side.close()
        del mixed, side
        side = SIDES[name]()
        kept = side.arm(delays)
        try:
            with timed(costs, "expire", count):
                side.expire()
        except NotImplementedError:
            costs.pop("expire", None)
            side.disarm(kept)
        side.close()
        del kept, side
        gc.collect()
    return costs


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
