"""Time-outs, heartbeats, cancels, replacements and lost leases of a running worker."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.api.kit import Tap
from tests.worker.kit import LIMIT, Ears, Gate, declare, waits

from tarry import Backoff, CancelResult, Context, Retry, Tarry, TaskRef, TaskState
from tarry.answers import ScheduleStatus
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import StoreUnavailableError, WorkerError
from tarry.events import AttemptEnded, LeaseLost, SlotLost, WorkerStopped
from tarry.outcome.decide import LOST_LIMIT
from tarry.request import Settlement
from tarry.stores.store import Claimed
from tarry.worker.run import Attempt
from tarry.worker.worker import LOST_SLOTS

QUICKLY = Backoff.fixed("5ms", times=3)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hanging threads wait for; set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


# ---- the heartbeat


def test_a_handler_that_blocks_the_loop_keeps_its_lease(app: Tarry, ears: Ears) -> None:
    ran: list[int] = []

    def body(ctx: Context, n: int) -> None:
        ran.append(ctx.attempt)
        threading.Event().wait(1)

    task = declare(app, "async", body)
    with app.worker(lease="300ms"), app.worker(lease="300ms"):
        task.schedule("now")
        [event] = ears.ended()

    assert ran == [1]
    assert event.outcome == "done"
    assert ears.of(LeaseLost) == []
    assert app.get(event.ref) is None


def test_a_handler_that_takes_long_keeps_its_lease(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    ran: list[int] = []

    def body(ctx: Context, n: int) -> Any:
        ran.append(ctx.attempt)
        return waits(colour, gate)

    task = declare(app, colour, body)
    with app.worker(lease="100ms"), app.worker(lease="100ms"):
        task.schedule("now")
        gate.entered()
        threading.Event().wait(0.35)
        gate.open()
        ears.ended()

    assert ran == [1]
    assert ears.of(LeaseLost) == []


def test_a_cancelled_attempt_hears_of_it_at_the_next_heartbeat(
    app: Tarry, ears: Ears, colour: str
) -> None:
    started = threading.Event()

    async def wait(ctx: Context) -> None:
        while not ctx.cancelled:  # noqa: ASYNC110 - it is told by a flag
            await asyncio.sleep(0.002)

    def body(ctx: Context, n: int) -> Any:
        started.set()
        if colour == "async":
            return wait(ctx)
        while not ctx.cancelled:
            threading.Event().wait(0.002)
        raise ValueError("stopped in the middle")

    task = declare(app, colour, body, retry=QUICKLY)
    with app.worker(lease="150ms"):
        task.schedule("now")
        assert started.wait(LIMIT)
        assert task.cancel(0) is CancelResult.RUNNING
        ears.ended()

    assert len(ears.of(AttemptEnded)) == 1, "whatever becomes of it, it is not attempted again"
    assert task.get(0) is None


def test_an_attempt_whose_lease_was_lost_is_stopped_and_cannot_settle(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    stopped = threading.Event()

    async def wait(ctx: Context) -> None:
        try:
            await gate.await_()
        except asyncio.CancelledError:
            stopped.set()
            raise

    def body(ctx: Context, n: int) -> Any:
        if colour == "async":
            return wait(ctx)
        gate._entered.release()
        while not ctx.cancelled:
            threading.Event().wait(0.002)
        stopped.set()
        return None

    task = declare(app, colour, body)
    with app.worker(lease="10s", grace="10s") as worker:
        task.schedule("now")
        gate.entered()
        [attempt] = worker._heartbeat._held.values()
        # The token is no longer on the record: somebody else had the task, and will try later.
        app.store.settle([Settlement(attempt.lease, Retry(In(3_600_000)))])
        attempt.since = 0
        worker._heartbeat.step(worker._clock.elapsed())
        assert stopped.wait(LIMIT)
        [event] = ears.wait(LeaseLost)

    assert (event.ref, event.token) == (attempt.lease.ref, attempt.lease.token)
    assert ears.of(AttemptEnded) == []
    assert app.get(event.ref).state is TaskState.SCHEDULED  # type: ignore[union-attr]


# ---- the start gate


class SlowReplies:
    """Delays the replies to claims that took something; *meanwhile* happens before they come."""

    def __init__(self, app: Tarry, seconds: float) -> None:
        self._seconds = seconds
        self._claim = app.store.claim
        self.delayed = 0
        self.most = 1
        self.meanwhile: Callable[[], object] = lambda: None
        setattr(app.store, "claim", self.claim)  # noqa: B010 - mypy knows it is a method

    def claim(self, *args: Any, **kwargs: Any) -> Any:
        claimed = self._claim(*args, **kwargs)
        if claimed.leases and self.delayed < self.most:
            self.delayed += 1
            self.meanwhile()
            threading.Event().wait(self._seconds)
        return claimed


def test_a_reply_that_came_late_is_confirmed_before_the_start(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    task = declare(app, colour, lambda ctx, n: ran.append(ctx.attempt))
    slow = SlowReplies(app, 0.06)
    tap = Tap(app, "renew")

    with app.worker():
        app.schedule_many(task.build("now", n) for n in range(5))
        ears.ended(5)

    assert slow.delayed == 1
    assert sum(tap.sizes) >= 5
    assert ran == [1] * 5


def test_what_a_claim_waited_for_its_turn_needs_no_confirmation(
    app: Tarry, ears: Ears, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = app.store.claim
    task = declare(app, colour, lambda ctx, n: None)
    tap = Tap(app, "renew")
    delayed: list[int] = []

    def in_a_queue(*args: Any, **kwargs: Any) -> Claimed:
        before = SYSTEM.elapsed()
        if not delayed:
            threading.Event().wait(0.06)
        waited = SYSTEM.elapsed() - before
        claimed = claim(*args, **kwargs)
        if claimed.leases:
            delayed.append(waited)
        return msgspec.structs.replace(claimed, waited=waited)

    monkeypatch.setattr(app.store, "claim", in_a_queue)
    with app.worker():
        task.schedule("now", 0)
        ears.ended()

    assert delayed[0] >= 60_000_000
    assert tap.sizes == []


def test_what_was_cancelled_before_a_late_reply_is_not_started(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    answers: list[CancelResult] = []
    task = declare(app, colour, lambda ctx, n: ran.append(n))
    slow = SlowReplies(app, 0.06)
    slow.meanwhile = lambda: answers.append(task.cancel(0))

    with app.worker():
        task.schedule("now", 0)
        [event] = ears.ended()

    assert answers == [CancelResult.RUNNING]
    assert (event.outcome, ran) == ("release", [])
    assert task.get(0) is None


def test_what_could_not_be_confirmed_is_not_started_and_not_lost(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    task = declare(app, colour, lambda ctx, n: ran.append(ctx.attempt))
    SlowReplies(app, 0.06)
    tap = Tap(app, "renew")

    def refuse(_verb: str, _items: object) -> None:
        if len(tap.calls) == 1:
            raise StoreUnavailableError("gone")

    tap.before = refuse

    with app.worker():
        task.schedule("now")
        outcomes = ears.outcomes(2)

    assert outcomes == ["release", "done"]
    assert ran == [1]


def test_a_lease_that_somebody_took_before_its_reply_came_is_not_started(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[tuple[int, int]] = []
    task = declare(app, colour, lambda ctx, n: ran.append((ctx.attempt, ctx.lost)))
    slow = SlowReplies(app, 0.01)

    def steal() -> None:
        threading.Event().wait(0.12)
        assert slow._claim(["k"], limit=1, lease_ms=1, holder="thief").leases

    slow.meanwhile = steal
    with app.worker(lease="100ms"):
        task.schedule("now")
        ears.wait(LeaseLost)
        ears.ended()

    [(attempt, lost)] = ran
    assert lost >= 2
    assert attempt == lost + 1


def test_a_lease_whose_time_is_up_may_be_confirmed_while_nobody_took_it(
    app: Tarry, ears: Ears, colour: str
) -> None:
    task = declare(app, colour, lambda ctx, n: None)
    slow = SlowReplies(app, 0.25)

    with app.worker(lease="200ms"):
        task.schedule("now")
        [event] = ears.ended()

    assert slow.delayed == 1
    assert (event.outcome, event.attempt) == ("done", 1)


def test_the_lateness_of_a_late_reply_is_told(app: Tarry, ears: Ears, colour: str) -> None:
    task = declare(app, colour, lambda ctx, n: None)
    slow = SlowReplies(app, 0.1)

    with app.worker():
        slow.delayed = slow.most
        task.schedule("now", 0)
        ears.ended(1)
        slow.delayed = 0
        task.schedule("now", 1)
        event = ears.ended(2)[1]

    # By the store's clock, which a worker knows to a few milliseconds.
    assert event.lateness_ms > 80


# ---- what is scheduled behind an attempt


def test_a_replacement_of_a_running_task_runs_afterwards(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    running: list[int] = []
    seen: list[tuple[int, int]] = []

    async def wait() -> None:
        await gate.await_()
        running.pop()

    def body(ctx: Context, n: int) -> Any:
        running.append(n)
        seen.append((len(running), ctx.attempt))
        if colour == "async":
            return wait()
        gate.wait()
        running.pop()
        return None

    task = declare(app, colour, body)
    with app.worker():
        first = task.schedule("now")
        gate.entered()
        second = task.schedule("now")
        assert second.status is ScheduleStatus.CREATED
        gate.open()
        events = ears.ended(2)

    assert [event.revision for event in events] == [first.revision, second.revision]
    assert seen == [(1, 1), (1, 1)]


# ---- time-outs


def test_an_async_handler_that_takes_too_long_is_cancelled_and_retried(
    app: Tarry, ears: Ears
) -> None:
    cancelled: list[int] = []

    async def wait(ctx: Context) -> None:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(ctx.attempt)
                raise

    task = declare(app, "async", lambda ctx, n: wait(ctx), timeout="30ms", retry=QUICKLY)
    with app.worker(concurrency=1):
        task.schedule("now")
        first, second = ears.ended(2)

    assert cancelled == [1]
    assert (first.outcome, second.outcome) == ("retry", "done")
    assert first.reason == "TimeoutError: the handler took longer than 0.03 s"
    assert isinstance(first.error, TimeoutError)
    assert first.run_ms >= 25


def test_a_thread_that_hangs_is_abandoned_and_replaced(
    app: Tarry, ears: Ears, release: threading.Event
) -> None:
    def body(ctx: Context, n: int) -> None:
        if ctx.attempt == 1 and n == 0:
            assert release.wait(LIMIT)

    task = declare(app, "plain", body, timeout="30ms", retry=QUICKLY)
    with app.worker(concurrency=1):
        task.schedule("now")
        [lost] = ears.wait(SlotLost)
        first, second = ears.ended(2)
        task.schedule("now", 1)
        third = ears.ended(3)[-1]
        release.set()

    assert (lost.ref, lost.lost) == (TaskRef("k", "0"), 1)
    assert [first.outcome, second.outcome, third.outcome] == ["retry", "done", "done"]
    assert len(ears.of(AttemptEnded)) == 3, "what the abandoned thread says counts no more"


def test_a_worker_that_lost_too_many_threads_ends(
    app: Tarry, ears: Ears, release: threading.Event
) -> None:
    task = declare(
        app,
        "plain",
        lambda ctx, n: release.wait(LIMIT),
        timeout="20ms",
        retry=Backoff.fixed("1h"),
    )
    for n in range(LOST_SLOTS):
        task.schedule("now", n)

    def run() -> None:
        with app.worker(concurrency=4):
            ears.wait(WorkerStopped)

    with pytest.raises(WorkerError, match=f"{LOST_SLOTS} handlers outlived"):
        run()

    assert len(ears.of(SlotLost)) == LOST_SLOTS
    states = {app.get(TaskRef("k", str(n))).state for n in range(LOST_SLOTS)}  # type: ignore[union-attr]
    assert states == {TaskState.SCHEDULED}


def test_a_quick_handler_is_not_hurt_by_its_time_limit(app: Tarry, ears: Ears, colour: str) -> None:
    task = declare(app, colour, lambda ctx, n: None, timeout="40ms")
    with app.worker(concurrency=1):
        for n in range(20):
            task.schedule("now", n)
        ears.ended(20)
        threading.Event().wait(0.06)
        task.schedule("now", 99)
        outcomes = ears.outcomes(21)

    assert outcomes == ["done"] * 21
    assert ears.of(SlotLost) == []


# ---- poison


def lose(app: Tarry, times: int) -> None:
    """Let the lease of the one task of kind poison be lost *times* times."""
    for _ in range(LIMIT * 1_000):
        [task] = app.store.get([TaskRef("poison", "0")])
        assert task is not None
        if task.lost >= times:
            return
        app.store.claim(["poison"], limit=1, lease_ms=1, holder="dies")
        threading.Event().wait(0.001)


def test_a_task_at_the_limit_of_losses_runs_alone(app: Tarry, ears: Ears, colour: str) -> None:
    mates: list[tuple[int, int]] = []
    ran: list[int] = []

    def body(ctx: Context, n: int) -> None:
        for _ in range(20):
            counts = app.store.counts()["mate"]
            mates.append((counts.leased, len(ran)))
            threading.Event().wait(0.001)

    async def slowly(ctx: Context) -> None:
        for _ in range(20):
            counts = app.store.counts()["mate"]
            mates.append((counts.leased, len(ran)))
            await asyncio.sleep(0.002)

    poison = declare(
        app,
        colour,
        lambda ctx, n: slowly(ctx) if colour == "async" else body(ctx, n),
        "poison",
    )
    mate = declare(app, colour, lambda ctx, n: ran.append(n), "mate")
    poison.schedule("now")
    lose(app, LOST_LIMIT)
    for n in range(30):
        mate.schedule("now", n)

    with app.worker(concurrency=4):
        events = ears.ended(31)

    assert len(mates) == 20
    assert {leased for leased, _ in mates} == {0}, "no lease of a mate can be lost with it"
    assert len({count for _, count in mates}) == 1, "none runs beside it"
    assert sorted(ran) == list(range(30))
    assert {event.outcome for event in events if event.ref.kind == "poison"} == {"done"}


def test_a_task_lost_too_often_is_dead_without_being_run(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    poison = declare(app, colour, lambda ctx, n: ran.append(n), "poison")
    poison.schedule("now")
    lose(app, LOST_LIMIT + 1)

    with app.worker():
        [event] = ears.ended()

    assert ran == []
    assert event.outcome == "dead"
    assert event.reason.startswith("lost too often")


# ---- what the worker itself cannot deal with


def test_a_slot_outlives_what_it_cannot_explain_and_the_lease_runs_out(
    app: Tarry, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = declare(app, "async", lambda ctx, n: None)
    failing = iter([True])
    real = Attempt.outcome

    def outcome(self: Attempt, *args: Any) -> Any:
        if next(failing, False):
            raise RuntimeError("a mistake of tarry's own")
        return real(self, *args)

    monkeypatch.setattr(Attempt, "outcome", outcome)
    with app.worker(lease="150ms", concurrency=1):
        task.schedule("now")
        [ended] = ears.ended()

    assert (ended.outcome, ended.attempt) == ("done", 2), "the one slot there is went on"
    assert len(ears.of(LeaseLost)) == 1
