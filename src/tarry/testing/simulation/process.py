"""Process: what a simulated process stands on; it stalls and dies on command.

Its threads are greenlets: real blocking code (a client's call, the heartbeat, a plain handler)
runs in one, and gives way to everybody else wherever the real code would block.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

from tarry.clock import Clock as AnyClock
from tarry.runtime import Line, Signal
from tarry.testing.simulation.world import MS, NS, Loop, World

P = ParamSpec("P")
R = TypeVar("R")
_HOP_NS = 60_000
"""What it takes, at most, to hand something to another thread."""


class Gone(BaseException):
    """The process is dead; nothing it still does can be seen."""


class Clock:
    """A clock of the simulated world: the true time, off by what nobody knows."""

    def __init__(self, world: World, *, wall: int = 0, boot: int = 0) -> None:
        self._world = world
        self.wall = wall
        """How many milliseconds this clock is ahead of true time."""
        self._boot = boot

    def now_us(self) -> int:
        """Return the instant this clock shows, in microseconds."""
        return self._world.now // 1_000 + self.wall * 1_000

    def now(self) -> int:
        """Return the instant this clock shows, in milliseconds."""
        return self._world.now // MS + self.wall

    def elapsed(self) -> int:
        """Return the stopwatch: steps of the clock do not touch it."""
        return self._world.now + self._boot


class Waiter:
    """A greenlet that blocks until it is woken, once."""

    __slots__ = ("_me", "_process", "answer", "over")

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._me = getcurrent()
        self.over = False
        self.answer: object = None

    def wake(self, answer: object = None) -> None:
        """Let the greenlet go on, with *answer*."""
        if not self.over:
            self.over = True
            self.answer = answer
            self._process.loop.call_soon(self._me.switch)

    def block(self) -> object:
        """Give way until somebody wakes this waiter."""
        self._process.hub.switch()
        if self._process.loop.dead:
            raise Gone
        return self.answer


class Process:
    """One process: a loop, threads, clocks and dice of its own. Is a `tarry.runtime.Runtime`."""

    def __init__(
        self, world: World, seat: str, label: str, clock: Clock, dice: random.Random
    ) -> None:
        self.world = world
        self.seat = seat
        """Its place in the plan; who takes it after a death has another label."""
        self.label = label
        self.clock: AnyClock = clock
        self.random = dice
        self.loop = Loop(world, self)  # type: ignore[abstract]
        self.hub = getcurrent()
        self.threads: set[greenlet] = set()
        self._names = 0
        self.troubled = 0
        """How many of its calls are held up or lost, and not given up yet."""

    @property
    def dead(self) -> bool:
        """Whether the process was killed."""
        return self.loop.dead

    # ---- what the runtime offers

    async def run_blocking(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run *fn* on a thread."""
        future: asyncio.Future[R] = self.loop.create_future()

        def body() -> None:
            try:
                result = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the caller's to deal with
                self.loop.call_soon(_fail, future, error)
            else:
                self.loop.call_soon(_finish, future, result)

        self._start(body)
        return await future

    def spawn(self, fn: Callable[[], object], name: str) -> Callable[[], None]:
        """Run *fn* on a thread."""
        del name
        ended = SimSignal(self)

        def body() -> None:
            fn()
            ended.set()

        self._start(body)

        def join() -> None:
            ended.wait()

        return join

    def _start(self, body: Callable[[], None]) -> None:
        hop = int(self.random.random() * _HOP_NS)
        self.loop.call_at_ns(self.world.now + hop, self._enter, body)

    def _enter(self, body: Callable[[], None]) -> None:
        """Run *body* on a thread until it blocks for the first time."""
        thread = _IDLE.pop() if _IDLE else greenlet(_work, self.hub)
        self.threads.add(thread)
        thread.switch((self, body))

    def signal(self) -> Signal:
        """Return a signal."""
        return SimSignal(self)

    def line(self) -> Line:
        """Return a line."""
        return SimLine(self)

    def lock(self) -> AbstractContextManager[object]:
        """Return nothing much: what never blocks is never interrupted here."""
        return nullcontext()

    def nap(self, seconds: float) -> None:
        """Block this thread for a while."""
        self.block(seconds)

    def unique(self, bits: int) -> int:
        """Draw from the dice."""
        return self.random.getrandbits(bits)

    def name(self) -> str:
        """Return a name that no other process has."""
        self._names += 1
        return f"{self.label}:{self._names}"

    # ---- blocking and dying

    def waiter(self, seconds: float | None = None) -> Waiter:
        """Return a waiter for the calling thread, woken after *seconds* at the latest."""
        if self.loop.dead:
            raise Gone
        waiter = Waiter(self)
        if seconds is not None:
            self.loop.call_at_ns(self.world.now + round(seconds * NS), waiter.wake)
        return waiter

    def block(self, seconds: float) -> None:
        """Block the calling thread."""
        self.waiter(seconds).block()

    def stall(self, until: int) -> None:
        """Let nothing of this process run before *until*."""
        self.loop.stalled = max(self.loop.stalled, until)

    def kill(self) -> None:
        """End the process at this instant; what it is in the middle of stays undone."""
        self.loop.dead = True
        self.world.call_at(self.world.now, self.bury)

    def bury(self) -> None:
        """Unwind what a dead process left behind: nobody sees what it does on the way."""
        self.loop.dead = True
        for thread in list(self.threads):
            while thread in self.threads:
                thread.throw(Gone)
        for task in self.loop.tasks:
            if not task.done():
                _unwind(task)
        self.loop.tasks.clear()


class SimSignal:
    """A signal between the threads of one process."""

    __slots__ = ("_process", "_raised", "_waiters")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._raised = False
        self._waiters: list[Waiter] = []

    def set(self) -> None:
        """Raise it."""
        self._raised = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is raised."""
        if not self._raised:
            waiter = self._process.waiter(timeout)
            self._waiters.append(waiter)
            waiter.block()
        return self._raised


class SimLine:
    """A line between the threads of one process."""

    __slots__ = ("_items", "_process", "_waiters")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: list[bool] = []
        self._waiters: list[Waiter] = []

    def put(self, item: bool, /) -> None:  # noqa: FBT001 - see Line
        """Hand *item* over."""
        self._items.append(item)
        if self._waiters:
            self._waiters.pop(0).wake()

    def get(self) -> bool:
        """Block until there is something."""
        while not self._items:
            waiter = self._process.waiter()
            self._waiters.append(waiter)
            waiter.block()
        return self._items.pop(0)


_IDLE: list[greenlet] = []
"""Threads that have done their work: to make a new one costs more than most of what they do."""


def _work(job: tuple[Process, Callable[[], None]]) -> None:
    """Be a thread: do one job after the other."""
    me = getcurrent()
    while True:
        process, body = job
        try:
            body()
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - a thread that fails is a finding
            process.loop.errors.append(error)
        process.threads.discard(me)
        _IDLE.append(me)
        job = process.hub.switch()


def _finish(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _unwind(task: "asyncio.Task[Any]") -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is dead
    coro = task.get_coro()
    assert coro is not None
    while True:
        try:
            coro.close()
        except RuntimeError:
            # It waited for something on the way out: what it waits for never comes.
            continue
        return
