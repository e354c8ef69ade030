"""A ref has two slots: the waiting revision and the running attempt."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest
from msgspec.structs import replace

from tarry.answers import RenewResult, ScheduleStatus, SettleResult
from tarry.attempt import DONE, AnyOutcome, Retry, Snooze
from tarry.due import In
from tarry.request import OnConflict
from tarry.stores.store import Store
from tarry.task import TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    OUTCOMES,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kept,
    named,
    renew,
    schedule,
    settle,
    shown,
    start,
)


class TwoSlots:
    """At most one revision waits, at most one attempt runs."""

    def test_a_revision_behind_a_running_attempt_is_not_claimable(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store)
        schedule(store)
        clock.advance(1_000)

        assert claim(store, holder="w2") == []

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
    def test_a_revision_behind_a_running_attempt_runs_once_it_is_settled(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, payload=b"old")
        newer = schedule(store, payload=b"new")
        before = shown(store)

        answer = settle(store, lease, outcome)

        assert answer is SettleResult.SUPERSEDED
        assert not answer
        assert shown(store) == before
        fresh = claim_one(store)
        assert fresh.task == replace(before, attempt=1, state=TaskState.LEASED)
        assert fresh.task.revision == newer.revision
        settle(store, fresh)
        assert claim(store) == []

    def test_a_revision_behind_a_running_attempt_runs_once_the_lease_has_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, payload=b"old")
        schedule(store, payload=b"new")
        expire(clock)

        fresh = claim_one(store, holder="w2")

        assert fresh.task.payload == b"new"
        assert (fresh.task.attempt, fresh.task.lost) == (1, 0)
        assert settle(store, lease) is SettleResult.LEASE_LOST

    def test_a_revision_that_is_not_yet_due_waits_on_after_the_attempt(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        schedule(store, due=In(5_000))

        settle(store, lease, Retry(In(0)))

        assert claim(store) == []
        clock.advance(5_000)
        assert len(claim(store)) == 1

    def test_replaced_while_running_then_cancelled_nothing_starts_any_more(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        schedule(store)
        cancel(store)

        settle(store, lease, Retry(In(0)))
        clock.advance(60_000)

        assert claim(store) == []
        assert get(store) is None

    def test_the_slot_behind_an_attempt_is_judged_by_itself(self, store: Store) -> None:
        start(store, payload=b"running")
        schedule(store, due=In(5_000), payload=b"1")

        kept_ = schedule(store, payload=b"2", on_conflict=OnConflict.KEEP)
        failed = schedule(store, payload=b"3", on_conflict=OnConflict.FAIL)
        replaced = schedule(store, payload=b"4", on_conflict=OnConflict.LATEST)

        assert kept_.status is ScheduleStatus.KEPT
        assert failed.status is ScheduleStatus.CONFLICT
        assert replaced.status is ScheduleStatus.REPLACED
        assert replaced.due == kept_.due
        assert shown(store).payload == b"4"

    def test_a_replace_behind_an_attempt_leaves_the_lease_alone(self, store: Store) -> None:
        lease = start(store)

        schedule(store)

        assert renew(store, lease) is RenewResult.RENEWED
        assert claim(store, holder="w2") == []

    def test_a_superseded_retry_leaves_no_trace(self, store: Store) -> None:
        lease = start(store)
        newer = schedule(store, due=In(9_000))

        settle(store, lease, Snooze(In(1)))

        task = shown(store)
        assert (task.due, task.revision) == (newer.due, newer.revision)
        assert (task.attempt, task.snoozes) == (0, 0)

    def test_a_superseded_task_that_is_dead_is_recorded(self, store: Store) -> None:
        lease = start(store)
        schedule(store)

        settle(store, lease, OUTCOMES[2])

        [letter] = kept(store, TaskState.DEAD)
        assert (letter.revision, letter.reason) == (lease.task.revision, "broken")

    @pytest.mark.parametrize("outcome", OUTCOMES[:2], ids=named)
    def test_a_superseded_task_that_is_done_is_recorded(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, keep_ms=60_000)
        schedule(store)

        settle(store, lease, outcome)

        assert [task.revision for task in kept(store, TaskState.DONE)] == [lease.task.revision]

    def test_at_most_one_lease_of_a_ref_lives(self, store: Store, clock: ManualClock) -> None:
        first = start(store)
        expire(clock)
        second = claim_one(store, holder="w2")
        schedule(store)
        expire(clock)
        third = claim_one(store, holder="w3")

        answers = store.renew([first, second, third], lease_ms=5_000)

        assert answers == [RenewResult.LOST, RenewResult.LOST, RenewResult.RENEWED]
        assert settle(store, third, DONE) is SettleResult.SETTLED
