"""Every verb and its a-twin, by task, by name and by ref, on every medium."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.api.kit import Tap

from tarry import (
    CancelResult,
    ConflictError,
    Context,
    Earlier,
    Later,
    PayloadError,
    Scheduled,
    Shift,
    Tarry,
    TaskRef,
    TaskState,
    WhenError,
)
from tarry.answers import MoveStatus, ScheduleStatus
from tarry.api.function import TaskFunction
from tarry.attempt import Dead
from tarry.clock import SYSTEM
from tarry.errors import HandlerError, RefError
from tarry.request import Settlement

Say = Callable[..., Any]
Order = TaskFunction[Any, Any, Any, Any]
HOUR = 3_600_000


@pytest.fixture
def order(app: Tarry) -> Order:
    @app.task("order.cancel", key="order:{order_id}")
    async def cancel_order(ctx: Context, order_id: int, reason: str = "unpaid") -> None: ...

    return cancel_order


def claim(app: Tarry, kind: str = "order.cancel") -> Any:
    return app.store.claim([kind], limit=10, lease_ms=60_000, holder="test").leases


def kill(app: Tarry, order: Order) -> None:
    """Make a dead letter of order 42."""
    order.schedule("now", 42)
    [lease] = claim(app)
    app.store.settle([Settlement(lease, Dead("broken"))])


# ---- schedule


def test_a_task_is_scheduled(app: Tarry, order: Order, say: Say) -> None:
    before = SYSTEM.now()

    answer = say(order.schedule, "1h", order_id=42)

    assert isinstance(answer, Scheduled)
    assert answer.status is ScheduleStatus.CREATED
    assert answer.ref == TaskRef("order.cancel", "order:42")
    assert before + HOUR <= answer.due <= SYSTEM.now() + HOUR
    task = say(order.get, order_id=42)
    assert task.due == answer.due
    assert task.revision == answer.revision
    assert task.payload == b'{"order_id":42}'
    assert task.state is TaskState.SCHEDULED


@pytest.mark.parametrize(
    ("when", "ms"),
    [
        ("now", 0),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        (90, 90_000),
        (0.25, 250),
        (timedelta(days=1), 86_400_000),
        ("PT30M", 1_800_000),
    ],
)
def test_a_delay_counts_from_when_the_store_accepts_it(
    order: Order, say: Say, when: Any, ms: int
) -> None:
    before = SYSTEM.now()

    assert before <= say(order.schedule, when, 1).due - ms <= SYSTEM.now()


def test_an_instant_is_kept(order: Order, say: Say) -> None:
    instant = 1_893_456_000_000

    assert say(order.schedule, datetime(2030, 1, 1, tzinfo=UTC), 1).due == instant
    assert say(order.schedule, "2030-01-01T00:00:00Z", 1).due == instant
    assert say(order.schedule, "2030-01-01 01:00 Europe/Berlin", 1).due == instant


def test_what_is_past_is_due_now(order: Order, say: Say) -> None:
    before = SYSTEM.now()

    assert before <= say(order.schedule, datetime(2001, 1, 1, tzinfo=UTC), 1).due <= SYSTEM.now()


@pytest.mark.parametrize(
    "when", [datetime(2030, 1, 1), "soon", -1, "-5m", None, True, float("nan")]
)
def test_another_time_is_refused(app: Tarry, order: Order, say: Say, when: Any) -> None:
    with pytest.raises(WhenError):
        say(order.schedule, when, 1)
    with pytest.raises(WhenError):
        say(app.schedule, "order.cancel", when)
    with pytest.raises(WhenError):
        say(order.reschedule, when, 1)
    assert app.store.counts() == {}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("42",), {}),
        ((), {}),
        ((1, 2), {}),
        ((1,), {"x": 1}),
        ((1, "a", "b"), {}),
        ((object(),), {}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    app: Tarry, order: Order, say: Say, args: Any, kwargs: Any
) -> None:
    with pytest.raises(PayloadError):
        say(order.schedule, "1h", *args, **kwargs)
    assert app.store.counts() == {}


def test_scheduling_again_replaces(order: Order, say: Say) -> None:
    first = say(order.schedule, "1h", 42)

    second = say(order.schedule, "2h", 42, reason="late")

    assert second.status is ScheduleStatus.REPLACED
    assert second.revision > first.revision
    assert order.get(42).payload == b'{"order_id":42,"reason":"late"}'  # type: ignore[union-attr]


def test_keep_changes_nothing(order: Order, say: Say) -> None:
    first = say(order.schedule, "1h", 42)

    second = say(order.using(on_conflict="keep").schedule, "2h", 42, "late")

    assert second == Scheduled(first.ref, first.due, first.revision, ScheduleStatus.KEPT)


def test_earliest_and_latest_choose_the_due(order: Order, say: Say) -> None:
    first = say(order.schedule, "1h", 42)

    assert say(order.using(on_conflict="earliest").schedule, "2h", 42).due == first.due
    assert say(order.using(on_conflict="earliest").schedule, "1m", 42).due < first.due
    assert say(order.using(on_conflict="latest").schedule, "2h", 42).due > first.due


def test_debouncing_waits_no_longer_than_max_wait(app: Tarry, order: Order, say: Say) -> None:
    say(order.schedule, "10s", 42)
    task = order.get(42)
    assert task is not None
    debounce = order.using(on_conflict="latest", max_wait="30s")

    assert say(debounce.schedule, "20s", 42).due <= SYSTEM.now() + 20_000
    assert say(debounce.schedule, "1h", 42).due == task.created + 30_000
    assert say(debounce.schedule, "2h", 42).due == task.created + 30_000
    named = say(
        app.schedule,
        "order.cancel",
        "2h",
        key="order:42",
        on_conflict="latest",
        max_wait="40s",
        payload={"order_id": 42},
    )
    assert named.due == task.created + 40_000


def test_fail_raises_what_stands_in_the_way(order: Order, say: Say) -> None:
    first = say(order.schedule, "1h", 42)

    with pytest.raises(ConflictError, match=f"revision {first.revision} waits") as caught:
        say(order.using(on_conflict="fail").schedule, "2h", 42)

    [answer] = caught.value.answers
    assert answer == Scheduled(first.ref, first.due, first.revision, ScheduleStatus.CONFLICT)
    assert order.get(42).due == first.due  # type: ignore[union-attr]


def test_a_revision_that_does_not_match_is_a_conflict(order: Order, say: Say) -> None:
    with pytest.raises(ConflictError, match="nothing waits"):
        say(order.using(if_revision=7).schedule, "2h", 42)
    first = say(order.schedule, "1h", 42)
    second = say(order.using(if_revision=first.revision).schedule, "2h", 42)
    with pytest.raises(ConflictError) as caught:
        say(order.using(if_revision=first.revision).schedule, "3h", 42)

    [answer] = caught.value.answers
    assert isinstance(answer, Scheduled)
    assert answer.revision == second.revision


def test_an_unknown_mode_is_refused(app: Tarry, order: Order) -> None:
    with pytest.raises(HandlerError, match="replace, keep, earliest, latest, fail"):
        order.using(on_conflict="kep")  # type: ignore[call-overload]
    with pytest.raises(HandlerError):
        app.schedule("k", "1h", on_conflict="kep")  # type: ignore[arg-type]


def test_options_add_up(order: Order) -> None:
    request = (
        order.using(key="k")
        .using(headers={"a": "b"})
        .using(on_conflict="keep", max_wait="1m", if_revision=3)
        .using(every="1h")
        .build("1m", 42)
    )

    assert request.ref.key == "k"
    assert request.headers == b'{"a":"b"}'
    assert request.on_conflict.value == "keep"
    assert (request.max_wait_ms, request.if_revision) == (60_000, 3)
    assert request.rule
    assert order.build("1m", 42).rule == ""


# ---- reschedule


def test_a_waiting_task_is_moved(order: Order, say: Say) -> None:
    first = say(order.schedule, "1h", 42)

    moved = say(order.reschedule, "2h", 42)

    assert moved
    assert moved.status is MoveStatus.MOVED
    assert moved.due > first.due
    assert moved.revision > first.revision
    assert order.get(42).due == moved.due  # type: ignore[union-attr]


def test_a_shift_counts_from_the_present_due(order: Order, say: Say) -> None:
    due = say(order.schedule, "1h", 42).due

    assert say(order.reschedule, Shift("+15m"), 42).due == due + 900_000
    assert say(order.reschedule, Shift("-5m"), order_id=42).due == due + 600_000
    assert say(order.reschedule, Shift(timedelta(minutes=-10)), 42).due == due


def test_only_earlier_or_later(order: Order, say: Say) -> None:
    due = say(order.schedule, "1h", 42).due

    assert say(order.reschedule, Earlier("2h"), 42).status is MoveStatus.UNCHANGED
    assert say(order.reschedule, Later("10m"), 42).status is MoveStatus.UNCHANGED
    assert not say(order.reschedule, Later("10m"), 42)
    assert order.get(42).due == due  # type: ignore[union-attr]
    assert say(order.reschedule, Later("2h"), 42)
    assert say(order.reschedule, Earlier("1m"), 42)


def test_a_move_says_why_it_did_nothing(app: Tarry, order: Order, say: Say) -> None:
    assert say(order.reschedule, "1h", 42).status is MoveStatus.ABSENT
    first = say(order.schedule, "1h", 42)
    conflict = say(order.using(if_revision=first.revision + 1).reschedule, "2h", 42)
    assert conflict.status is MoveStatus.CONFLICT
    order.schedule("now", 42)
    assert claim(app)
    assert say(order.reschedule, "1h", 42).status is MoveStatus.RUNNING


# ---- cancel


def test_a_waiting_task_is_cancelled(order: Order, say: Say) -> None:
    say(order.schedule, "1h", 42)

    assert say(order.cancel, order_id=42) is CancelResult.CANCELLED
    assert say(order.cancel, 42) is CancelResult.ABSENT
    assert order.get(42) is None


def test_a_cancel_says_why_it_did_nothing(app: Tarry, order: Order, say: Say) -> None:
    first = say(order.schedule, "now", 42)
    assert say(order.using(if_revision=first.revision + 1).cancel, 42) is CancelResult.CONFLICT
    assert claim(app)

    answer = say(order.cancel, 42)

    assert answer is CancelResult.RUNNING
    assert not answer


# ---- run_now, get


def test_a_waiting_task_is_made_due_now(order: Order, say: Say) -> None:
    say(order.schedule, "1h", 42)

    moved = say(order.run_now, 42)

    assert moved
    assert moved.due <= SYSTEM.now()


def test_a_dead_letter_is_revived_by_run_now(app: Tarry, order: Order, say: Say) -> None:
    kill(app, order)
    dead = say(order.get, 42)
    assert dead.state is TaskState.DEAD
    assert dead.reason == "broken"

    moved = say(order.run_now, 42)

    assert moved
    assert moved.revision > dead.revision
    task = order.get(42)
    assert task is not None
    assert (task.state, task.due) == (TaskState.SCHEDULED, moved.due)


def test_run_now_of_nothing_is_absent(order: Order, say: Say) -> None:
    assert say(order.run_now, 42).status is MoveStatus.ABSENT


def test_nothing_is_found_where_nothing_is(order: Order, say: Say) -> None:
    assert say(order.get, 42) is None


# ---- by ref, by name


def test_a_ref_is_enough(app: Tarry, order: Order, say: Say) -> None:
    ref = say(order.schedule, "1h", 42).ref

    assert order.ref(42) == ref
    assert say(app.get, ref).due
    assert say(app.reschedule, ref, Shift("+1m"))
    assert say(app.reschedule, ref, "2h", if_revision=1).status is MoveStatus.CONFLICT
    assert say(app.cancel, ref, if_revision=1) is CancelResult.CONFLICT
    assert say(app.run_now, ref)
    assert say(app.cancel, ref) is CancelResult.CANCELLED
    assert say(app.get, ref) is None


def test_a_producer_needs_no_handler(url: str, say: Say) -> None:
    with Tarry(url) as producer:
        answer = say(
            producer.schedule,
            "order.cancel",
            "30m",
            key="order:42",
            payload={"order_id": 42},
            headers={"trace": "7"},
        )

        task = say(producer.get, answer.ref)
        assert task.payload == b'{"order_id":42}'
        assert task.headers == b'{"trace":"7"}'
        assert say(producer.cancel, answer.ref) is CancelResult.CANCELLED
        assert say(producer.schedule, "order.cancel", "1h").status is ScheduleStatus.CREATED


@pytest.mark.parametrize(
    ("kind", "key"), [("k", ""), ("k", "a\x00b"), ("k", "x" * 513), ("a b", "1"), ("", "1")]
)
def test_a_name_that_is_not_allowed_is_refused(app: Tarry, say: Say, kind: str, key: str) -> None:
    with pytest.raises(RefError):
        say(app.schedule, kind, "1h", key=key)
    assert app.store.counts() == {}


def test_a_key_by_hand(order: Order, say: Say) -> None:
    by_hand = order.using(key="vip")

    assert say(by_hand.schedule, "1h", 42).ref.key == "vip"
    assert say(by_hand.reschedule, "2h")
    assert say(by_hand.get) is not None
    assert say(order.get, 42) is None
    assert say(by_hand.cancel) is CancelResult.CANCELLED
    with pytest.raises(RefError):
        order.using(key="")


def test_a_task_without_a_key_is_found_by_its_ref(app: Tarry, say: Say) -> None:
    @app.task()
    def mail(to: str) -> None: ...

    first, second = say(mail.schedule, "1h", "a"), say(mail.schedule, "1h", "a")

    assert first.ref != second.ref
    assert say(app.get, first.ref) is not None
    with pytest.raises(PayloadError, match="using"):
        say(mail.cancel, "a")


# ---- many


def test_many_are_scheduled_at_once(app: Tarry, order: Order, say: Say) -> None:
    tap = Tap(app, "schedule")

    answers = say(app.schedule_many, (order.build("1h", n) for n in range(1_200)))

    assert [answer.ref.key for answer in answers] == [f"order:{n}" for n in range(1_200)]
    assert {answer.status for answer in answers} == {ScheduleStatus.CREATED}
    assert tap.sizes == [500, 500, 200]


def test_no_requests_are_no_answers(app: Tarry, say: Say) -> None:
    assert say(app.schedule_many, []) == []


# ---- pause


def test_a_paused_kind_is_not_claimed(app: Tarry, order: Order) -> None:
    order.schedule("now", 42)

    assert app.pause("order.cancel") is False
    assert app.pause("order.cancel") is True
    assert claim(app) == []
    assert app.resume("order.cancel") is True
    assert app.resume("order.cancel") is False
    assert len(claim(app)) == 1


# ---- a task is its function


def test_a_task_is_called_like_its_function(app: Tarry) -> None:
    @app.task()
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add(1) == 2
    assert add(1, b=2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Add."
    assert repr(add) == "<task add>"
    assert app.store.counts() == {}
