"""World: virtual time, and the event loops of all simulated processes on it."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any

NS = 1_000_000_000
MS = 1_000_000
_MOST_AT_ONCE = 20_000


class Spinning(Exception):  # noqa: N818 - a finding, not an error of the caller
    """Something goes on and on without letting time pass."""


class Handle:
    """A callback that waits for its turn."""

    __slots__ = ("_when", "args", "callback", "context", "loop")

    def __init__(
        self,
        loop: "Loop",
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when: int = 0,
    ) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self._when = when

    def cancel(self) -> None:
        """Never call it."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Say whether it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """Return when it is called, in seconds of the loop."""
        return self._when / NS


class World:
    """One thread of execution for everything, moved from event to event; never waits.

    What is ready at one instant runs in the order in which it became ready, as on a real loop;
    chance lies in how long things take, which others draw from seeded dice.
    """

    def __init__(self) -> None:
        self.now = 0
        """Nanoseconds since the world began: true time, which no simulated clock shows."""
        self.steps = 0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[int, int, Handle]] = []
        self._number = 0
        self._nature = Loop(self)  # type: ignore[abstract]

    def soon(self, handle: Handle) -> None:
        """Have *handle* called at this instant, after what is ready."""
        self._ready.append(handle)

    def at(self, when: int, handle: Handle) -> None:
        """Have *handle* called at *when*."""
        self._number += 1
        heappush(self._timers, (when, self._number, handle))

    def call_at(self, when: int, callback: Callable[..., object], *args: object) -> Handle:
        """Have something happen that belongs to no process."""
        return self._nature.call_at_ns(when, callback, *args)

    def run(  # noqa: C901, PLR0912 - the hot loop, in one piece
        self, until: int, done: Callable[[], bool] | None = None
    ) -> bool:
        """Let time pass to *until*, or to when *done*; says whether it was done."""
        ready, timers = self._ready, self._timers
        running: Loop | None = None
        at_once = 0
        try:
            while True:
                if ready:
                    handle = ready.popleft()
                    at_once += 1
                    if at_once > _MOST_AT_ONCE:
                        raise Spinning
                else:
                    if done is not None and done():
                        return True
                    if not timers or timers[0][0] > until:
                        self.now = max(self.now, until)
                        return False
                    when, _, handle = heappop(timers)
                    if handle.callback is None:
                        continue
                    if when > self.now:
                        self.now = when
                        at_once = 0
                callback, loop = handle.callback, handle.loop
                if callback is None or loop.dead:
                    continue
                if loop.stalled > self.now:
                    self.at(loop.stalled, handle)
                    continue
                if loop is not running:
                    running = loop
                    asyncio._set_running_loop(loop)  # noqa: SLF001 - what a loop is there for
                self.steps += 1
                if handle.context is None:
                    callback(*handle.args)
                else:
                    handle.context.run(callback, *handle.args)
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - as above


class Loop(asyncio.AbstractEventLoop):
    """The event loop of one process: as much of asyncio's as tarry stands on."""

    def __init__(self, world: World, process: object = None) -> None:
        self._world = world
        self.process = process
        """Whose loop it is; None: nature's."""
        self.stalled = 0
        """Nothing of this loop runs before this instant."""
        self.dead = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[BaseException] = []

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call at this instant, after what is ready."""
        handle = Handle(self, callback, args, context)
        if not self.dead:
            self._world.soon(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Call after *delay* seconds."""
        when = self._world.now + max(0, round(delay * NS))
        return self.call_at_ns(when, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Call at *when*, in seconds of the loop."""
        return self.call_at_ns(round(when * NS), callback, *args, context=context)

    def call_at_ns(
        self, when: int, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call at *when*, in nanoseconds of the world."""
        handle = Handle(self, callback, args, context, when)
        if not self.dead:
            self._world.at(when, handle)
        return handle

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return self._world.now / NS

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Run *coro* on this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def add_reader(self, *_: object) -> None:
        """Refuse: there are no descriptors here."""
        raise NotImplementedError

    def get_debug(self) -> bool:
        """Say no."""
        return False

    def is_running(self) -> bool:
        """Say yes."""
        return True

    def is_closed(self) -> bool:
        """Say no."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong, for the judge."""
        error = context.get("exception")
        if error is not None and not self.dead:
            self.errors.append(error)
