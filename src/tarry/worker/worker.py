"""Worker: claim due tasks, attempt them, settle what became of them; start, drain, stop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

from tarry.answers import SettleResult
from tarry.attempt import RELEASE, AnyOutcome
from tarry.due import Duration, duration_ms
from tarry.engine.sleeper import Sleeper
from tarry.engine.wakeup import Wakeup
from tarry.errors import StoreError, WorkerError
from tarry.events import (
    Event,
    LeaseLost,
    SlotLost,
    WorkerStarted,
    WorkerStopped,
)
from tarry.handler import Registry
from tarry.outcome import decide
from tarry.outcome.settle import Settler
from tarry.payload import Codec
from tarry.request import Settlement
from tarry.runtime import Runtime, ThreadRuntime
from tarry.stores.store import Claimed, Store
from tarry.worker.claim import Room, place_series, served
from tarry.worker.contact import Contact
from tarry.worker.heartbeat import Heartbeat, Pulse
from tarry.worker.joined import JoinedSettler
from tarry.worker.run import (
    ON_A_THREAD,
    TIMEOUT,
    Attempt,
    Ran,
    Started,
    run_sync,
    start,
    why_stopped,
)
from tarry.worker.slots import Slots
from tarry.worker.threads import Inbox, Threads
from tarry.worker.turns import Turns

_NS_PER_MS = 1_000_000
_STALE_NS = 100 * _NS_PER_MS
_MORE_SECONDS = 0.001
_KIND: Callable[[Attempt], str] = attrgetter("handler.kind")
LOST_SLOTS = 10
"""A worker that lost this many threads to hanging handlers recycles itself."""


class Worker:
    """Runs the handlers of a registry on the tasks of a store, in one event loop.

    *concurrency* attempts run at a time. Async handlers run on the loop, plain ones on threads.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        codec: Codec,
        emit: Callable[[Event], None],
        kinds: Sequence[str] | None = None,
        concurrency: int = 50,
        lease: Duration = "30s",
        grace: Duration = "10s",
        runtime: Runtime | None = None,
    ) -> None:
        self.kinds = served(registry, kinds)
        self._store = store
        self._registry = registry
        self._codec = codec
        self._emit = emit
        self._lease_ms = duration_ms(lease)
        self._grace_ms = duration_ms(grace)
        if concurrency < 1 or self._lease_ms < 1:
            message = "a worker needs a concurrency and a lease above zero"
            raise WorkerError(message)
        self._own_runtime = runtime is None
        self._runtime: Runtime = runtime or ThreadRuntime(threads=3)
        self._clock = self._runtime.clock
        self.holder = self._runtime.name()
        self._contact = Contact(self._clock, emit)
        self._room = Room(registry, self.kinds, concurrency)
        self._heartbeat = Heartbeat(
            store,
            self._lease_ms,
            self._runtime,
            changed=self._changed,
            trouble=self._contact.lost,
        )
        self._settler = Settler(
            store, self._runtime, self._settled, self._gave_up, self._contact.lost
        )
        self._joined = JoinedSettler(store, self._contact)
        self._wakeup = Wakeup()
        self._threads = Threads(concurrency, self._run_on_thread, self._queue(), self._runtime)
        self._slots = Slots(
            self._attempt,
            self._queue(),
            held_up=lambda: self._alone is not None,
            failed=self._failed,
            clock=self._clock,
        )
        self._running: dict[int, Attempt] = {}
        self._calls = 0
        self._unanswered: tuple[Sequence[str], int, int] | None = None
        self._attempts = 0
        self._released = 0
        self._stop = False
        self._stop_now = False
        self._preparing: set[Attempt] = set()
        self._alone: Attempt | None = None
        self._recycle = False
        self._placed = False
        self.ready = self._runtime.signal()
        self._concurrency = concurrency

    def _queue(self) -> Turns[Attempt]:
        return Turns(_KIND, self._runtime.lock())

    # ---- life

    async def run(self) -> None:
        """Work until `stop`; then finish or release what was begun."""
        self._loop = asyncio.get_running_loop()
        self._sleeper = Sleeper(self._loop)
        self._inbox = Inbox(lambda: self._soon(self._inbox.drain))
        self._finished = asyncio.Event()
        self._claimed = asyncio.Event()
        unwatch = self._store.watch(self._news)
        pulse = Pulse(self._heartbeat, self._lease_ms, self._runtime)
        join = self._runtime.spawn(pulse.run, "tarry-heartbeat")
        self._slots.open(self._concurrency)
        try:
            await self._place_series()
            self._emit(WorkerStarted(holder=self.holder, kinds=self.kinds))
            self.ready.set()
            await self._claim_until_stopped()
            await self._drain()
        finally:
            self._stop = self._stop_now = True
            unwatch()
            pulse.stop()
            await self._slots.close()
            self._threads.close()
            self._sleeper.close()
            await self._runtime.run_blocking(join)
            if self._own_runtime and isinstance(self._runtime, ThreadRuntime):
                self._runtime.close()
            self._emit(
                WorkerStopped(holder=self.holder, attempts=self._attempts, released=self._released)
            )
        if self._recycle:
            message = (
                f"{self._threads.abandoned} handlers outlived their time-out on threads that "
                "cannot be stopped; the worker must be started anew"
            )
            raise WorkerError(message)

    def stop(self) -> None:
        """Stop claiming; finish or release within the grace. A second call stops at once."""
        self._stop_now = self._stop
        self._stop = True
        if hasattr(self, "_sleeper"):
            self._sleeper.wake()
            self._finished.set()

    def stop_threadsafe(self) -> None:
        """Do `stop` from another thread."""
        self._soon(self.stop)

    def _soon(self, fn: Callable[[], None]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(fn)

    async def _drain(self) -> None:
        """Release what has not started, wait for the rest, then take it back."""
        self._release_queued()
        deadline = self._clock.elapsed() + self._grace_ms * _NS_PER_MS
        while (self._running or self._preparing) and not self._stop_now:
            left = (deadline - self._clock.elapsed()) / 1e9
            if left <= 0:
                break
            self._finished.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), left)
        for attempt in list(self._running.values()):
            attempt.ended_early = True
            self._released += 1
            self._end(attempt, RELEASE, 0.0, None)
            if isinstance(attempt.runner, asyncio.Task):
                attempt.runner.cancel()
        if self._stop_now:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settler.drain(), 1)
        else:
            await self._settler.drain()

    # ---- claiming

    async def _claim_until_stopped(self) -> None:
        while not self._stop:
            if not self._placed:
                await self._place_series()
            pauses = []
            self._claimed.clear()
            heard = self._unanswered is None or await self._claim(*self._unanswered)
            asks = self._room.asks(self._clock.elapsed()) if heard and not self._alone else []
            for kinds, limit in asks:
                claimed = None if self._alone else await self._claim(kinds, limit)
                if claimed is None:
                    break
                pause = self._wakeup.after(claimed, full=len(claimed.leases) >= limit)
                pauses.append(pause - self._contact.age_ns(claimed))
            self._claimed.set()
            if self._stop:
                return
            await self._sleeper.sleep(min(pauses) if pauses else self._contact.pause_ns())

    async def _claim(
        self, kinds: Sequence[str], limit: int, asked: int | None = None
    ) -> Claimed | None:
        """Ask for leases; a claim that got no answer is repeated before there is another one.

        What it took may be on its way: under its number the store gives the same leases again.
        Their time counts from when they were *asked* for first.
        """
        self._wakeup.awake()
        sent = self._clock.elapsed()
        if asked is None:
            self._calls += 1
            asked = sent
        try:
            claimed = await self._runtime.run_blocking(
                self._store.claim,
                kinds,
                limit=limit,
                lease_ms=self._lease_ms,
                holder=self.holder,
                call=self._calls,
            )
        except StoreError as error:
            if self._store.capabilities.remembers_calls:
                self._unanswered = kinds, limit, asked
            self._contact.lost(error)
            return None
        self._unanswered = None
        self._contact.answered(claimed, sent)
        if claimed.leases:
            self._take(claimed, asked, asked + claimed.waited if asked == sent else asked)
        return claimed

    def _take(self, claimed: Claimed, asked: int, given: int) -> None:
        """Queue what was claimed: for the slots of the loop, or for the threads.

        The leases were *asked* for at one instant, and *given* not before another.
        """
        for_slots = []
        for_threads = []
        for lease in claimed.leases:
            handler = self._registry.find(lease.ref.kind)
            assert handler is not None  # noqa: S101 - only kinds with a handler are claimed
            attempt = Attempt(lease, handler, asked, given, self._joined)
            self._room.took(handler)
            if handler.is_async or decide.runs_alone(lease.task):
                for_slots.append(attempt)
            else:
                for_threads.append(attempt)
        self._heartbeat.hold(for_slots + for_threads)
        if for_threads:
            self._threads.put(for_threads)
            self._loop.call_later(_MORE_SECONDS, self._call_threads)
        if for_slots:
            self._slots.queue.put(for_slots)
            self._slots.wake()
        self._loop.call_later(_STALE_NS / 1e9, self._release_stale)

    def _call_threads(self) -> None:
        if self._threads.call_more():
            self._loop.call_later(_MORE_SECONDS, self._call_threads)

    def _release_stale(self) -> None:
        """Give back what has not started for too long: others may have room."""
        old = self._clock.elapsed() - _STALE_NS
        for queue in (self._slots.queue, self._threads.queue):
            for attempt in queue.drop(lambda waiting: waiting.claimed <= old):
                self._give_back(attempt)

    def _release_queued(self) -> None:
        for queue in (self._slots.queue, self._threads.queue):
            for attempt in queue.drop(lambda _: True):
                self._give_back(attempt)

    def _give_back(self, attempt: Attempt) -> None:
        self._released += 1
        self._end_alone(attempt)
        self._free(attempt, ran=False)
        self._settler.add(attempt.settlement(RELEASE, self._contact.now()))

    async def _place_series(self) -> None:
        """Place the recurring tasks that belong to the code; again later if the store is away."""
        try:
            await self._runtime.run_blocking(
                place_series, self._store, self._registry, self.kinds, self._codec
            )
        except StoreError as error:
            self._contact.lost(error)
        else:
            self._placed = True

    # ---- slots on the loop

    def _attempt(self, attempt: Attempt) -> Coroutine[Any, Any, None] | None:
        """Attempt one task; the answer, if there is one, is what is left to wait for."""
        now = self._clock.elapsed()
        if self._heartbeat.needs_confirm(attempt, now) or decide.runs_alone(attempt.lease.task):
            return self._attempt_later(attempt)
        return self._attempt_now(attempt, now)

    def _attempt_now(self, attempt: Attempt, now: int) -> Coroutine[Any, Any, None] | None:
        """Take one lease through the start gate, and begin its handler."""
        if not attempt.handler.is_async:
            self._threads.put([attempt])
            return None
        refused = self._gate(attempt, now)
        if refused is not None:
            self._refuse(attempt, refused)
            return None
        begun = start(attempt, self._codec, self._emit)
        if not isinstance(begun, Ran):
            return self._wait_for(attempt, begun)
        self._ran(attempt, begun)
        return None

    async def _attempt_later(self, attempt: Attempt) -> None:
        """Attempt a task that needs something done first."""
        if not await self._prepare(attempt):
            self._give_back(attempt)
            return
        going_on = self._attempt_now(attempt, self._clock.elapsed())
        if going_on is not None:
            await going_on

    async def _wait_for(self, attempt: Attempt, begun: Started) -> None:
        self._ran(attempt, await self._finish(attempt, begun))

    async def _prepare(self, attempt: Attempt) -> bool:
        """Do what takes a moment before an attempt may begin; says whether it still may."""
        self._preparing.add(attempt)
        try:
            if self._alone is None and decide.runs_alone(attempt.lease.task):
                await self._be_alone(attempt)
            if self._heartbeat.needs_confirm(attempt, self._clock.elapsed()):
                await self._runtime.run_blocking(self._heartbeat.confirm, self._clock.elapsed)
        finally:
            self._preparing.discard(attempt)
            if self._stop:
                self._finished.set()
        return not self._stop and self._alone in (None, attempt)

    async def _be_alone(self, attempt: Attempt) -> None:
        """Let go of all that has not begun: it must not die with a task that kills its worker.

        Nothing is claimed until the attempt has ended.
        """
        self._alone = attempt
        await self._claimed.wait()
        self._release_queued()
        await self._settler.drain()

    def _end_alone(self, attempt: Attempt) -> None:
        if self._alone is attempt:
            self._alone = None
            self._slots.wake()
            self._sleeper.wake()

    async def _finish(self, attempt: Attempt, begun: Started) -> Ran:
        """Wait for a handler that waits, no longer than its time-out."""
        self._running[attempt.lease.token] = attempt
        attempt.runner = slot = asyncio.current_task()
        assert slot is not None  # noqa: S101 - a coroutine runs on a task
        timer = None
        if attempt.handler.timeout_ms is not None:
            timer = self._loop.call_later(attempt.handler.timeout_ms / 1_000, slot.cancel, TIMEOUT)
        try:
            ran = await begun.finish()
        except asyncio.CancelledError as error:
            if attempt.ended_early or self._stop_now:
                # Given back by the stop: the slot ends with it.
                raise
            ran = Ran(error=why_stopped(attempt, error))
        finally:
            if timer is not None:
                timer.cancel()
        if attempt.ended_early or self._stop_now:
            # As above, though the handler did not mind being cancelled.
            raise asyncio.CancelledError
        while slot.cancelling():
            # Also what the handler swallowed: it must not follow the next one on this slot.
            slot.uncancel()
        return ran

    # ---- slots on threads

    def _run_on_thread(self, attempt: Attempt) -> None:
        """Take one lease through the start gate, and run its handler; on a thread."""
        now = self._clock.elapsed()
        if self._heartbeat.needs_confirm(attempt, now):
            self._heartbeat.confirm(self._clock.elapsed)
            now = self._clock.elapsed()
        if self._alone not in (None, attempt):
            self._inbox.put(lambda: self._give_back(attempt))
            return
        refused = self._gate(attempt, now)
        if refused is not None:
            self._inbox.put(lambda: self._refuse(attempt, refused))
            return
        attempt.runner = ON_A_THREAD
        self._running[attempt.lease.token] = attempt
        if attempt.handler.timeout_ms is not None:
            limit = attempt.handler.timeout_ms / 1_000
            self._inbox.put(lambda: self._limit(attempt, limit))
        ran = run_sync(attempt, self._codec, self._emit)
        self._inbox.put(lambda: self._thread_ended(attempt, ran))

    def _thread_ended(self, attempt: Attempt, ran: Ran) -> None:
        if not attempt.ended_early:
            self._ran(attempt, ran)

    def _limit(self, attempt: Attempt, seconds: float) -> None:
        self._loop.call_later(seconds, self._abandon, attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Give up on a plain handler that outlived its time-out: its thread cannot be stopped."""
        if self._running.get(attempt.lease.token) is not attempt:
            return
        if not self._threads.abandon(attempt):
            # It has just ended: its result is on its way.
            return
        attempt.ended_early = True
        self._emit(SlotLost(ref=attempt.lease.ref, lost=self._threads.abandoned))
        self._ran(attempt, Ran(error=why_stopped(attempt, asyncio.CancelledError(TIMEOUT))))
        if self._threads.abandoned >= LOST_SLOTS and not self._stop:
            self._recycle = True
            self.stop()

    # ---- the start gate

    def _gate(self, attempt: Attempt, now: int) -> AnyOutcome | None:
        """Return what becomes of an attempt that must not start, None if it may.

        Directly before a handler starts its lease must have time left, by the worker's own clock
        and from the instant the claim was sent; without, it is lost. One that is too old to start
        from and that the store did not confirm is given back.
        """
        if not self._heartbeat.alive(attempt, now):
            attempt.lost = True
            return RELEASE
        if attempt.cancelled or self._stop_now or self._heartbeat.needs_confirm(attempt, now):
            return RELEASE
        lateness_ms = (self._contact.now_us(now) - attempt.lease.task.due * 1_000) / 1_000
        dead = attempt.refuse(lateness_ms)
        if dead is None:
            attempt.started = True
            attempt.began = now
        return dead

    def _refuse(self, attempt: Attempt, outcome: AnyOutcome) -> None:
        self._end(attempt, outcome, 0.0, None)

    # ---- outcomes

    def _ran(self, attempt: Attempt, ran: Ran) -> None:
        now = self._clock.elapsed()
        store_now = self._contact.now_us(now) // 1_000
        outcome = attempt.outcome(ran, store_now, self._runtime.random.random())
        self._end(attempt, outcome, (now - attempt.began) / _NS_PER_MS, ran.error)

    def _end(
        self, attempt: Attempt, outcome: AnyOutcome, run_ms: float, error: BaseException | None
    ) -> None:
        """Hand an outcome to the settler and free the slot."""
        full = self._room.is_full(attempt.handler)
        if attempt.runner is not None:
            self._running.pop(attempt.lease.token, None)
        if self._alone is not None:
            self._end_alone(attempt)
        self._free(attempt, ran=True)
        if full:
            self._sleeper.wake()
        if self._stop:
            self._finished.set()
        if attempt.lost:
            self._heartbeat.drop(attempt.lease.token)
            self._emit(LeaseLost(ref=attempt.lease.ref, token=attempt.lease.token))
            return
        self._attempts += 1
        self._settler.add(attempt.settlement(outcome, self._contact.now()))
        self._emit(attempt.ended(outcome, run_ms, error))

    def _free(self, attempt: Attempt, *, ran: bool) -> None:
        attempt.freed = True
        self._room.freed(attempt.handler, ran=ran)

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        """Let go of an attempt that the worker itself cannot deal with; its lease runs out."""
        self._heartbeat.drop(attempt.lease.token)
        self._running.pop(attempt.lease.token, None)
        self._end_alone(attempt)
        if not attempt.freed:
            self._free(attempt, ran=False)
        self._emit(LeaseLost(ref=attempt.lease.ref, token=attempt.lease.token))
        message = f"an attempt at {attempt.lease.ref} failed outside of its handler"
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _settled(self, settlement: Settlement, answer: SettleResult) -> None:
        # Not before: a lease that runs out while its outcome waits for the store is run again.
        attempt = self._heartbeat.drop(settlement.lease.token)
        if answer is SettleResult.LEASE_LOST:
            if attempt is not None and attempt.joined is not None:
                # Its handler's own commit has ended it; whatever that left may be due.
                self._sleeper.wake()
                return
            lease = settlement.lease
            self._emit(LeaseLost(ref=lease.ref, token=lease.token))

    def _gave_up(self, settlement: Settlement) -> None:
        """Let a lease run out whose outcome cannot be recorded."""
        lease = settlement.lease
        self._heartbeat.drop(lease.token)
        self._emit(LeaseLost(ref=lease.ref, token=lease.token))

    def _changed(self, attempt: Attempt) -> None:
        """Hear that an attempt was cancelled or its lease lost; on the heartbeat's thread."""
        if attempt.lost:
            self._inbox.put(lambda: self._give_up(attempt))

    def _give_up(self, attempt: Attempt) -> None:
        """Stop an async handler whose lease is gone: somebody else may run it already."""
        runner = attempt.runner
        if attempt.lease.token in self._running and isinstance(runner, asyncio.Task):
            runner.cancel()

    # ---- the store and its clock

    def _news(self, due: int) -> None:
        if self._wakeup.matters(due):
            self._wakeup.news()
            self._sleeper.wake_threadsafe()

    @property
    def store_answers(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self._contact.is_there and not self._stop
