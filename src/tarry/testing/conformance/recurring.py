"""Recurring tasks: the next occurrence is placed by the settlement of this one."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest
from msgspec.structs import replace

from tarry.answers import CancelResult, RenewResult, SettleResult
from tarry.attempt import DONE, RELEASE, AnyOutcome, Dead, Retry, Snooze
from tarry.due import At, In
from tarry.lease import Lease
from tarry.request import OnConflict, Successor
from tarry.stores.store import Store
from tarry.task import TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    AGAINS,
    ENDINGS,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kept,
    move,
    named,
    renew,
    revive,
    schedule,
    settle,
    shown,
    start,
)

RULE = "every 1h"
HOUR = 3_600_000


def following(lease: Lease) -> Successor:
    """Return the occurrence after the one under *lease*."""
    return Successor(lease.task.nominal + HOUR, lease.task.nominal + HOUR)


class Recurring:
    """A series goes on until it is ended."""

    def test_the_first_occurrence_is_the_due_itself(self, store: Store) -> None:
        answer = schedule(store, due=In(5_000), rule=RULE)

        task = shown(store)
        assert (task.rule, task.nominal, task.declared) == (RULE, answer.due, False)

    def test_an_occurrence_may_be_named(self, store: Store) -> None:
        schedule(store, due=In(5_000), rule=RULE, nominal=1_234, declared=True)

        assert (shown(store).nominal, shown(store).declared) == (1_234, True)

    def test_a_task_without_a_rule_has_no_occurrence(self, store: Store) -> None:
        schedule(store)

        assert (shown(store).rule, shown(store).nominal) == ("", 0)

    @pytest.mark.parametrize("outcome", ENDINGS, ids=named)
    def test_the_next_occurrence_is_placed_when_this_one_ends(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome
    ) -> None:
        lease = start(store, rule=RULE, payload=b"p", headers=b"h", declared=True, keep_ms=7)
        settle(store, lease, Snooze(In(0)))
        claim_one(store)
        expire(clock)
        lease = claim_one(store)
        successor = Successor(clock.now() + HOUR + 5, lease.task.nominal + HOUR)

        assert settle(store, lease, outcome, successor) is SettleResult.SETTLED

        task = shown(store)
        assert task.revision > lease.task.revision
        assert task == replace(
            lease.task,
            state=TaskState.SCHEDULED,
            revision=task.revision,
            created=clock.now(),
            due=successor.due,
            nominal=successor.nominal,
            attempt=0,
            snoozes=0,
            lost=0,
            reason="",
        )

    def test_a_dead_occurrence_is_a_dead_letter_and_the_series_goes_on(self, store: Store) -> None:
        lease = start(store, rule=RULE)

        settle(store, lease, Dead("broken"), following(lease))

        assert [task.revision for task in kept(store, TaskState.DEAD)] == [lease.task.revision]
        assert shown(store).state is TaskState.SCHEDULED

    @pytest.mark.parametrize("outcome", AGAINS, ids=named)
    def test_no_occurrence_follows_one_that_is_not_over(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, rule=RULE)

        assert settle(store, lease, outcome, following(lease)) is SettleResult.SETTLED

        task = shown(store)
        assert (task.revision, task.nominal) == (lease.task.revision, lease.task.nominal)

    def test_an_occurrence_that_should_have_been_is_due_now(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, rule=RULE)
        clock.advance(2 * HOUR)

        settle(store, lease, DONE, following(lease))

        task = shown(store)
        assert (task.due, task.nominal) == (clock.now(), lease.task.nominal + HOUR)

    @pytest.mark.parametrize("outcome", ENDINGS, ids=named)
    def test_the_next_occurrence_yields_to_a_newer_revision(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, rule=RULE)
        schedule(store, due=In(50), rule=RULE)
        before = shown(store)

        assert settle(store, lease, outcome, following(lease)) is SettleResult.SUPERSEDED

        assert shown(store) == before

    def test_a_task_without_a_successor_ends_its_series(self, store: Store) -> None:
        settle(store, start(store, rule=RULE), DONE)

        assert get(store) is None

    @pytest.mark.parametrize("outcome", [DONE, RELEASE, Retry(In(0))], ids=named)
    def test_a_callers_series_ends_when_it_is_cancelled_while_it_runs(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, rule=RULE)
        assert cancel(store) is CancelResult.RUNNING

        assert settle(store, lease, outcome, following(lease)) is SettleResult.SETTLED

        assert get(store) is None

    @pytest.mark.parametrize("outcome", [DONE, RELEASE, Retry(In(0))], ids=named)
    def test_a_declared_series_goes_on_when_an_occurrence_is_cancelled_while_it_runs(
        self, store: Store, outcome: AnyOutcome
    ) -> None:
        lease = start(store, rule=RULE, declared=True)
        assert cancel(store) is CancelResult.RUNNING

        assert settle(store, lease, outcome, following(lease)) is SettleResult.SETTLED

        task = shown(store)
        assert task.nominal == lease.task.nominal + HOUR
        assert (task.cancelled, task.attempt) == (False, 0)

    def test_a_cancelled_occurrence_of_a_declared_series_is_handed_out_again_marked(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store, rule=RULE, declared=True)
        cancel(store)
        expire(clock)

        lease = claim_one(store, holder="w2")

        assert lease.cancelled
        assert (lease.task.attempt, lease.task.lost) == (2, 1)
        assert renew(store, lease) is RenewResult.CANCELLED
        assert settle(store, lease, RELEASE, following(lease)) is SettleResult.SETTLED
        assert not shown(store).cancelled

    def test_a_revision_behind_a_cancelled_declared_occurrence_runs_unmarked(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store, rule=RULE, declared=True)
        cancel(store)
        schedule(store, payload=b"new")
        expire(clock)

        lease = claim_one(store)

        assert (lease.task.payload, lease.cancelled) == (b"new", False)

    def test_a_moved_occurrence_is_no_longer_marked(self, store: Store, clock: ManualClock) -> None:
        start(store, rule=RULE, declared=True)
        cancel(store)
        expire(clock)

        assert move(store, In(0))

        assert not claim_one(store).cancelled

    def test_a_callers_series_ends_when_it_is_cancelled_while_it_waits(self, store: Store) -> None:
        schedule(store, rule=RULE)

        assert cancel(store) is CancelResult.CANCELLED

        assert get(store) is None
        assert claim(store) == []

    def test_a_revision_behind_a_running_occurrence_inherits_the_rule(self, store: Store) -> None:
        lease = start(store, rule=RULE, declared=True)

        schedule(store, due=In(50), payload=b"new")

        task = shown(store)
        assert (task.rule, task.nominal, task.declared) == (RULE, lease.task.nominal, True)
        assert task.payload == b"new"

    @pytest.mark.parametrize(
        "mode", [OnConflict.REPLACE, OnConflict.EARLIEST, OnConflict.LATEST], ids=named
    )
    def test_a_replaced_occurrence_stays_in_its_series(
        self, store: Store, mode: OnConflict
    ) -> None:
        schedule(store, due=In(5_000), rule=RULE, declared=True)
        before = shown(store)

        schedule(store, due=In(9_000), on_conflict=mode)

        task = shown(store)
        assert (task.rule, task.nominal, task.declared) == (RULE, before.nominal, True)

    def test_a_rule_of_its_own_is_not_overruled(self, store: Store) -> None:
        start(store, rule=RULE, declared=True)

        answer = schedule(store, due=In(50), rule="every 2h")

        task = shown(store)
        assert (task.rule, task.nominal, task.declared) == ("every 2h", answer.due, False)

    def test_a_series_that_was_cancelled_while_it_ran_is_not_inherited(self, store: Store) -> None:
        start(store, rule=RULE)
        cancel(store)

        schedule(store)

        assert (shown(store).rule, shown(store).nominal) == ("", 0)

    def test_a_declared_series_is_inherited_though_its_attempt_was_cancelled(
        self, store: Store
    ) -> None:
        start(store, rule=RULE, declared=True)
        cancel(store)

        schedule(store)

        assert (shown(store).rule, shown(store).declared) == (RULE, True)

    def test_retry_snooze_release_and_loss_do_not_shift_the_series(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, rule=RULE)
        nominal = lease.task.nominal

        for outcome in (Retry(In(50)), Snooze(In(50)), RELEASE):
            settle(store, lease, outcome)
            assert shown(store).nominal == nominal
            clock.advance(50)
            lease = claim_one(store)
        expire(clock)

        assert claim_one(store).task.nominal == nominal

    def test_a_move_does_not_shift_the_series(self, store: Store) -> None:
        first = schedule(store, due=In(5_000), rule=RULE)

        move(store, In(60_000))

        assert shown(store).nominal == first.due

    def test_a_move_may_go_on_to_another_occurrence(self, store: Store) -> None:
        first = schedule(store, due=In(5_000), rule=RULE)

        move(store, At(first.due + HOUR), nominal=first.due + HOUR)

        task = shown(store)
        assert task.due == task.nominal == first.due + HOUR
        assert task.rule == RULE

    def test_a_revived_occurrence_has_no_successor(self, store: Store) -> None:
        settle(store, start(store, rule=RULE, declared=True), Dead("broken"))

        revive(store)

        task = shown(store)
        assert (task.rule, task.nominal, task.declared) == ("", 0, False)
