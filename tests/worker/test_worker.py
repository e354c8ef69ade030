"""A worker from its start to its stop: what it claims, when it wakes, what it leaves behind."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from tests.api.kit import Tap
from tests.worker.kit import LIMIT, Ears, Gate, declare, waits

from tarry import Backoff, Context, Tarry, TaskRef, TaskState
from tarry.api.function import TaskFunction
from tarry.clock import SYSTEM
from tarry.errors import HandlerError, StoreError, StoreUnavailableError, WorkerError
from tarry.events import AttemptEnded, StoreBack, StoreLost, WorkerStarted, WorkerStopped


def tasks_of(app: Tarry, count: int, kind: str = "k") -> list[Any]:
    found = app.store.get([TaskRef(kind, str(n)) for n in range(count)])
    return [task for task in found if task is not None]


def ms_since(elapsed: int) -> float:
    return (SYSTEM.elapsed() - elapsed) / 1e6


# ---- starting


def test_a_worker_tells_of_its_start_and_its_stop(app: Tarry, ears: Ears) -> None:
    task = declare(app, "async", lambda ctx, n: None, aliases=["old"])

    with app.worker() as worker:
        assert worker.store_answers
        task.schedule("now")
        ears.ended()

    [started], [stopped] = ears.of(WorkerStarted), ears.of(WorkerStopped)
    assert started.kinds == ("k", "old")
    assert started.holder == stopped.holder == worker.holder
    assert (stopped.attempts, stopped.released) == (1, 0)
    assert not worker.store_answers


def test_an_app_without_handlers_has_no_worker(app: Tarry) -> None:
    with pytest.raises(HandlerError, match="no handlers"):
        app.make_worker()


@pytest.mark.parametrize("kinds", [["x"], ["a", "x"], []])
def test_a_worker_serves_kinds_it_has_handlers_for(app: Tarry, kinds: list[str]) -> None:
    declare(app, "async", lambda ctx, n: None, "a")

    with pytest.raises(HandlerError, match="no handler for"):
        app.make_worker(kinds=kinds)


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"lease": 0}])
def test_a_worker_needs_room_and_time(app: Tarry, settings: dict[str, Any]) -> None:
    declare(app, "async", lambda ctx, n: None)

    with pytest.raises(WorkerError, match="above zero"):
        app.make_worker(**settings)


def test_a_worker_that_cannot_start_says_so_to_the_block(
    app: Tarry, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(app, "async", lambda ctx, n: None)

    def refuse(_: object) -> Any:
        raise StoreError("no watching")

    monkeypatch.setattr(app.store, "watch", refuse)
    entered = False

    with pytest.raises(StoreError, match="no watching"), app.worker():
        entered = True

    assert not entered


def test_an_error_of_the_block_goes_through(app: Tarry, ears: Ears) -> None:
    declare(app, "async", lambda ctx, n: None)

    with pytest.raises(ZeroDivisionError), app.worker():
        _ = 1 / 0

    ears.wait(WorkerStopped)


def test_a_listener_that_fails_harms_nobody(app: Tarry, ears: Ears) -> None:
    task = declare(app, "async", lambda ctx, n: None)

    def bad(_: object) -> None:
        raise ValueError("bad ear")

    undo = app.listen(bad)
    with app.worker():
        task.schedule("now")
        ears.ended()
        undo()
        task.schedule("now")
        ears.ended(2)


def test_a_worker_on_the_running_loop(app: Tarry, ears: Ears) -> None:
    async def main() -> None:
        done = asyncio.Event()

        @app.task()
        async def set_event() -> None:
            done.set()

        async with app.aworker():
            await set_event.aschedule("10ms")
            await asyncio.wait_for(done.wait(), LIMIT)

    asyncio.run(main())

    assert len(ears.of(WorkerStopped)) == 1
    assert ears.outcomes() == ["done"]


@pytest.mark.parametrize("worker", [True, False])
def test_a_lifespan_runs_a_worker_and_closes_the_app(app: Tarry, ears: Ears, worker: bool) -> None:
    """As FastAPI and Starlette use it: ``FastAPI(lifespan=app.lifespan(worker=True))``."""

    async def main() -> None:
        done = asyncio.Event()

        @app.task()
        async def set_event() -> None:
            done.set()

        async with app.lifespan(worker=worker)(object()):
            await set_event.aschedule("10ms" if worker else "1h")
            if worker:
                await asyncio.wait_for(done.wait(), LIMIT)

    asyncio.run(main())

    assert app._client is None
    assert len(ears.of(WorkerStopped)) == worker


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_worker_gracefully(app: Tarry, ears: Ears, number: int) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")

    async def body() -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.02)

    task = declare(app, "async", lambda ctx, n: body())
    task.schedule("now")

    app.run_worker(grace="5s")

    assert ears.outcomes() == ["done"]
    assert len(ears.of(WorkerStopped)) == 1


# ---- stopping


def test_a_stop_finishes_what_runs_and_releases_what_waits(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    task = declare(app, colour, lambda ctx, n: waits(colour, gate))
    for n in range(6):
        task.schedule("now", n)

    with app.worker(concurrency=2, grace="10s") as worker:
        gate.entered(2)
        worker.stop_threadsafe()
        gate.open()
        ears.wait(WorkerStopped)

    assert ears.outcomes() == ["done", "done"]
    left = tasks_of(app, 6)
    assert len(left) == 4
    assert {(one.state, one.attempt, one.lost) for one in left} == {(TaskState.SCHEDULED, 0, 0)}


def test_after_the_grace_running_attempts_are_given_back(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await gate.await_()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def body(ctx: Context, n: int) -> Any:
        return wait() if colour == "async" else gate.wait()

    task = declare(app, colour, body)
    task.schedule("now")

    with app.worker(grace="50ms") as worker:
        gate.entered()
        worker.stop_threadsafe()
        [stopped] = ears.wait(WorkerStopped)

    assert stopped.released == 1
    assert cancelled.is_set() == (colour == "async")
    [left] = tasks_of(app, 1)
    assert (left.state, left.attempt, left.lost) == (TaskState.SCHEDULED, 0, 0)
    assert ears.outcomes() == ["release"]


def test_a_handler_that_does_not_mind_being_cancelled_is_given_back_once(
    app: Tarry, ears: Ears, gate: Gate
) -> None:
    async def stubborn() -> None:
        try:
            await gate.await_()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    task = declare(app, "async", lambda ctx, n: stubborn())
    task.schedule("now")

    with app.worker(grace="20ms") as worker:
        gate.entered()
        worker.stop_threadsafe()
        ears.wait(WorkerStopped)

    assert ears.outcomes() == ["release"]
    [left] = tasks_of(app, 1)
    assert (left.state, left.attempt) == (TaskState.SCHEDULED, 0)


def test_a_second_stop_does_not_wait_for_the_grace(
    app: Tarry, ears: Ears, colour: str, gate: Gate
) -> None:
    task = declare(app, colour, lambda ctx, n: waits(colour, gate))
    task.schedule("now")

    with app.worker(grace="1h") as worker:
        gate.entered()
        worker.stop_threadsafe()
        worker.stop_threadsafe()
        ears.wait(WorkerStopped)

    [left] = tasks_of(app, 1)
    assert (left.state, left.attempt) == (TaskState.SCHEDULED, 0)


def test_a_worker_that_was_stopped_before_it_began_ends(app: Tarry, ears: Ears) -> None:
    declare(app, "async", lambda ctx, n: None)
    worker = app.make_worker()
    worker.stop()

    asyncio.run(asyncio.wait_for(worker.run(), LIMIT))

    assert len(ears.of(WorkerStopped)) == 1


def test_a_cancelled_worker_cleans_up(app: Tarry, ears: Ears, gate: Gate) -> None:
    task = declare(app, "async", lambda ctx, n: waits("async", gate))
    task.schedule("now")

    async def main() -> None:
        running = asyncio.ensure_future(app.make_worker().run())
        await asyncio.to_thread(gate.entered)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert len(ears.of(WorkerStopped)) == 1


# ---- room


class Meter:
    """Counts how many handlers run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.started = 0

    def enter(self) -> None:
        with self._lock:
            self.running += 1
            self.started += 1
            self.most = max(self.most, self.running)

    def leave(self) -> None:
        with self._lock:
            self.running -= 1

    async def arun(self, seconds: float) -> None:
        self.enter()
        await asyncio.sleep(seconds)
        self.leave()

    def body(self, colour: str, seconds: float = 0.003) -> Any:
        def run(ctx: Context, n: int) -> Any:
            if colour == "async":
                return self.arun(seconds)
            self.enter()
            threading.Event().wait(seconds)
            self.leave()
            return None

        return run


def test_a_worker_runs_no_more_than_its_concurrency(app: Tarry, ears: Ears, colour: str) -> None:
    meter = Meter()
    task = declare(app, colour, meter.body(colour))
    app.schedule_many(task.build("now", n) for n in range(60))

    with app.worker(concurrency=5):
        ears.ended(60)

    assert 2 <= meter.most <= 5


def test_a_kind_does_not_wait_until_another_has_caught_up(app: Tarry, ears: Ears) -> None:
    herd = declare(app, "async", lambda ctx, n: None, "herd")
    trickle = declare(app, "async", lambda ctx, n: None, "trickle")
    for n in range(20):
        herd.schedule("now", n=n)
    trickle.schedule("now")

    with app.worker():
        ended = ears.ended(21)

    assert "trickle" in [event.ref.kind for event in ended[:2]]


def test_a_kind_runs_no_more_than_its_own_concurrency(app: Tarry, ears: Ears, colour: str) -> None:
    narrow, wide = Meter(), Meter()
    first = declare(app, colour, narrow.body(colour), "narrow", concurrency=2, aliases=["slim"])
    second = declare(app, colour, wide.body(colour), "wide")
    app.schedule_many(first.build("now", n) for n in range(20))
    app.schedule_many(app.build("slim", "now", payload={}) for _ in range(20))
    app.schedule_many(second.build("now", n) for n in range(40))

    with app.worker(concurrency=20):
        ears.ended(80)

    assert narrow.most <= 2
    assert wide.most > 2


def test_a_narrow_kind_does_not_wait_between_its_tasks(app: Tarry, ears: Ears, colour: str) -> None:
    task = declare(app, colour, lambda ctx, n: None, concurrency=1)
    app.schedule_many(task.build("now", n) for n in range(20))

    began = SYSTEM.elapsed()
    with app.worker():
        ears.ended(20)
        took = ms_since(began)

    assert took < 1_900, "a look every 2 s would take 40 s"


def test_a_worker_serves_only_its_kinds(app: Tarry, ears: Ears) -> None:
    wanted = declare(app, "async", lambda ctx, n: None, "wanted")
    other = declare(app, "async", lambda ctx, n: None, "other")
    other.schedule("now")

    with app.worker(kinds=["wanted"]):
        wanted.schedule("5ms")
        ears.ended()

    assert [event.ref.kind for event in ears.of(AttemptEnded)] == ["wanted"]
    assert other.get(0).state is TaskState.SCHEDULED  # type: ignore[union-attr]


def test_a_flooded_kind_does_not_starve_a_small_one(app: Tarry, ears: Ears, colour: str) -> None:
    order: list[str] = []
    meter = Meter()

    def body(kind: str) -> Any:
        run = meter.body(colour, 0.002)

        def both(ctx: Context, n: int) -> Any:
            order.append(kind)
            return run(ctx, n)

        return both

    flood = declare(app, colour, body("flood"), "flood")
    small = declare(app, colour, body("small"), "small")
    app.schedule_many(flood.build("now", n) for n in range(400))
    app.schedule_many(small.build("now", n) for n in range(3))

    with app.worker(concurrency=4):
        ears.ended(403)

    assert max(place for place, kind in enumerate(order) if kind == "small") < 60


def test_a_flood_does_not_fill_the_worker(app: Tarry, ears: Ears, colour: str, gate: Gate) -> None:
    task = declare(app, colour, lambda ctx, n: waits(colour, gate))
    app.schedule_many(task.build("now", n) for n in range(3_000))

    with app.worker(concurrency=3, grace="10s") as worker:
        gate.entered(3)
        threading.Event().wait(0.15)
        leased = app.store.counts()["k"].leased
        held = len(worker._heartbeat)
        worker.stop_threadsafe()
        gate.open()

    assert leased <= 3 + 10
    assert held <= 3 + 10
    assert app.store.counts()["k"].leased == 0


def test_two_workers_share_the_tasks_and_none_runs_twice(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    task = declare(app, colour, lambda ctx, n: ran.append(n))
    app.schedule_many(task.build(f"{n % 50}ms", n) for n in range(500))

    with app.worker(concurrency=5), app.worker(concurrency=5):
        ears.ended(500)

    assert sorted(ran) == list(range(500))
    assert app.store.counts().get("k", None) is None or app.store.counts()["k"].scheduled == 0


# ---- waking


def test_news_wakes_a_worker_that_sleeps_for_a_far_task(
    app: Tarry, ears: Ears, colour: str
) -> None:
    task = declare(app, colour, lambda ctx, n: None)
    task.schedule("1h", 0)

    with app.worker():
        for n in range(1, 4):
            began = SYSTEM.elapsed()
            task.schedule("now", n)
            ears.ended(n)
            assert ms_since(began) < 1_000


def test_a_move_wakes_a_worker(app: Tarry, ears: Ears) -> None:
    task = declare(app, "async", lambda ctx, n: None)
    task.schedule("1h", 0)
    task.schedule("now", 1)

    with app.worker():
        ears.ended(1)
        began = SYSTEM.elapsed()
        assert task.run_now(0)
        ears.ended(2)

    assert ms_since(began) < 1_000


def test_a_resumed_kind_runs_at_once(app: Tarry, ears: Ears) -> None:
    task = declare(app, "async", lambda ctx, n: None, "paused")
    other = declare(app, "async", lambda ctx, n: None, "other")
    app.pause("paused")
    task.schedule("now")

    with app.worker():
        other.schedule("5ms")
        assert ears.ended()[0].ref.kind == "other"
        began = SYSTEM.elapsed()
        app.resume("paused")
        assert ears.ended(2)[1].ref.kind == "paused"

    assert ms_since(began) < 1_000


# ---- series


def test_a_declared_series_runs_from_the_start_of_a_worker(app: Tarry, ears: Ears) -> None:
    dues: list[int] = []

    @app.task(every="30ms")
    def tick(ctx: Context) -> None:
        dues.append(ctx.due)

    with app.worker():
        ears.ended(4)

    assert dues == sorted(set(dues))
    task = tick.get()
    assert task is not None
    assert (task.nominal - dues[0]) % 30 == 0, "however late they ran, the series kept its phase"


def test_a_series_survives_its_failures(app: Tarry, ears: Ears) -> None:
    @app.task(every="20ms", retry=Backoff.fixed("1ms", times=1))
    async def tick(ctx: Context) -> None:
        raise ValueError("no")

    with app.worker():
        outcomes = ears.outcomes(6)

    assert outcomes[:6] == ["retry", "dead"] * 3


# ---- a store that fails


class Outage:
    """Makes an app's store unavailable while it lasts."""

    def __init__(self, app: Tarry) -> None:
        self._tap = Tap(app, "claim", "settle", "renew", "get", "schedule")
        self._tap.before = self._refuse
        self.verbs: set[str] = set()
        self.refused = threading.Semaphore(0)

    def _refuse(self, verb: str, _items: object) -> None:
        if verb in self.verbs:
            self.refused.release()
            raise StoreUnavailableError(f"no {verb}")

    def begin(self, *verbs: str) -> None:
        self.verbs = set(verbs)

    def end(self) -> None:
        self.verbs = set()


def test_a_worker_survives_a_store_that_does_not_answer(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[int] = []
    outage = Outage(app)
    task = declare(app, colour, lambda ctx, n: ran.append(n))

    with app.worker() as worker:
        task.schedule("now", 0)
        ears.ended(1)
        outage.begin("claim", "settle", "renew")
        for n in range(1, 6):
            task.schedule("now", n)
        lost = ears.wait(StoreLost)[0]
        assert not worker.store_answers
        outage.end()
        back = ears.wait(StoreBack)[0]
        ears.ended(6)
        assert worker.store_answers

    assert isinstance(lost.error, StoreUnavailableError)
    assert 0 < lost.again_ms <= 50, "the pause it really makes"
    assert back.after_ms >= 0
    assert sorted(ran) == list(range(6))
    assert tasks_of(app, 6) == []


def test_an_outcome_is_kept_until_the_store_takes_it(app: Tarry, ears: Ears, colour: str) -> None:
    ran: list[int] = []
    outage = Outage(app)
    outage.begin("settle")
    task = declare(app, colour, lambda ctx, n: ran.append(n))

    with app.worker():
        task.schedule("now")
        ears.ended()
        assert outage.refused.acquire(timeout=LIMIT)
        assert outage.refused.acquire(timeout=LIMIT)
        outage.end()

    assert ran == [0]
    assert tasks_of(app, 1) == []
    assert len(ears.of(StoreBack)) <= 1


def test_a_series_is_placed_when_the_store_is_back(app: Tarry, ears: Ears) -> None:
    outage = Outage(app)
    outage.begin("get", "schedule", "claim")

    @app.task(every="20ms")
    def tick() -> None: ...

    with app.worker():
        ears.wait(StoreLost)
        outage.end()
        ears.ended(2)


def test_a_store_that_is_down_does_not_hold_up_the_stop(app: Tarry, ears: Ears) -> None:
    outage = Outage(app)
    outage.begin("claim", "settle", "renew")
    task: TaskFunction[Any, Any, Any, Any] = declare(app, "async", lambda ctx, n: None)

    began = SYSTEM.elapsed()
    with app.worker(grace="100ms"):
        task.schedule("now")
        ears.wait(StoreLost)

    assert ms_since(began) < 10_000
