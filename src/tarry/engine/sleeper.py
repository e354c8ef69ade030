"""Sleeper: sleep on the event loop to the microsecond, and be woken from any thread.

asyncio's own timers round up to the next millisecond; a timerfd, where there is one, does not.
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
_NS = 1_000_000_000


class Sleeper:
    """One sleeper on one loop; at most one sleep at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = False
        self._called = False
        self._waiting: asyncio.Future[None] | None = None
        self._timer = _timer(loop, self._end)

    async def sleep(self, ns: int) -> None:
        """Return after *ns* nanoseconds, or when somebody wakes it; a wake-up is never lost."""
        if self._woken or ns <= 0:
            self._woken = False
            await asyncio.sleep(0)
            return
        self._waiting = self._loop.create_future()
        self._timer.start(ns)
        try:
            await self._waiting
        finally:
            self._waiting = None
            self._timer.stop()
            self._woken = False

    def wake(self) -> None:
        """End the present sleep, or the next one before it begins; to be called on the loop."""
        self._woken = True
        self._end()

    def wake_threadsafe(self) -> None:
        """End the sleep from another thread; does nothing once the loop has ended.

        Many at once are one: the loop's own pipe is short, and a signal is lost on a full one.
        """
        if self._called:
            return
        self._called = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake_called)

    def _wake_called(self) -> None:
        self._called = False
        self.wake()

    def _end(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Give the timer back."""
        self._timer.close()


class _LoopTimer:
    """A timer of the loop itself, rounded up to a millisecond by most of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None

    def start(self, ns: int) -> None:
        self._handle = self._loop.call_later(ns / _NS, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
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


class _Timerfd:
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
        self._set(max(ns, 1))

    def stop(self) -> None:
        self._set(0)

    def _set(self, ns: int) -> None:
        self._spec.value_s, self._spec.value_ns = divmod(ns, _NS)
        self._libc.timerfd_settime(self._fd, 0, ctypes.byref(self._spec), None)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._fire()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _timer(loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> _LoopTimer | _Timerfd:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, NotImplementedError):
            return _Timerfd(loop, fire)
    return _LoopTimer(loop, fire)
