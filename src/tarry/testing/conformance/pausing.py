"""A paused kind is not claimed; everything else goes on."""
# ruff: noqa: D102 - the name of a promise is its sentence

from tarry.answers import CancelResult, MoveStatus, RenewResult, ScheduleStatus, SettleResult
from tarry.attempt import Retry
from tarry.due import In
from tarry.stores.store import Claimed, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    ANOTHER_KIND,
    KIND,
    LEASE_MS,
    cancel,
    claim,
    claim_one,
    expire,
    move,
    renew,
    schedule,
    settle,
    shown,
    start,
)


def look(store: Store, *kinds: str) -> Claimed:
    """Claim, and show all that is answered."""
    return store.claim(kinds, limit=100, lease_ms=LEASE_MS, holder="w1")


class Pausing:
    """Stop a kind, and resume it."""

    def test_pause_says_whether_the_kind_was_paused_before(self, store: Store) -> None:
        answers = [store.pause(KIND, paused) for paused in (True, True, False, False, True)]

        assert answers == [False, True, True, False, False]

    def test_nothing_of_a_paused_kind_is_claimed(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        store.pause(KIND, paused=True)
        clock.advance(60_000)

        assert claim(store) == []

        store.pause(KIND, paused=False)
        assert len(claim(store)) == 1

    def test_other_kinds_go_on(self, store: Store) -> None:
        schedule(store)
        schedule(store, TaskRef(ANOTHER_KIND, "1"))
        store.pause(KIND, paused=True)

        assert [lease.ref.kind for lease in claim(store, KIND, ANOTHER_KIND)] == [ANOTHER_KIND]

    def test_next_due_leaves_a_paused_kind_out(self, store: Store, clock: ManualClock) -> None:
        start(store)
        schedule(store, TaskRef(KIND, "2"), In(1_000))
        schedule(store, TaskRef(ANOTHER_KIND, "1"), In(50_000))
        store.pause(KIND, paused=True)

        assert look(store, KIND).next_due is None
        assert look(store, KIND, ANOTHER_KIND).next_due == clock.now() + 50_000

    def test_leases_taken_before_are_renewed_and_settled(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        store.pause(KIND, paused=True)
        clock.advance(LEASE_MS - 1)

        assert renew(store, lease) is RenewResult.RENEWED
        assert settle(store, lease, Retry(In(0))) is SettleResult.SETTLED
        assert claim(store) == []

    def test_ended_leases_wait_for_resume(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        store.pause(KIND, paused=True)
        expire(clock)
        assert claim(store) == []
        assert renew(store, lease) is RenewResult.RENEWED
        expire(clock)

        store.pause(KIND, paused=False)

        assert claim_one(store).task.lost == 1
        assert settle(store, lease) is SettleResult.LEASE_LOST

    def test_callers_notice_nothing(self, store: Store) -> None:
        store.pause(KIND, paused=True)

        assert schedule(store).status is ScheduleStatus.CREATED
        assert schedule(store).status is ScheduleStatus.REPLACED
        assert move(store, In(5)).status is MoveStatus.MOVED
        assert shown(store).state is TaskState.SCHEDULED
        assert cancel(store) is CancelResult.CANCELLED

    def test_counts_says_which_kinds_are_paused(self, store: Store) -> None:
        schedule(store)
        schedule(store, TaskRef(ANOTHER_KIND, "1"))
        store.pause(KIND, paused=True)
        store.pause("empty.kind", paused=True)

        counts = store.counts()

        paused = {kind: count.paused for kind, count in counts.items()}
        assert paused == {KIND: True, ANOTHER_KIND: False, "empty.kind": True}
        assert counts[KIND].scheduled == 1

    def test_a_kind_is_no_longer_paused_once_it_was_resumed(self, store: Store) -> None:
        schedule(store)
        store.pause(KIND, paused=True)

        store.pause(KIND, paused=False)

        assert not store.counts()[KIND].paused
