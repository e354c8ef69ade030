"""History: what ended is kept for as long as the task says."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest
from msgspec.structs import replace

from tarry.attempt import AnyOutcome, Done, Skip
from tarry.due import In
from tarry.stores.store import Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    AGAINS,
    KIND,
    REF,
    cancel,
    claim,
    expire,
    get,
    kept,
    kill,
    named,
    scanned,
    schedule,
    settle,
    shown,
    start,
)

KEEP_MS = 60_000


def forget(store: Store) -> None:
    """Settle a few attempts in every shard: each drops some of the history that is too old."""
    for n in range(5 + 16 * (store.capabilities.shards - 1)):
        settle(store, start(store, TaskRef("other.kind", str(n))))


class History:
    """Done and cancelled tasks can be looked up while history is kept."""

    @pytest.mark.parametrize("outcome", [Done(), Skip("paid")], ids=named)
    def test_a_done_task_is_kept(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome
    ) -> None:
        lease = start(store, keep_ms=KEEP_MS, payload=b"p")
        clock.advance(70)

        settle(store, lease, outcome)

        expected = replace(
            lease.task, state=TaskState.DONE, ended=clock.now(), reason=outcome.reason
        )
        assert shown(store) == expected
        assert kept(store, TaskState.DONE) == [expected]
        assert claim(store) == []

    def test_a_cancelled_task_is_kept(self, store: Store, clock: ManualClock) -> None:
        schedule(store, due=In(5_000), keep_ms=KEEP_MS)
        before = shown(store)
        clock.advance(70)

        cancel(store)

        expected = replace(before, state=TaskState.CANCELLED, ended=clock.now())
        assert shown(store) == expected
        assert kept(store, TaskState.CANCELLED) == [expected]
        clock.advance(5_000)
        assert claim(store) == []

    @pytest.mark.parametrize("outcome", [*AGAINS, None], ids=named)
    def test_a_cancelled_attempt_is_kept_as_cancelled(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome | None
    ) -> None:
        lease = start(store, keep_ms=KEEP_MS)
        cancel(store)

        if outcome is None:
            expire(clock)
            claim(store)
        else:
            settle(store, lease, outcome)

        [task] = kept(store, TaskState.CANCELLED)
        assert (task.revision, task.attempt, task.cancelled) == (lease.task.revision, 1, True)

    def test_a_cancelled_occurrence_that_yields_to_a_newer_revision_is_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, keep_ms=KEEP_MS, rule="every 1h", declared=True)
        cancel(store)
        schedule(store)
        expire(clock)

        claim(store)

        [task] = kept(store, TaskState.CANCELLED)
        assert task.revision == lease.task.revision

    def test_what_waited_behind_a_cancelled_attempt_is_kept_too(self, store: Store) -> None:
        lease = start(store, keep_ms=KEEP_MS)
        behind = schedule(store, keep_ms=KEEP_MS)
        cancel(store)

        settle(store, lease, AGAINS[0])

        revisions = [task.revision for task in kept(store, TaskState.CANCELLED)]
        assert revisions == [lease.task.revision, behind.revision]

    def test_a_replaced_revision_leaves_no_history(self, store: Store) -> None:
        schedule(store, keep_ms=KEEP_MS)

        schedule(store, keep_ms=KEEP_MS)

        assert kept(store, TaskState.CANCELLED) == kept(store, TaskState.DONE) == []

    def test_history_does_not_wait_or_run(self, store: Store) -> None:
        settle(store, start(store, keep_ms=KEEP_MS))

        assert scanned(store, Filter()) == []
        counts = store.counts([KIND])[KIND]
        assert (counts.scheduled, counts.leased, counts.dead) == (0, 0, 0)

    def test_every_revision_that_ended_is_kept(self, store: Store) -> None:
        for _ in range(3):
            settle(store, start(store, keep_ms=KEEP_MS))

        assert len(kept(store, TaskState.DONE)) == 3

    def test_history_is_kept_as_long_as_it_was_asked_for(
        self, store: Store, clock: ManualClock
    ) -> None:
        settle(store, start(store, keep_ms=KEEP_MS))
        clock.advance(KEEP_MS - 1)

        forget(store)

        assert shown(store).state is TaskState.DONE

    def test_history_that_is_too_old_goes_with_later_settlements(
        self, store: Store, clock: ManualClock
    ) -> None:
        settle(store, start(store, keep_ms=KEEP_MS))
        schedule(store, TaskRef(KIND, "cancelled"), keep_ms=KEEP_MS)
        cancel(store, TaskRef(KIND, "cancelled"))
        clock.advance(KEEP_MS + 1)

        forget(store)

        assert store.get([REF, TaskRef(KIND, "cancelled")]) == [None, None]
        assert kept(store, TaskState.DONE) == []

    def test_history_that_is_kept_longer_does_not_hold_up_the_rest(
        self, store: Store, clock: ManualClock
    ) -> None:
        for n in range(30):
            settle(store, start(store, TaskRef(KIND, str(n)), keep_ms=1_000 * KEEP_MS))
        settle(store, start(store, keep_ms=KEEP_MS))
        clock.advance(KEEP_MS + 1)

        forget(store)

        assert get(store) is None
        assert len(scanned(store, Filter(state=TaskState.DONE))) == 30

    def test_dead_letters_are_never_forgotten(self, store: Store, clock: ManualClock) -> None:
        kill(store, keep_ms=KEEP_MS)
        clock.advance(1_000 * KEEP_MS)

        forget(store)

        assert shown(store).state is TaskState.DEAD
