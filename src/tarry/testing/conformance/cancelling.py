"""What a cancel does; it marks the attempt, not the ref."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.answers import CancelResult, RenewResult, ScheduleStatus, SettleResult
from tarry.attempt import DONE, AnyOutcome, Dead
from tarry.due import In
from tarry.request import Cancellation, Request
from tarry.stores.store import CHUNK, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    AGAINS,
    KIND,
    OUTCOMES,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kept,
    kill,
    named,
    renew,
    schedule,
    settle,
    shown,
    start,
)


class Cancelling:
    """Call off what waits, and mark what runs."""

    def test_a_waiting_task_is_cancelled_and_never_starts(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, due=In(1_000))

        assert cancel(store) is CancelResult.CANCELLED

        assert get(store) is None
        clock.advance(60_000)
        assert claim(store) == []

    def test_an_overdue_task_can_still_be_cancelled(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        clock.advance(60_000)

        assert cancel(store) is CancelResult.CANCELLED
        assert claim(store) == []

    def test_nothing_to_cancel_is_absent(self, store: Store) -> None:
        assert cancel(store) is CancelResult.ABSENT
        assert cancel(store, if_revision=7) is CancelResult.ABSENT

    def test_what_is_done_is_absent(self, store: Store) -> None:
        settle(store, start(store))

        assert cancel(store) is CancelResult.ABSENT

    def test_a_dead_letter_is_absent_and_stays(self, store: Store) -> None:
        kill(store)

        assert cancel(store) is CancelResult.ABSENT
        assert shown(store).state is TaskState.DEAD

    def test_a_running_attempt_is_marked(self, store: Store) -> None:
        lease = start(store)

        assert cancel(store) is CancelResult.RUNNING

        assert shown(store).state is TaskState.LEASED
        assert shown(store).cancelled
        assert renew(store, lease) is RenewResult.CANCELLED

    def test_cancelling_a_running_attempt_twice_changes_nothing(self, store: Store) -> None:
        start(store)
        cancel(store)
        before = shown(store)

        assert cancel(store) is CancelResult.RUNNING
        assert shown(store) == before

    def test_what_waited_behind_a_running_attempt_is_gone(self, store: Store) -> None:
        lease = start(store)
        schedule(store, payload=b"behind")

        assert cancel(store) is CancelResult.RUNNING

        assert shown(store).revision == lease.task.revision
        settle(store, lease)
        assert get(store) is None
        assert claim(store) == []

    def test_another_revision_than_the_wanted_one_is_a_conflict(self, store: Store) -> None:
        old = schedule(store).revision
        new = schedule(store).revision

        assert cancel(store, if_revision=old) is CancelResult.CONFLICT
        assert shown(store).revision == new
        assert cancel(store, if_revision=new) is CancelResult.CANCELLED

    def test_if_revision_means_the_running_attempt_when_nothing_waits(self, store: Store) -> None:
        lease = start(store)

        assert cancel(store, if_revision=lease.task.revision + 1) is CancelResult.CONFLICT
        assert not shown(store).cancelled
        assert renew(store, lease) is RenewResult.RENEWED
        assert cancel(store, if_revision=lease.task.revision) is CancelResult.RUNNING

    def test_if_revision_means_the_newest_revision(self, store: Store) -> None:
        lease = start(store)
        behind = schedule(store).revision

        assert cancel(store, if_revision=lease.task.revision) is CancelResult.CONFLICT
        assert cancel(store, if_revision=behind) is CancelResult.RUNNING

    def test_a_cancel_of_what_runs_only_leaves_what_waits(self, store: Store) -> None:
        waiting = schedule(store).revision
        only = Cancellation(REF, only_running=True)

        assert store.cancel([only]) == [CancelResult.CONFLICT]
        assert shown(store).revision == waiting
        [lease] = claim(store)
        assert store.cancel([only]) == [CancelResult.RUNNING]
        assert renew(store, lease) is RenewResult.CANCELLED

    def test_cancels_of_one_batch_act_in_order(self, store: Store) -> None:
        schedule(store)
        running = TaskRef(KIND, "running")
        claim(store)
        schedule(store, running)

        answers = store.cancel(
            [
                Cancellation(running),
                Cancellation(running),
                Cancellation(REF, if_revision=0),
                Cancellation(REF),
                Cancellation(TaskRef(KIND, "absent")),
            ]
        )

        assert answers == [
            CancelResult.CANCELLED,
            CancelResult.ABSENT,
            CancelResult.CONFLICT,
            CancelResult.RUNNING,
            CancelResult.ABSENT,
        ]

    def test_a_full_chunk_is_cancelled_at_once(self, store: Store) -> None:
        refs = [TaskRef(KIND, str(n)) for n in range(CHUNK)]
        store.schedule([Request(ref, In(0)) for ref in refs])

        answers = store.cancel([Cancellation(ref) for ref in refs])

        assert answers == [CancelResult.CANCELLED] * CHUNK
        assert claim(store, limit=CHUNK) == []

    def test_cancelled_and_accepted_are_true(self) -> None:
        assert [answer for answer in CancelResult if answer] == [
            CancelResult.CANCELLED,
            CancelResult.ACCEPTED,
        ]

    @pytest.mark.parametrize("outcome", AGAINS, ids=named)
    def test_a_cancelled_attempt_is_not_attempted_again(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome
    ) -> None:
        lease = start(store)
        cancel(store)

        assert settle(store, lease, outcome) is SettleResult.SETTLED

        assert get(store) is None
        clock.advance(60_000)
        assert claim(store) == []

    def test_a_cancelled_attempt_whose_lease_ends_is_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        cancel(store)

        expire(clock)

        assert get(store) is None
        assert claim(store) == []
        assert settle(store, lease) is SettleResult.LEASE_LOST
        assert cancel(store) is CancelResult.ABSENT

    def test_a_cancelled_attempt_may_still_be_done_or_dead(self, store: Store) -> None:
        lease = start(store)
        cancel(store)
        assert settle(store, lease, Dead("broken")) is SettleResult.SETTLED
        assert [task.revision for task in kept(store, TaskState.DEAD)] == [lease.task.revision]

        lease = start(store)
        cancel(store)
        assert settle(store, lease, DONE) is SettleResult.SETTLED
        assert len(kept(store, TaskState.DEAD)) == 1

    @pytest.mark.parametrize("outcome", [*OUTCOMES, None], ids=named)
    def test_a_schedule_after_a_cancel_waits_behind_the_attempt_and_runs(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome | None
    ) -> None:
        lease = start(store, payload=b"old")
        cancel(store)

        answer = schedule(store, payload=b"new")

        assert answer.status is ScheduleStatus.CREATED
        assert claim(store) == []
        if outcome is None:
            expire(clock)
        else:
            assert settle(store, lease, outcome) is SettleResult.SUPERSEDED
        fresh = claim_one(store)
        assert (fresh.task.payload, fresh.cancelled) == (b"new", False)
        assert fresh.task.revision == answer.revision

    def test_a_schedule_behind_a_cancelled_attempt_does_not_take_the_mark_away(
        self, store: Store
    ) -> None:
        lease = start(store)
        cancel(store)

        schedule(store)

        assert renew(store, lease) is RenewResult.CANCELLED
        assert not shown(store).cancelled

    def test_a_schedule_after_a_cancel_can_be_cancelled_too(self, store: Store) -> None:
        lease = start(store)
        cancel(store)
        schedule(store)

        assert cancel(store) is CancelResult.RUNNING

        settle(store, lease)
        assert get(store) is None

    def test_an_ended_lease_does_not_stand_in_the_way_of_a_cancel(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        assert cancel(store) is CancelResult.CANCELLED

        assert get(store) is None
        assert settle(store, lease) is SettleResult.LEASE_LOST
        assert claim(store) == []

    def test_a_revision_behind_an_ended_lease_is_cancelled_for_good(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        schedule(store)
        expire(clock)

        assert cancel(store) is CancelResult.CANCELLED

        assert renew(store, lease) is RenewResult.LOST
        assert claim(store) == []
