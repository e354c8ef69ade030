"""AsyncTimers: timers on the running event loop, which has one handle for all of them."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tarry.clock import SYSTEM, Clock
from tarry.due import Duration
from tarry.timers.callbacks import BATCH, Call, CallbackTimers
from tarry.timers.kernel_timer import timer_on
from tarry.timers.native import Callback
from tarry.timers.timers import LAST, OnError


class AsyncTimers(CallbackTimers):
    """Timers of a program with an event loop; made on the running loop, armed from any thread.

        async with AsyncTimers() as timers:
            timers.after("5s", print, "no answer")
            async with timers.timeout("1s"):
                await answer()

    Calls are made on the loop, one after the other. A coroutine function becomes a task of its own.
    """

    def __init__(self, *, on_error: OnError | None = None, clock: Clock = SYSTEM) -> None:
        super().__init__(clock=clock, on_error=on_error)
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer = timer_on(self._loop, self._turn)
        self._wakes_at = LAST + 1

    def timeout(self, delay: Duration) -> "Timeout":
        """Return a context that ends what is in it after *delay*, with a `TimeoutError`."""
        return Timeout(self, delay)

    async def sleep(self, delay: Duration) -> None:
        """Return after *delay*, to the microsecond where the system allows it."""
        done: asyncio.Future[None] = self._loop.create_future()
        timer = self.after(delay, _finish, done)
        try:
            await done
        finally:
            timer.disarm()

    def close(self) -> list[Call]:
        """Disarm everything; returns what was still armed, earliest first."""
        if not self._stopped:
            self._timer.close()
        return self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _arm_in(self, ns: int, fn: Callable[..., object], args: tuple[Any, ...]) -> Callback:
        if inspect.iscoroutinefunction(fn):
            return super()._arm_in(ns, self._spawn, (fn, *args))
        return super()._arm_in(ns, fn, args)

    def _spawn(self, fn: Callable[..., Any], *args: Any) -> None:
        task = self._loop.create_task(fn(*args))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_error(task.get_coro(), error)

    def _wake(self) -> None:
        if threading.get_ident() == self._home:
            self._sleep()
        else:
            # A loop that has ended needs no wake-up.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._sleep)

    def _turn(self) -> None:
        """Make the calls that are due, and sleep until the next."""
        self._wakes_at = -LAST
        try:
            self.run_due(BATCH)
        finally:
            self._sleep()

    def _sleep(self) -> None:
        while not self._stopped:
            due = self._wheel.next_due
            self._wakes_at = LAST + 1 if due is None else due
            if due is not None:
                # What is due already has its turn after the loop has had its own.
                self._timer.start(max(due - self._clock.elapsed(), 1))
            # Who armed before it was said until when we sleep has not woken us: look once more.
            if self._wheel.next_due == due:
                return


class Timeout:
    """A context that may last only so long; made by `AsyncTimers.timeout`."""

    __slots__ = ("_before", "_delay", "_task", "_timer", "_timers", "expired")

    def __init__(self, timers: AsyncTimers, delay: Duration) -> None:
        self._timers = timers
        self._delay = delay
        self._task: asyncio.Task[Any] | None = None
        self._timer: Callback | None = None
        self._before = 0
        self.expired = False
        """Whether the time was over before the context ended."""

    def again(self, delay: Duration) -> bool:
        """Give it *delay* from now instead; false if its time is over, or has not begun."""
        return self._timer is not None and self._timer.again(delay)

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("a time-out is entered once: make another")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time-out is entered in a task")
        self._task = task
        self._before = task.cancelling()
        self._timer = self._timers.after(self._delay, self._expire)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None  # noqa: S101 - it was entered
        assert self._timer is not None  # noqa: S101 - the same
        self._timer.disarm()
        # Somebody else's cancel is not ours to turn into a TimeoutError.
        if (
            self.expired
            and self._task.uncancel() <= self._before
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def _expire(self) -> None:
        assert self._task is not None  # noqa: S101 - it was entered
        self.expired = True
        self._task.cancel()


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
