"""The memory store keeps every promise of a store, and stays small."""

import random
import threading

import pytest

from tarry.attempt import Retry
from tarry.clock import SystemClock
from tarry.due import In
from tarry.errors import RefError
from tarry.lease import Lease
from tarry.life import Life
from tarry.request import Request
from tarry.stores.memory import MemoryStore
from tarry.stores.store import RECLAIM_LIMIT, Filter, Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises
from tarry.testing.conformance.kit import (
    KIND,
    LEASE_MS,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    move,
    scanned,
    schedule,
    settle,
    shown,
    start,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(namespace="test", clock=clock)


@pytest.fixture
def other(clock: ManualClock) -> MemoryStore:
    return MemoryStore(namespace="other", clock=clock)


class TestMemoryStore(StorePromises):
    pass


def test_a_namespace_is_checked() -> None:
    with pytest.raises(RefError):
        MemoryStore(namespace="not allowed")


def test_without_a_clock_the_real_one_is_used() -> None:
    store = MemoryStore()
    before = SystemClock().now()

    schedule(store)

    assert before <= shown(store).due <= SystemClock().now()


def test_tokens_come_from_the_dice_that_were_handed_in(clock: ManualClock) -> None:
    tokens = [start(MemoryStore(clock=clock, rng=random.Random(seed))).token for seed in (1, 1, 2)]

    assert tokens[0] == tokens[1] != tokens[2]


def test_a_closed_store_may_be_used_again(store: MemoryStore) -> None:
    schedule(store)
    store.close()

    assert shown(store).state is TaskState.SCHEDULED


def test_memory_has_no_layout(store: MemoryStore) -> None:
    assert store.migrate() == []


def test_a_repeated_call_is_remembered_for_half_a_minute(
    store: MemoryStore, clock: ManualClock
) -> None:
    request = Request(REF, In(0))
    first = store.schedule([request], call="c")
    clock.advance(29_999)
    assert store.schedule([request], call="c") == first

    clock.advance(1)

    assert store.schedule([request], call="c") != first


@pytest.mark.parametrize("verb", ["schedule", "settle"])
def test_who_is_woken_may_wait_for_another_thread_that_uses_the_store(
    store: MemoryStore, verb: str
) -> None:
    lease = start(store, TaskRef(KIND, "other"))
    seen: list[Task | None] = []

    def look(_due: int) -> None:
        thread = threading.Thread(target=lambda: seen.extend(store.get([REF])), daemon=True)
        thread.start()
        thread.join(5.0)

    store.watch(look)
    if verb == "schedule":
        schedule(store)
    else:
        settle(store, lease, Retry(In(0)))

    assert len(seen) == 1


def test_a_batch_wakes_with_its_earliest_due(store: MemoryStore, clock: ManualClock) -> None:
    heard: list[int] = []
    store.watch(heard.append)

    store.schedule([Request(TaskRef(KIND, str(n)), In(n)) for n in (30, 10, 20)])

    assert heard == [clock.now() + 10]


def test_a_claim_ends_a_bounded_number_of_leases(store: MemoryStore, clock: ManualClock) -> None:
    count = RECLAIM_LIMIT + 50
    store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(count)])
    claim(store, limit=count)
    expire(clock)

    claimed = store.claim([KIND], limit=count, lease_ms=LEASE_MS, holder="w2")

    assert len(claimed.leases) == RECLAIM_LIMIT
    assert claimed.next_due is not None
    assert claimed.next_due <= clock.now()
    assert len(claim(store, limit=count)) == 50


def test_what_was_moved_away_does_not_pile_up(store: MemoryStore) -> None:
    schedule(store)

    for n in range(1_000):
        move(store, In(n))

    assert len(store._lanes[KIND]._heap) < 200
    assert len(store._lanes[KIND]._wheel) == 1
    assert store.check() == []


def test_nothing_is_left_of_what_ended(store: MemoryStore, clock: ManualClock) -> None:
    for n in range(50):
        settle(store, start(store, TaskRef(KIND, str(n)), keep_ms=10))
        clock.advance(11)
    settle(store, start(store, TaskRef(KIND, "last")))

    assert (store._lives, store._history, store._dead) == ({}, {}, {})


def test_check_finds_a_lane_that_does_not_agree(store: MemoryStore) -> None:
    schedule(store)
    task = shown(store)

    store._lanes[KIND].change(None, (task.due + 1, task.revision, REF))

    assert store.check() == ["the lanes do not agree with the waiting tasks"]


def test_check_finds_a_lease_that_does_not_agree(store: MemoryStore) -> None:
    lease = start(store)

    store._leases[KIND].change((lease.expires, lease.token, REF), None)

    assert store.check() == ["the lease order does not agree with the running attempts"]


def test_a_scan_examines_at_most_ten_times_its_limit(store: MemoryStore) -> None:
    store.schedule([Request(TaskRef(KIND, f"k{n:03}"), In(0)) for n in range(45)])
    schedule(store, TaskRef(KIND, "z"))

    page = store.scan(Filter(key_prefix="z"), limit=2)

    assert page.tasks == []
    assert page.cursor is not None
    assert [task.ref.key for task in scanned(store, Filter(key_prefix="z"), 2)] == ["z"]


def test_threads_may_share_a_store(store: Store) -> None:
    refs = [TaskRef(KIND, str(n)) for n in range(400)]
    store.schedule([Request(ref, In(0)) for ref in refs])
    taken: list[Lease] = []

    def work() -> None:
        while leases := claim(store, limit=7):
            taken.extend(leases)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)

    assert sorted(lease.ref for lease in taken) == sorted(refs)


def test_an_undo_may_be_repeated(store: MemoryStore) -> None:
    heard: list[int] = []
    undo = store.watch(heard.append)
    undo()
    undo()

    schedule(store)

    assert heard == []


def test_a_life_is_forgotten_once_it_is_empty(store: MemoryStore, clock: ManualClock) -> None:
    start(store)
    cancel(store)
    expire(clock)
    claim(store)

    assert store._lives.get(REF, Life()) == Life()
    schedule(store)
    assert claim_one(store).task.lost == 0
