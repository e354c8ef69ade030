"""virtual: put an app on a memory store and a clock that a test moves."""

import asyncio
import random
from types import TracebackType
from typing import Any, Self

from tarry.api.function import TaskFunction
from tarry.app import Tarry
from tarry.attempt import RELEASE, AnyOutcome
from tarry.due import At, Duration, When, duration_ms, format_duration, format_instant, parse_when
from tarry.lease import Lease
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Filter
from tarry.task import Task, TaskState
from tarry.testing.clock import ManualClock
from tarry.worker.claim import place_series
from tarry.worker.run import Attempt, Ran, run_async, run_sync

_LEASE_MS = 3_600_000


class Virtual:
    """Virtual time for an app: `advance` runs what becomes due, on this very thread."""

    def __init__(self, app: Tarry, *, now: int | None = None, seed: int = 0) -> None:
        self.app = app
        self.clock = ManualClock() if now is None else ManualClock(now)
        self.store = MemoryStore(
            namespace=app.namespace,
            clock=self.clock,
            rng=random.Random(seed),  # noqa: S311 - the same run every time
        )
        self._random = random.Random(seed)  # noqa: S311 - as above
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- entering and leaving

    def __enter__(self) -> Self:
        self._before = self.app.swap(self.store, self.clock)
        if any(handler.rule for handler in self.app.registry):
            place_series(self.store, self.app.registry, self.app.registry.kinds(), self.app.codec)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.app.swap(*self._before)
        if self._loop is not None:
            self._loop.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    # ---- time

    def now(self) -> int:
        """Return the virtual instant, in milliseconds UTC."""
        return self.clock.now()

    def advance(self, by: Duration) -> int:
        """Let time pass; runs what becomes due, each at its own due. Returns how many ran."""
        self._check_loop()
        if all(handler.is_async for handler in self.app.registry):
            # One visit to the loop for all of them: a visit each would cost more than they do.
            return self._own_loop().run_until_complete(self.aadvance(by))
        target = self.clock.now() + duration_ms(by)
        ran = 0
        while (leases := self._next(target)) is not None:
            attempts = self._may_start(leases)
            self._settle([(attempt, self._run(attempt)) for attempt in attempts])
            ran += len(attempts)
        return ran

    async def aadvance(self, by: Duration) -> int:
        """Let time pass, inside a running event loop."""
        target = self.clock.now() + duration_ms(by)
        ran = 0
        while (leases := self._next(target)) is not None:
            attempts = self._may_start(leases)
            self._settle([(attempt, await self._arun(attempt)) for attempt in attempts])
            ran += len(attempts)
        return ran

    def _check_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if any(handler.is_async for handler in self.app.registry):
            message = "an event loop is running, and async handlers need it: `await t.aadvance(…)`"
            raise RuntimeError(message)

    def _next(self, target: int) -> list[Lease] | None:
        """Move to the next due, at most to *target*, and claim it; None: the target is reached."""
        kinds = self.app.registry.kinds()
        while True:
            due, now = self.store.next_due(kinds), self.clock.now()
            if due is None or due > target:
                self.clock.advance(target - now)
                return None
            if due > now:
                self.clock.advance(due - now)
            claimed = self.store.claim(kinds, limit=500, lease_ms=_LEASE_MS, holder="virtual")
            if claimed.leases:
                return claimed.leases

    def _may_start(self, leases: list[Lease]) -> list[Attempt]:
        """Return attempts for *leases*; what is dead or cancelled already is settled here."""
        attempts, refused = [], []
        for lease in leases:
            handler = self.app.registry.find(lease.ref.kind)
            assert handler is not None
            attempt = Attempt(lease, handler)
            outcome: AnyOutcome | None = RELEASE if lease.cancelled else None
            outcome = outcome or attempt.refuse(float(self.now() - lease.task.due))
            if outcome is None:
                attempts.append(attempt)
            else:
                refused.append(attempt.settlement(outcome, self.now()))
                self.app.emit(attempt.ended(outcome, 0.0, None))
        if refused:
            self.store.settle(refused)
        return attempts

    def _run(self, attempt: Attempt) -> Ran:
        if not attempt.handler.is_async:
            return run_sync(attempt, self.app.codec, self.app.emit)
        attempted = run_async(attempt, self.app.codec, self.app.emit)
        return self._own_loop().run_until_complete(attempted)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    async def _arun(self, attempt: Attempt) -> Ran:
        codec, emit = self.app.codec, self.app.emit
        if attempt.handler.is_async:
            return await run_async(attempt, codec, emit)
        return run_sync(attempt, codec, emit)

    def _settle(self, finished: list[tuple[Attempt, Ran]]) -> None:
        settlements = []
        for attempt, ran in finished:
            if isinstance(ran.error, KeyboardInterrupt):
                # On this thread it is the person at the terminal who wants to stop.
                raise ran.error
            outcome = attempt.outcome(ran, self.now(), self._random.random())
            settlements.append(attempt.settlement(outcome, self.now()))
            self.app.emit(attempt.ended(outcome, 0.0, ran.error))
        self.store.settle(settlements)

    # ---- asserts

    def pending(self) -> list[Task]:
        """Return everything that waits, by due."""
        tasks: list[Task] = []
        cursor = None
        while True:
            page = self.store.scan(Filter(), cursor=cursor, limit=500)
            tasks += page.tasks
            if page.cursor is None:
                return sorted(tasks, key=lambda task: task.due)
            cursor = page.cursor

    def assert_scheduled(
        self,
        task: "TaskFunction[Any, Any, Any, Any]",
        /,
        *args: object,
        due: When | None = None,
        **kwargs: object,
    ) -> Task:
        """Fail unless the task waits (with *due*: at that time); returns it."""
        __tracebackhide__ = True
        ref = task.ref(*args, **kwargs)
        found = self.store.get([ref])[0]
        if found is None or found.ended:
            raise AssertionError(f"{ref} does not wait; what waits: {self._waiting()}")
        if due is not None:
            wanted = parse_when(due, self.now())
            instant = wanted.instant if isinstance(wanted, At) else self.now() + wanted.delay_ms
            if found.due != instant:
                message = (
                    f"{ref} waits for {format_instant(found.due)} "
                    f"(in {format_duration(max(0, found.due - self.now()))}), "
                    f"not for {format_instant(instant)}"
                )
                raise AssertionError(message)
        return found

    def assert_not_scheduled(
        self, task: "TaskFunction[Any, Any, Any, Any]", /, *args: object, **kwargs: object
    ) -> None:
        """Fail if the task waits."""
        __tracebackhide__ = True
        ref = task.ref(*args, **kwargs)
        found = self.store.get([ref])[0]
        if found is not None and not found.ended:
            raise AssertionError(f"{ref} waits for {format_instant(found.due)}")

    def assert_nothing_pending(self) -> None:
        """Fail if anything waits."""
        __tracebackhide__ = True
        if self.pending():
            raise AssertionError(f"still waiting: {self._waiting()}")

    def dead(self) -> list[Task]:
        """Return the dead letters."""
        return self.store.scan(Filter(state=TaskState.DEAD), limit=10_000).tasks

    def _waiting(self) -> str:
        return ", ".join(str(task.ref) for task in self.pending()[:10]) or "nothing"


def virtual(app: Tarry, *, now: int | None = None, seed: int = 0) -> Virtual:
    """Return virtual time for *app*, for use with `with` or `async with`."""
    return Virtual(app, now=now, seed=seed)
