"""Worker: claim due tasks, attempt them, settle what became of them; start, drain, stop."""

import asyncio
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from tarry.answers import SettleResult
from tarry.attempt import RELEASE, AnyOutcome
from tarry.due import Duration, duration_ms
from tarry.engine.sleeper import Sleeper
from tarry.engine.wakeup import Wakeup
from tarry.errors import HandlerError, StoreError, WorkerError
from tarry.events import (
    Event,
    LeaseLost,
    SlotLost,
    StoreBack,
    StoreLost,
    WorkerStarted,
    WorkerStopped,
)
from tarry.handler import Handler, Registry
from tarry.outcome import decide
from tarry.outcome.settle import Settler
from tarry.payload import Codec
from tarry.request import Settlement
from tarry.runtime import Runtime, ThreadRuntime
from tarry.stores.store import Claimed, Store
from tarry.worker.claim import Room, place_series
from tarry.worker.heartbeat import Heartbeat, Held, Pulse
from tarry.worker.run import Attempt, Ran, run_async, run_sync
from tarry.worker.threads import Inbox, Threads

_NS_PER_MS = 1_000_000
_STALE_NS = 100 * _NS_PER_MS
_TURN = 64
_LONGEST_PAUSE_MS = 2_000
LOST_SLOTS = 10
"""A worker that lost this many threads to hanging handlers recycles itself."""


class Queued:
    """A held lease on its way to a slot."""

    __slots__ = ("attempt", "held", "since")

    def __init__(self, held: Held, attempt: Attempt, since: int) -> None:
        self.held = held
        self.attempt = attempt
        self.since = since


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
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self.kinds = _served(registry, kinds)
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
        self._room = Room(registry, self.kinds, concurrency)
        self._heartbeat = Heartbeat(store, self._lease_ms, self._trouble)
        self._settler = Settler(store, self._runtime, self._settled, self._trouble)
        self._wakeup = Wakeup()
        self._threads = Threads(concurrency, self._runtime.spawn)
        self._queue: deque[Queued] = deque()
        self._running: dict[int, tuple[Queued, asyncio.Task[None] | threading.Thread | None]] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False
        self._offset_us = 0
        self._calls = 0
        self._attempts = 0
        self._released = 0
        self._store_down_since: int | None = None
        self._stop = False
        self._stop_now = False
        self._alone: Queued | None = None
        self._recycle = False
        self.ready = threading.Event()
        self._concurrency = concurrency

    # ---- life

    async def run(self) -> None:
        """Work until `stop`; then finish or release what was begun."""
        loop = self._loop = asyncio.get_running_loop()
        self._sleeper = Sleeper(loop)
        self._inbox = Inbox(lambda: self._soon(self._inbox.drain))
        self._finished = asyncio.Event()
        unwatch = self._store.watch(self._news)
        pulse = Pulse(self._heartbeat, self._lease_ms, self._clock.elapsed)
        join = self._runtime.spawn(pulse.run, "tarry-heartbeat")
        runners = [
            loop.create_task(self._runner(), name="tarry-runner") for _ in range(self._concurrency)
        ]
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
            for runner in runners:
                runner.cancel()
            await asyncio.gather(*runners, return_exceptions=True)
            self._threads.close()
            self._sleeper.close()
            await self._runtime.run_blocking(join)
            if self._own_runtime and isinstance(self._runtime, ThreadRuntime):
                self._runtime.close()
            self._emit(
                WorkerStopped(
                    holder=self.holder, attempts=self._attempts, released=self._released
                )
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
        while self._running and not self._stop_now:
            left = (deadline - self._clock.elapsed()) / 1e9
            if left <= 0:
                break
            self._finished.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), left)
        for queued, runner in list(self._running.values()):
            self._end(queued, RELEASE, 0.0, None)
            self._released += 1
            if isinstance(runner, asyncio.Task):
                runner.cancel()
        if self._stop_now:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settler.drain(), 1)
        else:
            await self._settler.drain()

    # ---- claiming

    async def _claim_until_stopped(self) -> None:
        while not self._stop:
            pauses = []
            for kinds, limit in self._room.asks(len(self._queue), self._clock.elapsed()):
                claimed = await self._claim(kinds, limit)
                if claimed is None:
                    break
                pauses.append(self._wakeup.after(claimed, full=len(claimed.leases) >= limit))
            if self._stop:
                return
            await self._sleeper.sleep(min(pauses) if pauses else self._store_pause())

    async def _claim(self, kinds: Sequence[str], limit: int) -> Claimed | None:
        sent = self._clock.elapsed()
        self._calls += 1
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
            self._trouble(error, self._store_pause() / 1e9)
            return None
        self._store_answers()
        now = self._clock.elapsed()
        self._offset_us = claimed.now * 1_000 + claimed.micros - now // 1_000
        if claimed.leases:
            self._take(claimed, sent)
        return claimed

    def _take(self, claimed: Claimed, sent: int) -> None:
        """Queue what was claimed, and wake a slot for it."""
        for held in self._heartbeat.hold(claimed.leases, sent):
            handler = self._registry.find(held.lease.ref.kind)
            assert handler is not None  # noqa: S101 - only kinds with a handler are claimed
            attempt = Attempt(held.lease, handler, self._codec, self._emit)
            held.on_change = self._changed
            queued = Queued(held, attempt, sent)
            self._room.took(handler)
            self._queue.append(queued)
        self._wake_runner()
        self._loop.call_later(_STALE_NS / 1e9, self._release_stale)

    def _release_stale(self) -> None:
        """Give back what has not started for too long: others may have room."""
        old = self._clock.elapsed() - _STALE_NS
        while self._queue and self._queue[0].since <= old:
            self._give_back(self._queue.popleft())
        if self._queue:
            self._loop.call_later(_STALE_NS / 1e9, self._release_stale)

    def _release_queued(self) -> None:
        while self._queue:
            self._give_back(self._queue.popleft())

    def _give_back(self, queued: Queued) -> None:
        self._released += 1
        self._room.freed(queued.attempt.handler, ran=False)
        self._settler.add(queued.attempt.settlement(RELEASE, self._store_now()))
        self._heartbeat.drop(queued.held)

    async def _place_series(self) -> None:
        """Place the recurring tasks that belong to the code."""
        try:
            await self._runtime.run_blocking(
                place_series, self._store, self._registry, self.kinds, self._codec
            )
        except StoreError as error:
            self._trouble(error, 0)

    # ---- slots

    async def _runner(self) -> None:
        """One slot: attempt what is queued, sleep when nothing is."""
        turns = 0
        while True:
            if not self._queue or self._alone is not None:
                turns = 0
                waiting = self._loop.create_future()
                self._idle.append(waiting)
                await waiting
                self._waking = False
                continue
            queued = self._queue.popleft()
            if self._queue:
                self._wake_runner()
            await self._attempt(queued)
            turns += 1
            if turns % _TURN == 0:
                await asyncio.sleep(0)

    def _wake_runner(self) -> None:
        """Wake one slot; it wakes the next before it starts, so that none wakes for nothing."""
        if self._waking:
            return
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                self._waking = True
                waiting.set_result(None)
                return

    async def _attempt(self, queued: Queued) -> None:
        """Take one queued lease through the start gate, and run its handler."""
        held, attempt = queued.held, queued.attempt
        handler = attempt.handler
        if handler.is_async:
            if self._heartbeat.needs_confirm(held, self._clock.elapsed()):
                await self._confirm()
            if self._refused(queued):
                return
            await self._run_async(queued)
        else:
            done = self._loop.create_future()
            self._threads.submit(lambda: self._run_on_thread(queued, done))
            self._running[held.lease.token] = (queued, None)
            if handler.timeout_ms is not None:
                timer = self._loop.call_later(
                    handler.timeout_ms / 1_000, self._abandon, queued, done
                )
                done.add_done_callback(lambda _: timer.cancel())
            await done

    async def _confirm(self) -> None:
        with suppress(StoreError):
            await self._runtime.run_blocking(self._heartbeat.confirm, self._clock.elapsed)

    def _refused(self, queued: Queued) -> bool:
        """The start gate: say whether the attempt must not begin, and deal with it if so."""
        held, attempt = queued.held, queued.attempt
        now = self._clock.elapsed()
        if not self._heartbeat.alive(held, now) or self._heartbeat.needs_confirm(held, now):
            self._lose(queued)
            return True
        if held.cancelled or self._stop_now:
            self._end(queued, RELEASE, 0.0, None)
            return True
        lateness_ms = (self._store_now_us() - held.lease.task.due * 1_000) / 1_000
        dead = attempt.refuse(lateness_ms)
        if dead is not None:
            self._end(queued, dead, 0.0, None)
            return True
        held.started = True
        return False

    async def _run_async(self, queued: Queued) -> None:
        held, attempt = queued.held, queued.attempt
        if decide.runs_alone(held.lease.task):
            await self._be_alone(queued)
        token = held.lease.token
        task = asyncio.current_task()
        self._running[token] = (queued, task)
        began = self._clock.elapsed()
        timer = None
        if attempt.handler.timeout_ms is not None and task is not None:
            timer = self._loop.call_later(attempt.handler.timeout_ms / 1_000, task.cancel, "timeout")
        try:
            ran = await run_async(attempt)
        except asyncio.CancelledError as error:
            if token not in self._running:
                # Given back by the stop: the slot ends with it.
                raise
            ran = Ran(error=self._why_cancelled(queued, error))
            if task is not None:
                task.uncancel()
        finally:
            if timer is not None:
                timer.cancel()
            if self._alone is queued:
                self._alone = None
                self._wake_runner()
        self._ran(queued, ran, self._clock.elapsed() - began)

    def _why_cancelled(self, queued: Queued, error: BaseException) -> BaseException:
        if "timeout" in error.args:
            limit = queued.attempt.handler.timeout_ms or 0
            return TimeoutError(f"the handler took longer than {limit / 1_000:g} s")
        if queued.held.lost:
            return TimeoutError("the lease was lost")
        return error

    def _run_on_thread(self, queued: Queued, done: "asyncio.Future[None]") -> None:
        """Run a plain handler; on its thread."""
        held = queued.held
        if self._heartbeat.needs_confirm(held, self._clock.elapsed()):
            with suppress(StoreError):
                self._heartbeat.confirm(self._clock.elapsed)
        if self._refused_on_thread(queued):
            self._inbox.put(lambda: self._refused_late(queued, done))
            return
        with suppress(KeyError):
            self._running[held.lease.token] = (queued, threading.current_thread())
        began = self._clock.elapsed()
        ran = run_sync(queued.attempt)
        took = self._clock.elapsed() - began

        def finish() -> None:
            if not done.done():
                done.set_result(None)
                self._ran(queued, ran, took)

        self._inbox.put(finish)

    def _refused_on_thread(self, queued: Queued) -> bool:
        held, now = queued.held, self._clock.elapsed()
        if not self._heartbeat.alive(held, now) or self._heartbeat.needs_confirm(held, now):
            return True
        if held.cancelled or self._stop_now:
            return True
        lateness_ms = (self._store_now_us() - held.lease.task.due * 1_000) / 1_000
        if queued.attempt.refuse(lateness_ms) is not None:
            return True
        held.started = True
        return False

    def _refused_late(self, queued: Queued, done: "asyncio.Future[None]") -> None:
        if not done.done():
            done.set_result(None)
            self._running.pop(queued.held.lease.token, None)
            if not self._refused(queued):  # pragma: no cover - the thread saw a reason
                self._end(queued, RELEASE, 0.0, None)

    def _abandon(self, queued: Queued, done: "asyncio.Future[None]") -> None:
        """Give up on a plain handler that outlived its time-out: its thread cannot be stopped."""
        _, thread = self._running.get(queued.held.lease.token, (queued, None))
        if done.done() or not isinstance(thread, threading.Thread):
            return
        done.set_result(None)
        self._threads.abandon(thread)
        self._emit(SlotLost(ref=queued.held.lease.ref, lost=self._threads.abandoned))
        limit = queued.attempt.handler.timeout_ms or 0
        error = TimeoutError(f"the handler took longer than {limit / 1_000:g} s")
        self._ran(queued, Ran(error=error), limit * _NS_PER_MS)
        if self._threads.abandoned >= LOST_SLOTS and not self._stop:
            self._recycle = True
            self.stop()

    async def _be_alone(self, queued: Queued) -> None:
        """Let a task that may kill its worker run alone: nobody unstarted dies with it."""
        self._alone = queued
        self._release_queued()
        await self._settler.drain()

    # ---- outcomes

    def _ran(self, queued: Queued, ran: Ran, took_ns: int) -> None:
        chance = self._runtime.random.random()
        outcome = queued.attempt.outcome(ran, self._store_now(), chance)
        self._end(queued, outcome, took_ns / _NS_PER_MS, ran.error)

    def _end(
        self, queued: Queued, outcome: AnyOutcome, run_ms: float, error: BaseException | None
    ) -> None:
        """Hand an outcome to the settler and free the slot."""
        held, attempt = queued.held, queued.attempt
        self._forget(queued)
        self._attempts += 1
        if held.lost:
            self._emit(LeaseLost(ref=held.lease.ref, token=held.lease.token))
            return
        self._settler.add(attempt.settlement(outcome, self._store_now()))
        self._emit(attempt.ended(outcome, run_ms, error))

    def _lose(self, queued: Queued) -> None:
        self._forget(queued)
        self._emit(LeaseLost(ref=queued.held.lease.ref, token=queued.held.lease.token))

    def _forget(self, queued: Queued) -> None:
        full = self._room.is_full
        self._running.pop(queued.held.lease.token, None)
        self._heartbeat.drop(queued.held)
        self._room.freed(queued.attempt.handler, ran=True)
        if full:
            self._sleeper.wake()
        if self._stop:
            self._finished.set()

    def _settled(self, settlement: Settlement, answer: SettleResult) -> None:
        self._store_answers()
        if answer is SettleResult.LEASE_LOST:
            lease = settlement.lease
            self._emit(LeaseLost(ref=lease.ref, token=lease.token))

    def _changed(self, held: Held) -> None:
        """A running attempt was cancelled or its lease lost; on the heartbeat's thread."""
        self._soon(lambda: self._tell_attempt(held))

    def _tell_attempt(self, held: Held) -> None:
        queued, runner = self._running.get(held.lease.token, (None, None))
        if queued is None:
            return
        queued.attempt.stop_asked = True
        if held.lost and isinstance(runner, asyncio.Task):
            runner.cancel()

    # ---- the store and its clock

    def _store_now_us(self) -> int:
        return self._clock.elapsed() // 1_000 + self._offset_us

    def _store_now(self) -> int:
        return self._store_now_us() // 1_000

    def _news(self, due: int) -> None:
        if self._wakeup.matters(due):
            self._wakeup.news()
            self._sleeper.wake_threadsafe()

    def _trouble(self, error: StoreError, again: float) -> None:
        if self._store_down_since is None:
            self._store_down_since = self._clock.elapsed()
        self._emit(StoreLost(error=error, again_ms=int(again * 1_000)))

    def _store_answers(self) -> None:
        if self._store_down_since is not None:
            down = (self._clock.elapsed() - self._store_down_since) // _NS_PER_MS
            self._store_down_since = None
            self._emit(StoreBack(after_ms=down))

    def _store_pause(self) -> int:
        """Return how long to wait for a store that does not answer, longer each time."""
        if self._store_down_since is None:
            return _LONGEST_PAUSE_MS * _NS_PER_MS
        down_ms = (self._clock.elapsed() - self._store_down_since) // _NS_PER_MS
        return max(50, min(down_ms, _LONGEST_PAUSE_MS)) * _NS_PER_MS

    @property
    def store_answers(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self._store_down_since is None and not self._stop


def _served(registry: Registry, kinds: Sequence[str] | None) -> tuple[str, ...]:
    known = registry.kinds()
    if kinds is None:
        if not known:
            message = "the app has no handlers: declare one with @app.task"
            raise HandlerError(message)
        return known
    unknown = [kind for kind in kinds if kind not in known]
    if unknown or not kinds:
        message = f"no handler for {', '.join(unknown) or 'nothing'}; there is {', '.join(known)}"
        raise HandlerError(message)
    return tuple(kinds)
