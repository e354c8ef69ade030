"""Sleeper: sleep on the event loop to the microsecond, and be woken from any thread."""

import asyncio
from contextlib import suppress

from tarry.timers.kernel_timer import timer_on


class Sleeper:
    """One sleeper on one loop; at most one sleep at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = False
        self._called = False
        self._waiting: asyncio.Future[None] | None = None
        self._timer = timer_on(loop, self._end)

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
