"""What a settlement does with each outcome."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest
from msgspec.structs import replace

from tarry.answers import SettleResult
from tarry.attempt import (
    DONE,
    REASON_LIMIT,
    RELEASE,
    AnyOutcome,
    Dead,
    Done,
    Release,
    Retry,
    Skip,
    Snooze,
)
from tarry.clock import MS_PER_YEAR_9999
from tarry.due import At, In
from tarry.request import Request, Settlement
from tarry.stores.store import Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    OUTCOMES,
    REF,
    claim,
    claim_one,
    expire,
    get,
    kept,
    named,
    schedule,
    settle,
    shown,
    start,
)


class Settling:
    """Record the outcome and end the lease."""

    @pytest.mark.parametrize("outcome", [Done(), Skip("paid")], ids=named)
    def test_a_task_that_is_done_is_gone(
        self, store: Store, clock: ManualClock, outcome: AnyOutcome
    ) -> None:
        lease = start(store)

        answer = settle(store, lease, outcome)

        assert answer is SettleResult.SETTLED
        assert answer
        assert get(store) is None
        clock.advance(60_000)
        assert claim(store) == []

    def test_a_task_that_cannot_succeed_becomes_a_dead_letter(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, payload=b"p", headers=b"h")
        clock.advance(70)

        assert settle(store, lease, Dead("no such order")) is SettleResult.SETTLED

        assert shown(store) == replace(
            lease.task, state=TaskState.DEAD, ended=clock.now(), reason="no such order"
        )
        assert claim(store) == []

    def test_a_retry_waits_until_its_due(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        clock.advance(70)

        assert settle(store, lease, Retry(In(500), "timed out")) is SettleResult.SETTLED

        assert shown(store) == replace(
            lease.task,
            state=TaskState.SCHEDULED,
            due=clock.now() + 500,
            reason="timed out",
        )
        clock.advance(499)
        assert claim(store) == []
        clock.advance(1)
        assert claim_one(store).task.attempt == 2

    def test_a_snooze_gives_the_attempt_back(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        clock.advance(70)

        assert settle(store, lease, Snooze(In(500), "not yet")) is SettleResult.SETTLED

        assert shown(store) == replace(
            lease.task,
            state=TaskState.SCHEDULED,
            due=clock.now() + 500,
            attempt=0,
            snoozes=1,
            reason="not yet",
        )

    def test_a_release_gives_the_attempt_back_and_changes_nothing_else(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store)
        before = shown(store)
        clock.advance(70)
        lease = claim_one(store)
        clock.advance(70)

        assert settle(store, lease, RELEASE) is SettleResult.SETTLED

        assert shown(store) == before
        assert claim_one(store, holder="w2").task == lease.task

    def test_a_released_lost_attempt_keeps_its_loss(self, store: Store, clock: ManualClock) -> None:
        start(store)
        expire(clock)

        settle(store, claim_one(store), Release())

        task = shown(store)
        assert (task.attempt, task.lost, task.snoozes) == (1, 1, 0)

    @pytest.mark.parametrize("wish", [Retry, Snooze])
    def test_a_retry_in_the_past_is_due_now(
        self, store: Store, clock: ManualClock, wish: type[Retry | Snooze]
    ) -> None:
        settle(store, start(store), wish(At(clock.now() - 5_000)))

        assert shown(store).due == clock.now()

    def test_a_retry_at_an_instant_is_due_then(self, store: Store, clock: ManualClock) -> None:
        settle(store, start(store), Retry(At(clock.now() + 777)))

        assert shown(store).due == clock.now() + 777

    def test_a_retry_is_due_in_the_year_9999_at_the_latest(self, store: Store) -> None:
        settle(store, start(store), Retry(In(MS_PER_YEAR_9999)))

        assert shown(store).due == MS_PER_YEAR_9999

    def test_a_reason_is_kept_exactly(self, store: Store) -> None:
        reason = "'quoted' \"twice\"\nline 2 🐢 " + "x" * REASON_LIMIT

        settle(store, start(store), Dead(reason))

        assert shown(store).reason == reason[:REASON_LIMIT]

    def test_counters_add_up_over_a_long_life(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        seen = []
        for outcome in (Retry(In(0)), Snooze(In(0)), Release(), Snooze(In(0)), None, Retry(In(0))):
            lease = claim_one(store)
            if outcome is None:
                expire(clock)
            else:
                settle(store, lease, outcome)
            task = shown(store)
            seen.append((task.attempt, task.snoozes, task.lost))

        assert seen == [(1, 0, 0), (1, 1, 0), (1, 1, 0), (1, 2, 0), (2, 2, 1), (3, 2, 1)]
        assert claim_one(store).task.failures == 2

    def test_retries_do_not_change_the_revision(self, store: Store) -> None:
        lease = start(store)
        revision, created = lease.task.revision, lease.task.created

        for outcome in (Retry(In(0)), Snooze(In(0)), Release()):
            settle(store, lease, outcome)
            lease = claim_one(store)

        assert (lease.task.revision, lease.task.created) == (revision, created)

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
    def test_an_attempt_is_settled_once(self, store: Store, outcome: AnyOutcome) -> None:
        lease = start(store)
        settle(store, lease, outcome)
        before = shown(store) if get(store) else None

        again = settle(store, lease, Retry(In(9_000), "again"))

        assert again is SettleResult.LEASE_LOST
        assert not again
        assert get(store) == before

    def test_settlements_of_one_batch_are_answered_in_order(self, store: Store) -> None:
        refs = [TaskRef(KIND, str(n)) for n in range(len(OUTCOMES))]
        store.schedule([Request(ref, In(0)) for ref in refs])
        leases = {lease.ref: lease for lease in claim(store)}
        superseded = start(store)
        schedule(store)

        answers = store.settle(
            [
                Settlement(superseded, DONE),
                *(
                    Settlement(leases[ref], outcome)
                    for ref, outcome in zip(refs, OUTCOMES, strict=True)
                ),
                Settlement(superseded, DONE),
                Settlement(leases[refs[3]], DONE),
            ]
        )

        assert answers == [
            SettleResult.SUPERSEDED,
            *[SettleResult.SETTLED] * len(OUTCOMES),
            SettleResult.LEASE_LOST,
            SettleResult.LEASE_LOST,
        ]
        states = [task.state if task else None for task in store.get([*refs, REF])]
        assert states == [None, None, TaskState.DEAD, *[TaskState.SCHEDULED] * 4]

    def test_what_ended_leaves_no_history_unless_it_is_kept(self, store: Store) -> None:
        settle(store, start(store))

        assert kept(store, TaskState.DONE) == []
