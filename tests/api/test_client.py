"""Batches are validated, cut into chunks, repeated when unanswered, and tell how far they got."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.kit import Tap, kinds_waiting

from tarry import ConflictError, PayloadError, Tarry, TaskRef
from tarry.answers import ScheduleStatus
from tarry.api.client import Client, chunks
from tarry.api.function import TaskFunction
from tarry.due import In
from tarry.errors import (
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from tarry.request import DeadRef, Request
from tarry.runtime import ThreadRuntime
from tarry.stores.memory import MemoryStore

Say = Callable[..., Any]
Order = TaskFunction[Any, Any, Any, Any]


@pytest.fixture
def order(app: Tarry) -> Order:
    @app.task("order.cancel", key="order:{order_id}")
    async def cancel_order(order_id: int, note: str = "") -> None: ...

    return cancel_order


# ---- schedule_many


def test_all_are_validated_before_the_first_is_written(app: Tarry, order: Order, say: Say) -> None:
    tap = Tap(app, "schedule")
    ids: list[Any] = [*range(700), "wrong", *range(700, 1_400)]

    with pytest.raises(PayloadError, match="order_id"):
        say(app.schedule_many, (order.build("1h", one) for one in ids))

    assert tap.calls == []
    assert kinds_waiting(app.store) == 0


def test_a_conflict_carries_every_answer(app: Tarry, order: Order, say: Say) -> None:
    order.schedule("1h", 1)
    careful = order.using(on_conflict="fail")

    with pytest.raises(ConflictError, match=r"order\.cancel/order:1 ") as caught:
        say(app.schedule_many, [careful.build("1h", n) for n in range(3)])

    statuses = [answer.status for answer in caught.value.answers]  # type: ignore[attr-defined]
    assert statuses == [ScheduleStatus.CREATED, ScheduleStatus.CONFLICT, ScheduleStatus.CREATED]
    assert kinds_waiting(app.store) == 3


def test_an_error_carries_the_answers_so_far(app: Tarry, order: Order, say: Say) -> None:
    tap = Tap(app, "schedule")

    def full(_verb: str, _items: object) -> None:
        if len(tap.calls) == 3:
            raise StoreFullError("no room")

    tap.before = full

    with pytest.raises(StoreFullError) as caught:
        say(app.schedule_many, [order.build("1h", n) for n in range(2_000)])

    written = [answer.ref.key for answer in caught.value.answers]  # type: ignore[attr-defined]
    assert written == [f"order:{n}" for n in range(1_000)]
    assert kinds_waiting(app.store) == 1_000


def test_large_payloads_make_small_chunks(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")

    app.schedule_many(order.build("1h", n, note="x" * 250_000) for n in range(10))

    assert tap.sizes == [4, 4, 2]


def test_items_of_one_batch_act_in_order(app: Tarry, order: Order, say: Say) -> None:
    answers = say(
        app.schedule_many,
        [
            order.build("1h", 1),
            order.build("2h", 1),
            order.using(on_conflict="keep").build("3h", 1),
        ],
    )

    assert [answer.status.value for answer in answers] == ["created", "replaced", "kept"]
    assert answers[1].revision == answers[2].revision > answers[0].revision


def request(size: int) -> Request:
    return Request(TaskRef("k", "1"), In(0), b"x" * size)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1], [1]),
        ([1] * 500, [500]),
        ([1] * 501, [500, 1]),
        ([1 << 20], [1]),
        ([1 << 21, 1, 1 << 21], [1, 1, 1]),
        ([1 << 19, 1 << 19, 1], [2, 1]),
    ],
)
def test_a_batch_is_cut_by_number_and_by_size(sizes: list[int], parts: list[int]) -> None:
    assert [len(part) for part in chunks([request(size) for size in sizes])] == parts


# ---- calls that get no answer


class Deaf(MemoryStore):
    """Does what it is asked to, and loses its replies for a while."""

    def __init__(self, lost: int, error: type[StoreUnavailableError]) -> None:
        super().__init__()
        self.lost = lost
        self.error = error
        self.calls: list[str] = []

    def schedule(self, requests: Any, *, call: str = "") -> Any:
        self.calls.append(call)
        answers = super().schedule(requests, call=call)
        if len(self.calls) <= self.lost:
            raise self.error("no reply")
        return answers


def test_a_write_without_a_reply_is_repeated_under_the_same_id() -> None:
    store = Deaf(2, StoreUnavailableError)

    [answer] = Client(store, ThreadRuntime()).schedule([request(1)])

    assert answer.status is ScheduleStatus.CREATED
    assert len(store.calls) == 3
    assert len(set(store.calls)) == 1
    assert store.calls[0]


def test_a_write_that_never_gets_a_reply_has_an_unknown_outcome() -> None:
    client = Client(Deaf(99, StoreUnavailableError), ThreadRuntime(), retry_for_ms=0)

    with pytest.raises(UnknownOutcomeError, match="no answer for 0 s"):
        client.schedule([request(1)])


def test_a_store_that_was_busy_wrote_nothing() -> None:
    with pytest.raises(StoreBusyError):
        Client(Deaf(99, StoreBusyError), ThreadRuntime(), retry_for_ms=0).schedule([request(1)])


def test_each_call_has_an_id_of_its_own() -> None:
    store = Deaf(0, StoreUnavailableError)
    client, other = Client(store, ThreadRuntime()), Client(store, ThreadRuntime())

    client.schedule([request(1)])
    client.schedule([request(1)])
    other.schedule([request(1)])

    assert len(set(store.calls)) == 3


def test_a_fork_does_not_repeat_the_calls_of_its_parent() -> None:
    store = Deaf(0, StoreUnavailableError)
    client = Client(store, ThreadRuntime())
    reading, writing = os.pipe()

    child = os.fork()
    client.schedule([request(1)])
    if not child:
        os.write(writing, store.calls[0].encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 100).decode() not in {"", *store.calls}
    os.close(reading)
    os.close(writing)


def test_dead_letters_of_nobody_cannot_be_revived_or_purged(app: Tarry) -> None:
    nobody = DeadRef(TaskRef("k", "1"))

    assert [bool(answer) for answer in app.client.revive([nobody, nobody])] == [False, False]
    assert app.client.purge([nobody]) == [False]
