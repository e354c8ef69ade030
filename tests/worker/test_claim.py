"""Room: how much more a worker may claim."""

import pytest

from tarry.handler import Handler, Registry
from tarry.worker.claim import QUEUE_LIMIT, Room

MS = 1_000_000


def noop() -> None: ...


class Kit:
    def __init__(self, concurrency: int = 10) -> None:
        self.free = Handler(noop, kind="free")
        self.other = Handler(noop, kind="other")
        self.narrow = Handler(noop, kind="narrow", aliases=["slim"], concurrency=2)
        registry = Registry()
        for handler in (self.free, self.other, self.narrow):
            registry.add(handler)
        self.room = Room(registry, registry.kinds(), concurrency)

    def asks(self, now: int = 0) -> list[tuple[list[str], int]]:
        return [(list(kinds), limit) for kinds, limit in self.room.asks(now)]

    def take(self, handler: Handler, count: int) -> None:
        for _ in range(count):
            self.room.took(handler)

    def run(self, handler: Handler, count: int, *, ran: bool = True) -> None:
        self.take(handler, count)
        for _ in range(count):
            self.room.freed(handler, ran=ran)


@pytest.fixture
def kit() -> Kit:
    return Kit()


def test_an_idle_worker_asks_for_as_many_as_it_has_slots(kit: Kit) -> None:
    assert kit.asks() == [(["free", "other"], 10), (["narrow", "slim"], 2)]


def test_what_is_taken_is_no_longer_free(kit: Kit) -> None:
    kit.take(kit.free, 7)
    kit.take(kit.narrow, 1)

    assert kit.asks() == [(["free", "other"], 2), (["narrow", "slim"], 1)]


def test_a_full_worker_asks_for_nothing(kit: Kit) -> None:
    kit.take(kit.free, 10)

    assert kit.asks() == []
    assert kit.room.is_full(kit.free)
    assert kit.room.is_full(kit.narrow)


def test_a_kind_at_its_bound_is_not_asked_for(kit: Kit) -> None:
    kit.take(kit.narrow, 2)

    assert kit.asks() == [(["free", "other"], 8)]
    assert kit.room.is_full(kit.narrow)
    assert not kit.room.is_full(kit.free)


def test_the_bound_of_a_kind_is_no_more_than_the_room() -> None:
    kit = Kit(concurrency=1)

    assert kit.asks() == [(["free", "other"], 1), (["narrow", "slim"], 1)]


def test_a_worker_of_bounded_kinds_only() -> None:
    registry = Registry()
    registry.add(Handler(noop, kind="narrow", concurrency=1))

    assert list(Room(registry, ["narrow"], 5).asks(0)) == [(["narrow"], 1)]


def test_a_fast_worker_queues_what_it_ran_in_the_last_moment(kit: Kit) -> None:
    kit.asks(0)
    kit.run(kit.free, 30)

    assert kit.asks(10 * MS)[0] == (["free", "other"], 40)
    assert kit.asks(40 * MS)[0] == (["free", "other"], 40)
    assert kit.asks(70 * MS)[0] == (["free", "other"], 10)


def test_the_queue_has_a_limit(kit: Kit) -> None:
    kit.asks(0)
    kit.run(kit.free, 10_000)

    assert kit.asks(10 * MS)[0] == (["free", "other"], 10 + QUEUE_LIMIT)


def test_what_was_given_back_does_not_count_as_run(kit: Kit) -> None:
    kit.asks(0)
    kit.run(kit.free, 30, ran=False)

    assert kit.asks(10 * MS)[0] == (["free", "other"], 10)


def test_time_leaves_nothing_behind(kit: Kit) -> None:
    for n in range(10_000):
        kit.asks(n * MS)

    assert len(kit.room._windows) < 100
