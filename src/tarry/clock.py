"""Clock: the only module that reads the real clock."""

import time
from typing import Protocol

MS_PER_YEAR_9999 = 253_402_300_799_999
"""The last instant tarry can keep: 9999-12-31T23:59:59.999Z."""

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
ELAPSED_ID = int(_ELAPSED)
"""The number of the clock that `SystemClock.elapsed` reads, for native code to read the same."""


class Clock(Protocol):
    """Tells the instant (what the calendar says) and the elapsed time (what a stopwatch says)."""

    def now_us(self) -> int:
        """Return the instant in microseconds UTC."""
        ...

    def now(self) -> int:
        """Return the instant in milliseconds UTC."""
        ...

    def elapsed(self) -> int:
        """Return nanoseconds since some fixed point; never steps back, counts suspended time."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_us(self) -> int:
        """Return the wall clock in microseconds."""
        return time.time_ns() // 1_000

    def now(self) -> int:
        """Return the wall clock in milliseconds."""
        return time.time_ns() // 1_000_000

    def elapsed(self) -> int:
        """Return the boot-time clock, where there is one: it goes on in suspend."""
        return time.clock_gettime_ns(_ELAPSED)


SYSTEM = SystemClock()


def nap(seconds: float) -> None:
    """Block the calling thread for a real moment: only for waits on other processes."""
    time.sleep(seconds)
