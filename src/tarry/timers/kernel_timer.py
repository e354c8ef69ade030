"""Kernel timers: wake-ups to the microsecond, for an event loop and for a sleeping thread.

asyncio's own timers round up to the next millisecond; a timerfd, where there is one, does not.
Linux lets a thread sleep up to 50 µs longer to wake several at once; a thread can refuse that.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_PR_SET_TIMERSLACK = 29
_NS = 1_000_000_000


class LoopTimer:
    """A timer of the loop itself, rounded up to a millisecond by most of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None

    def start(self, ns: int) -> None:
        """Fire once, *ns* from now, instead of when it was going to."""
        self.stop()
        self._handle = self._loop.call_later(ns / _NS, self._fire)

    def stop(self) -> None:
        """Do not fire."""
        if self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        """Stop for good."""
        self.stop()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Timerfd:
    """A timer the kernel keeps, as a descriptor the loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._libc = _libc()
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._fire = fire
        self._spec = _Timespec()
        try:
            loop.add_reader(self._fd, self._read)
        except BaseException:
            os.close(self._fd)
            raise

    def start(self, ns: int) -> None:
        """Fire once, *ns* from now, instead of when it was going to."""
        self._set(max(ns, 1))

    def stop(self) -> None:
        """Do not fire."""
        self._set(0)

    def _set(self, ns: int) -> None:
        self._spec.value_s, self._spec.value_ns = divmod(ns, _NS)
        self._libc.timerfd_settime(self._fd, 0, ctypes.byref(self._spec), None)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._fire()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def timer_on(loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> LoopTimer | Timerfd:
    """Return the best timer that *loop* allows; it calls *fire*."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, NotImplementedError):
            return Timerfd(loop, fire)
    return LoopTimer(loop, fire)


def wake_sharply() -> None:
    """Let the calling thread's sleeps end when they should, where the system can be asked to."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            _libc().prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
