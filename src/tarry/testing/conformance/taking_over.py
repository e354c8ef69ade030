"""TakingOver: what another store has shown is placed as it was."""
# ruff: noqa: D102 - the name of a promise is its sentence

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from tarry.due import In
from tarry.errors import UnsupportedError
from tarry.request import DeadRef
from tarry.stores.store import Store
from tarry.task import Task, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    LIMIT_S,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kept,
    move,
    schedule,
    settle,
    shown,
    start,
)

_EVERY = '{"every":3600000}'


def waiting(clock: ManualClock) -> Task:
    """Return a task that has gone through something."""
    return Task(
        ref=REF,
        due=clock.now() + 60_000,
        revision=7,
        created=clock.now() - 60_000,
        payload=b'{"order_id":42}',
        headers=b'{"trace":"1"}',
        attempt=3,
        snoozes=2,
        lost=1,
        rule=_EVERY,
        nominal=clock.now() + 30_000,
        keep_ms=5_000,
        reason="try again",
    )


def letter(clock: ManualClock) -> Task:
    """Return a dead letter."""
    return replace(waiting(clock), state=TaskState.DEAD, ended=clock.now() - 1_000, reason="broken")


def _needs(store: Store) -> None:
    if not store.capabilities.takes_over:
        pytest.skip(f"{store.capabilities.medium} does not keep what tasks went through")


class TakingOver:
    """`take_over`, by which tasks move from one store to another."""

    def test_a_waiting_task_is_placed_as_it_was(self, store: Store, clock: ManualClock) -> None:
        _needs(store)
        task = waiting(clock)

        assert store.take_over([task]) == [True]

        found = get(store)
        assert found is not None
        assert replace(found, revision=7) == task
        assert found.revision > 0

    def test_one_that_waits_already_stays(self, store: Store, clock: ManualClock) -> None:
        old = schedule(store, due=In(1_000))

        assert store.take_over([waiting(clock)]) == [False]

        found = get(store)
        assert found is not None
        assert found.revision == old.revision

    def test_one_that_waits_already_is_replaced_if_asked_to(
        self, store: Store, clock: ManualClock
    ) -> None:
        old = schedule(store, due=In(1_000))

        assert store.take_over([waiting(clock)], replace=True) == [True]

        found = get(store)
        assert found is not None
        assert found.revision > old.revision
        assert found.payload == waiting(clock).payload

    def test_it_waits_behind_a_running_attempt(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)

        assert store.take_over([replace(waiting(clock), due=clock.now())]) == [True]

        assert claim(store) == []
        settle(store, lease)
        assert claim_one(store).task.payload == waiting(clock).payload

    @pytest.mark.parametrize("over", [False, True])
    def test_what_waits_behind_an_attempt_yields_only_if_asked_to(
        self, store: Store, clock: ManualClock, *, over: bool
    ) -> None:
        lease = start(store)
        schedule(store, due=In(1_000), payload=b"first")

        assert store.take_over([waiting(clock)], replace=over) == [over]

        settle(store, lease)
        assert shown(store).payload == (waiting(clock).payload if over else b"first")

    def test_a_lease_that_has_ended_is_no_attempt(self, store: Store, clock: ManualClock) -> None:
        start(store)
        expire(clock)

        answers = [store.take_over([waiting(clock)], replace=over) for over in (False, True)]

        assert answers == [[False], [True]]
        assert shown(store).payload == waiting(clock).payload

    def test_it_is_claimed_when_it_is_due(self, store: Store, clock: ManualClock) -> None:
        _needs(store)
        store.take_over([waiting(clock)])

        clock.advance(60_000)
        lease = claim_one(store)

        assert lease.task.attempt == 4

    def test_a_dead_letter_is_placed_once(self, store: Store, clock: ManualClock) -> None:
        if not store.capabilities.takes_over:
            with pytest.raises(UnsupportedError):
                store.take_over([letter(clock)])
            return
        dead = letter(clock)

        answers = store.take_over([dead]) + store.take_over([dead])
        [found] = kept(store, TaskState.DEAD)

        assert answers == [True, False]
        assert replace(found, revision=7) == dead
        assert store.revive([DeadRef(REF)])[0]

    def test_letters_of_one_batch_act_in_order(self, store: Store, clock: ManualClock) -> None:
        _needs(store)
        dead = letter(clock)
        later = replace(dead, ended=dead.ended + 1, reason="again")

        assert store.take_over([dead, dead, later]) == [True, False, True]

        assert [task.reason for task in kept(store, TaskState.DEAD)] == ["broken", "again"]
        assert store.revive([DeadRef(REF)])[0]
        assert [task.reason for task in kept(store, TaskState.DEAD)] == ["broken"]

    def test_a_dead_letter_leaves_what_waits_alone(self, store: Store, clock: ManualClock) -> None:
        _needs(store)
        before = schedule(store, due=In(1_000))

        assert store.take_over([letter(clock)], replace=True) == [True]

        [dead] = kept(store, TaskState.DEAD)
        assert shown(store).revision == before.revision < dead.revision
        assert move(store, In(2_000)).revision > dead.revision

    def test_revisions_grow_behind_a_dead_letter(self, store: Store, clock: ManualClock) -> None:
        _needs(store)
        before = schedule(store)
        cancel(store)
        store.take_over([letter(clock)])
        [dead] = kept(store, TaskState.DEAD)

        assert before.revision < dead.revision < schedule(store).revision

    def test_what_several_bring_at_once_is_placed_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        _needs(store)
        tasks = [waiting(clock), letter(clock)]
        together = threading.Barrier(4)

        def bring(_: int) -> list[bool]:
            together.wait(LIMIT_S)
            return store.take_over(tasks)

        with ThreadPoolExecutor(together.parties) as pool:
            answers = list(pool.map(bring, range(together.parties)))

        assert [sum(placed) for placed in zip(*answers, strict=True)] == [1, 1]
        assert len(kept(store, TaskState.DEAD)) == 1
