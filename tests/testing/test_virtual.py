"""Virtual time: what becomes due runs when a test says so, without threads or sleeping."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry import (
    Backoff,
    CancelResult,
    Context,
    Dead,
    PayloadError,
    Retry,
    Skip,
    Snooze,
    Tarry,
    TaskRef,
    TaskState,
)
from tarry.clock import SYSTEM
from tarry.events import AttemptEnded, Event, UnknownFields
from tarry.testing import Virtual, virtual
from tarry.testing.clock import START
from tarry.testing.plugin import tarry_time as fixture_tarry_time

HOUR = 3_600_000
Advance = Callable[[Virtual, Any], int]


@pytest.fixture
def app() -> Tarry:
    return Tarry("sqlite:////nowhere/that/exists.db", namespace="shop")


@pytest.fixture(params=["advance", "aadvance"])
def advance(request: pytest.FixtureRequest) -> Advance:
    """Let time pass, with or without a running loop."""

    def both(t: Virtual, by: Any) -> int:
        if request.param == "advance":
            return t.advance(by)
        return asyncio.run(t.aadvance(by))

    return both


@pytest.fixture(params=["async", "plain"])
def declare(request: pytest.FixtureRequest, app: Tarry) -> Callable[..., Any]:
    """Declare a handler of either colour that does what a function says."""

    def make(body: Callable[[Context, int], Any], kind: str = "k", **options: Any) -> Any:
        if request.param == "async":

            @app.task(kind, key="{n}", **options)
            async def handler(ctx: Context, n: int = 0) -> Any:
                await asyncio.sleep(0)
                return body(ctx, n)

            return handler

        @app.task(kind, key="{n}", **options)
        def plain(ctx: Context, n: int = 0) -> Any:
            return body(ctx, n)

        return plain

    return make


class Seen(list[tuple[int, int]]):
    """Notes when (after the start, in ms) each handler ran."""

    def note(self, t: Virtual, n: int) -> None:
        self.append((t.now() - START, n))


# ---- time


def test_what_becomes_due_runs_at_its_due(declare: Any, app: Tarry, advance: Advance) -> None:
    seen = Seen()
    with virtual(app) as t:
        task = declare(lambda ctx, n: seen.note(t, n))
        task.schedule("30m", 1)
        task.schedule("10m", 2)
        task.schedule("2h", 3)

        assert advance(t, "29m") == 1
        assert advance(t, "1m") == 1
        assert advance(t, "1m") == 0

        assert seen == [(600_000, 2), (1_800_000, 1)]
        assert t.now() == START + 31 * 60_000


@pytest.mark.parametrize("by", ["90s", 90, 90.0, timedelta(seconds=90)])
def test_time_is_told_as_everywhere(app: Tarry, advance: Advance, by: Any) -> None:
    with virtual(app) as t:
        advance(t, by)

        assert t.now() == START + 90_000


def test_nothing_runs_early(declare: Any, app: Tarry, advance: Advance) -> None:
    with virtual(app) as t:
        declare(lambda ctx, n: None).schedule("1s")

        assert advance(t, "999ms") == 0
        assert advance(t, "1ms") == 1


def test_what_is_due_now_runs_without_time_passing(
    declare: Any, app: Tarry, advance: Advance
) -> None:
    with virtual(app) as t:
        declare(lambda ctx, n: None).schedule("now")

        assert advance(t, 0) == 1
        assert t.now() == START


def test_the_start_can_be_chosen(app: Tarry) -> None:
    with virtual(app, now=1_000) as t:
        assert t.now() == 1_000
        assert app.clock.now() == 1_000


def test_a_time_of_day_is_read_by_the_virtual_clock(declare: Any, app: Tarry) -> None:
    with virtual(app) as t:
        declare(lambda ctx, n: None).schedule("tomorrow 08:00 Europe/Berlin")

        [task] = t.pending()
        assert datetime.fromtimestamp(task.due / 1_000, UTC) == datetime(2025, 6, 16, 6, tzinfo=UTC)


def test_a_handler_may_schedule_what_is_due_within_the_same_advance(
    app: Tarry, advance: Advance
) -> None:
    seen = Seen()
    with virtual(app) as t:

        @app.task(key="{n}")
        def chain(n: int) -> None:
            seen.note(t, n)
            if n:
                chain.schedule("10m", n - 1)

        @app.task(key="{n}")
        async def achain(n: int) -> None:
            seen.note(t, n)
            if n:
                await achain.aschedule("10m", n - 1)

        chain.schedule("10m", 3)
        assert advance(t, "35m") == 3
        assert advance(t, "5m") == 1
        assert seen == [(600_000, 3), (1_200_000, 2), (1_800_000, 1), (2_400_000, 0)]
        achain.schedule("10m", 2)
        assert advance(t, "1h") == 3


def test_a_handler_may_cancel_and_move_others(app: Tarry, advance: Advance) -> None:
    seen = Seen()
    with virtual(app) as t:

        @app.task(key="{n}")
        def task(n: int) -> None:
            seen.note(t, n)

        @app.task()
        def boss() -> None:
            assert task.cancel(1) is CancelResult.CANCELLED
            assert task.reschedule("1h", 2)

        task.schedule("10m", 1)
        task.schedule("10m", 2)
        boss.schedule("9m")
        advance(t, "2h")

    assert seen == [(9 * 60_000 + HOUR, 2)]


# ---- outcomes


def test_retries_come_in_their_time(declare: Any, app: Tarry, advance: Advance) -> None:
    seen = Seen()

    with virtual(app) as t:

        def body(ctx: Context, n: int) -> None:
            seen.note(t, ctx.attempt)
            raise ValueError("no")

        declare(body, retry=Backoff.ladder(["1m", "1h"])).schedule("now")

        assert advance(t, "59s") == 1
        assert advance(t, "2h") == 2
        assert seen == [(0, 1), (60_000, 2), (60_000 + HOUR, 3)]
        [dead] = t.dead()
        assert dead.reason == "failed too often (3): ValueError: no"


@pytest.mark.parametrize(
    ("wish", "runs", "state"),
    [
        (Snooze("1h"), 2, None),
        (Retry("1h"), 2, None),
        (Skip("paid"), 1, None),
        (Dead("broken"), 1, TaskState.DEAD),
    ],
    ids=["snooze", "retry", "skip", "dead"],
)
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_wishes_are_granted(
    declare: Any,
    app: Tarry,
    advance: Advance,
    wish: Any,
    runs: int,
    state: TaskState | None,
    how: str,
) -> None:
    seen = Seen()

    with virtual(app) as t:

        def body(ctx: Context, n: int) -> Any:
            seen.note(t, n)
            if len(seen) == 1 and how == "raised":
                raise wish
            return wish if len(seen) == 1 else None

        task = declare(body)
        task.schedule("now")
        assert advance(t, "2h") == runs

        found = task.get(0)
        assert (found and found.state) is state
    assert [when for when, _ in seen] == [0, HOUR][:runs]


def test_chance_is_the_same_every_time(app: Tarry) -> None:
    @app.task(key="{n}", retry=Backoff.fixed("1h", jitter=0.5))
    def fails(n: int) -> None:
        raise ValueError("no")

    def dues(seed: int) -> list[int]:
        with virtual(app, seed=seed) as t:
            for n in range(5):
                fails.schedule("now", n)
            t.advance(0)
            return [task.due for task in t.pending()]

    assert dues(1) == dues(1) != dues(2)


def test_events_are_told(declare: Any, app: Tarry, advance: Advance) -> None:
    events: list[Event] = []
    app.listen(events.append)
    with virtual(app) as t:
        declare(lambda ctx, n: None, drop_after="1h")
        app.schedule("k", "1h", key="0", payload={"n": 1, "x": 2})
        advance(t, "1h")

    unknown, ended = events
    assert isinstance(unknown, UnknownFields)
    assert isinstance(ended, AttemptEnded)
    assert (ended.outcome, ended.lateness_ms) == ("done", 0)


def test_a_payload_that_does_not_fit_is_dead(declare: Any, app: Tarry, advance: Advance) -> None:
    with virtual(app) as t:
        declare(lambda ctx, n: None)
        app.schedule("k", "now", key="0", payload={"n": "one"})
        advance(t, 0)

        assert t.dead()[0].reason.startswith("the payload no longer fits")


def test_what_is_too_late_expires(declare: Any, app: Tarry, advance: Advance) -> None:
    ran: list[int] = []
    with virtual(app) as t:
        task = declare(lambda ctx, n: ran.append(n), drop_after="1h")
        task.schedule("now")
        app.pause("k")
        advance(t, "2h")
        app.resume("k")

        assert advance(t, 0) == 0
        assert ran == []
        assert t.dead()[0].reason.startswith("expired")


def test_a_task_is_cancelled_in_time(declare: Any, app: Tarry, advance: Advance) -> None:
    with virtual(app) as t:
        task = declare(lambda ctx, n: None)
        task.schedule("30m")
        advance(t, "29m")

        assert task.cancel(0)
        assert advance(t, "1d") == 0


def test_a_real_interrupt_gets_through(app: Tarry) -> None:
    @app.task()
    def interrupted() -> None:
        raise KeyboardInterrupt

    with virtual(app) as t:
        interrupted.schedule("now")
        with pytest.raises(KeyboardInterrupt):
            t.advance(0)


# ---- series


def test_a_series_recurs_over_days(declare: Any, app: Tarry, advance: Advance) -> None:
    seen = Seen()
    with virtual(app) as t:
        task = declare(lambda ctx, n: seen.note(t, n))
        task.using(key="s", every="1d").schedule("1d", 7)

        assert advance(t, "7d") == 7
        assert seen == [(day * 24 * HOUR, 7) for day in range(1, 8)]


def test_a_declared_cron_keeps_to_the_wall_clock_over_a_clock_change(app: Tarry) -> None:
    seen: list[str] = []
    start = int(datetime(2025, 3, 28, 12, tzinfo=UTC).timestamp() * 1_000)

    @app.task(cron="30 8 * * *", tz="Europe/Berlin")
    async def morning(ctx: Context) -> None:
        seen.append(datetime.fromtimestamp(ctx.due / 1_000, UTC).strftime("%d %H:%M"))

    with virtual(app, now=start) as t:
        assert t.advance("4d") == 4

        assert seen == ["29 07:30", "30 06:30", "31 06:30", "01 06:30"]
        t.assert_scheduled(morning)


def test_a_declared_series_is_skipped_by_cancel(app: Tarry, advance: Advance) -> None:
    seen = Seen()

    @app.task(every="1h")
    def hourly(ctx: Context) -> None:
        seen.note(t, ctx.attempt)

    with virtual(app) as t:
        assert hourly.cancel()
        advance(t, "3h")

    assert seen == [(2 * HOUR, 1), (3 * HOUR, 1)]


def test_a_long_gap_is_caught_up_once(app: Tarry, advance: Advance) -> None:
    with virtual(app) as t:
        ran: list[int] = []

        @app.task("tick", key="{n}")
        def tick(n: int) -> None:
            ran.append(n)

        tick.using(every="1h").schedule("1h", 1)
        app.pause("tick")
        advance(t, "10h")
        app.resume("tick")

        assert advance(t, "30m") == 2, "the one that waited, and the latest of those missed"


# ---- asserts


def test_asserts_see_what_waits(declare: Any, app: Tarry) -> None:
    with virtual(app) as t:
        task = declare(lambda ctx, n: None)
        t.assert_nothing_pending()
        t.assert_not_scheduled(task, 1)
        task.schedule("30m", 1)

        assert t.assert_scheduled(task, n=1).due == START + 1_800_000
        t.assert_scheduled(task, 1, due="30m")
        t.assert_scheduled(task, 1, due=timedelta(minutes=30))
        t.assert_scheduled(task, 1, due=datetime.fromtimestamp(START / 1_000 + 1_800, UTC))
        t.advance("10m")
        t.assert_scheduled(task, 1, due="20m")


def test_asserts_say_what_is_wrong(declare: Any, app: Tarry) -> None:
    with virtual(app) as t:
        task = declare(lambda ctx, n: None)
        with pytest.raises(AssertionError, match="k/1 does not wait; what waits: nothing"):
            t.assert_scheduled(task, 1)
        task.schedule("30m", 2)
        with pytest.raises(AssertionError, match="k/1 does not wait; what waits: k/2"):
            t.assert_scheduled(task, 1)
        with pytest.raises(
            AssertionError,
            match=r"k/2 waits for 2025-06-15T15:36:40.000Z \(in 30m\), not for .*16:06:40",
        ):
            t.assert_scheduled(task, 2, due="1h")
        with pytest.raises(AssertionError, match=r"k/2 waits for 2025-06-15T15:36:40\.000Z"):
            t.assert_not_scheduled(task, 2)
        with pytest.raises(AssertionError, match="still waiting: k/2"):
            t.assert_nothing_pending()
        with pytest.raises(PayloadError):
            t.assert_scheduled(task, wrong=1)


def test_what_ended_does_not_wait(declare: Any, app: Tarry) -> None:
    with virtual(app) as t:
        task = declare(lambda ctx, n: Dead("broken") if n else None, keep="7d")
        task.schedule("now", 0)
        task.schedule("now", 1)
        t.advance(0)

        t.assert_nothing_pending()
        t.assert_not_scheduled(task, 0)
        with pytest.raises(AssertionError, match="does not wait"):
            t.assert_scheduled(task, 1)


def test_many_that_wait_are_listed_by_due(app: Tarry) -> None:
    with virtual(app) as t:
        app.schedule_many(app.build("k", 2_000 - n, key=str(n)) for n in range(1_200))

        pending = t.pending()

    assert len(pending) == 1_200
    assert [task.due for task in pending] == sorted(task.due for task in pending)


# ---- entering and leaving


def test_the_app_stands_on_its_own_store_again_afterwards(app: Tarry) -> None:
    before = (app._client, app.clock)

    with virtual(app) as t:
        assert app.store is t.store
        assert app.store.namespace == "shop"
        app.schedule("k", "1h")

    assert (app._client, app.clock) == before
    assert app.clock is SYSTEM


def test_an_open_store_is_kept_open(tmp_path: Any) -> None:
    with Tarry(f"sqlite:///{tmp_path}/t.db") as app:
        app.schedule("k", "1h", key="real")
        store = app.store

        with virtual(app):
            assert app.get(TaskRef("k", "real")) is None

        assert app.store is store
        assert app.get(TaskRef("k", "real")) is not None


def test_the_app_is_restored_after_an_error(app: Tarry) -> None:
    with pytest.raises(ZeroDivisionError), virtual(app):
        _ = 1 / 0

    assert app.clock is SYSTEM


def test_virtual_times_can_be_nested(app: Tarry) -> None:
    with virtual(app) as outer:
        app.schedule("k", "1h", key="outer")
        with virtual(app, now=5_000) as inner:
            assert app.clock.now() == 5_000
            assert inner.pending() == []
        assert app.clock.now() == START
        assert len(outer.pending()) == 1


def test_the_same_app_twice_starts_afresh(app: Tarry) -> None:
    for _ in range(2):
        with virtual(app) as t:
            t.assert_nothing_pending()
            app.schedule("k", "1h", key="1")


def test_an_async_test_uses_it_with_async_with(declare: Any, app: Tarry) -> None:
    async def main() -> int:
        async with virtual(app) as t:
            task = declare(lambda ctx, n: None)
            await task.aschedule("30m", 1)
            assert await task.aget(1) is not None
            await asyncio.gather(*(task.aschedule("30m", n) for n in range(2, 12)))
            return await t.aadvance("30m")

    assert asyncio.run(main()) == 11
    assert app.clock is SYSTEM


def test_advance_inside_a_running_loop_says_what_to_use(app: Tarry) -> None:
    @app.task()
    async def task() -> None: ...

    async def main() -> None:
        with virtual(app) as t:
            task.schedule("now")
            with pytest.raises(RuntimeError, match="aadvance"):
                t.advance(0)
            assert await t.aadvance(0) == 1

    asyncio.run(main())


def test_the_fixture_puts_an_app_on_virtual_time(
    app: Tarry, tarry_time: Callable[[Tarry], Virtual]
) -> None:
    t = tarry_time(app)

    app.schedule("k", "1h", key="1")

    assert app.store is t.store
    assert len(t.pending()) == 1
    assert fixture_tarry_time is not None
