"""Leases: tokens fence, renewals extend, and what has ended has ended for callers."""
# ruff: noqa: D102 - the name of a promise is its sentence

from msgspec.structs import replace

from tarry.answers import (
    RenewResult,
    ReviveResult,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import DONE, Retry
from tarry.due import In
from tarry.request import OnConflict, Request, Settlement
from tarry.stores.store import CHUNK, Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    LEASE_MS,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kill,
    renew,
    revive,
    scanned,
    schedule,
    settle,
    shown,
    start,
)


class Leases:
    """The exclusive, expiring right to attempt a task."""

    def test_an_unexpired_lease_keeps_others_away(self, store: Store, clock: ManualClock) -> None:
        start(store)

        clock.advance(LEASE_MS - 1)

        assert claim(store, holder="w2") == []

    def test_an_expired_lease_lets_another_worker_claim(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = start(store)
        expire(clock)

        second = claim_one(store, holder="w2")

        assert second.token != first.token
        assert second.task == replace(first.task, attempt=2, lost=1)
        assert settle(store, first) is SettleResult.LEASE_LOST
        assert renew(store, first) is RenewResult.LOST
        assert settle(store, second) is SettleResult.SETTLED

    def test_a_lost_lease_writes_nothing(self, store: Store, clock: ManualClock) -> None:
        first = start(store)
        expire(clock)
        claim_one(store, holder="w2")
        before = shown(store)

        assert settle(store, first, Retry(In(5), "late")) is SettleResult.LEASE_LOST
        assert shown(store) == before

    def test_an_ended_lease_is_counted_though_the_claim_takes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        claim(store, limit=0)

        assert settle(store, lease) is SettleResult.LEASE_LOST
        task = shown(store)
        assert (task.state, task.attempt, task.lost) == (TaskState.SCHEDULED, 1, 1)

    def test_a_claim_of_other_kinds_leaves_an_ended_lease_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        claim(store, "another.kind")

        assert settle(store, lease) is SettleResult.SETTLED

    def test_lost_leases_are_not_failures(self, store: Store, clock: ManualClock) -> None:
        failures = []
        lease = start(store)
        for _ in range(2):
            expire(clock)
            lease = claim_one(store)
            failures.append((lease.task.attempt, lease.task.lost, lease.task.failures))
            settle(store, lease, Retry(In(0), "failed"))
            lease = claim_one(store)
            failures.append((lease.task.attempt, lease.task.lost, lease.task.failures))

        assert failures == [(2, 1, 0), (3, 1, 1), (4, 2, 1), (5, 2, 2)]

    def test_renew_lets_a_lease_end_later(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        clock.advance(LEASE_MS - 1)

        assert renew(store, lease) is RenewResult.RENEWED

        clock.advance(LEASE_MS - 1)
        assert claim(store, holder="w2") == []
        assert shown(store).state is TaskState.LEASED
        expire(clock)
        assert claim_one(store, holder="w2").task.lost == 1

    def test_renew_lets_a_lease_end_earlier(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)

        renew(store, lease, lease_ms=10)

        clock.advance(2_000)
        assert claim_one(store, holder="w2").ref == REF

    def test_a_lease_renewed_back_and_forth_ends_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        leases = [start(store), start(store, TaskRef(KIND, "cancelled"))]
        store.renew(leases, lease_ms=LEASE_MS // 2)
        store.renew(leases, lease_ms=LEASE_MS)
        cancel(store, TaskRef(KIND, "cancelled"))
        expire(clock)

        again = claim_one(store)

        assert (again.ref, again.task.lost) == (REF, 1)
        assert store.check() == []

    def test_a_token_survives_every_renewal(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)

        for _ in range(5):
            clock.advance(LEASE_MS - 1)
            assert renew(store, lease) is RenewResult.RENEWED

        assert settle(store, lease) is SettleResult.SETTLED

    def test_renew_changes_nothing_else(self, store: Store) -> None:
        lease = start(store)
        before = shown(store)

        renew(store, lease, lease_ms=60_000)

        assert shown(store) == before

    def test_a_cancelled_lease_is_renewed_and_says_so(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        cancel(store)
        clock.advance(LEASE_MS - 1)

        assert renew(store, lease) is RenewResult.CANCELLED

        clock.advance(LEASE_MS - 1)
        assert shown(store).state is TaskState.LEASED
        assert settle(store, lease) is SettleResult.SETTLED

    def test_a_settled_lease_cannot_be_renewed(self, store: Store) -> None:
        lease = start(store)
        settle(store, lease, Retry(In(0)))

        assert renew(store, lease) is RenewResult.LOST
        assert claim_one(store).token != lease.token

    def test_a_token_that_never_was_opens_nothing(self, store: Store) -> None:
        lease = start(store)
        forged = replace(lease, token=lease.token + 1)

        assert renew(store, forged) is RenewResult.LOST
        assert settle(store, forged) is SettleResult.LEASE_LOST
        assert settle(store, lease) is SettleResult.SETTLED

    def test_renewals_are_answered_in_order(self, store: Store) -> None:
        refs = [TaskRef(KIND, name) for name in ("held", "cancelled", "settled")]
        leases = [start(store, ref) for ref in refs]
        cancel(store, refs[1])
        settle(store, leases[2])

        answers = store.renew([*reversed(leases), leases[0]], lease_ms=LEASE_MS)

        assert answers == [
            RenewResult.LOST,
            RenewResult.CANCELLED,
            RenewResult.RENEWED,
            RenewResult.RENEWED,
        ]
        assert [bool(answer) for answer in answers] == [False, True, True, True]

    def test_a_full_chunk_is_renewed_and_settled_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(CHUNK)])
        leases = claim(store, limit=CHUNK)
        clock.advance(LEASE_MS - 1)

        assert store.renew(leases, lease_ms=LEASE_MS) == [RenewResult.RENEWED] * CHUNK
        clock.advance(LEASE_MS - 1)
        answers = store.settle([Settlement(lease, DONE) for lease in leases])

        assert answers == [SettleResult.SETTLED] * CHUNK
        assert claim(store) == []

    def test_an_attempt_that_outlived_its_lease_may_settle_while_nobody_took_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        assert settle(store, lease) is SettleResult.SETTLED

        assert get(store) is None
        assert claim(store) == []

    def test_an_attempt_that_outlived_its_lease_may_renew_while_nobody_took_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        assert renew(store, lease) is RenewResult.RENEWED

        assert claim(store, holder="w2") == []
        assert shown(store).lost == 0
        assert settle(store, lease) is SettleResult.SETTLED

    def test_looking_at_an_ended_lease_does_not_end_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        shown(store)
        scanned(store)
        store.counts()

        assert settle(store, lease) is SettleResult.SETTLED

    def test_an_ended_lease_is_shown_as_a_task_that_waits_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        task = shown(store)

        assert task == replace(lease.task, lost=1, state=TaskState.SCHEDULED)
        assert scanned(store) == [task]
        assert scanned(store, Filter(state=TaskState.LEASED)) == []
        counts = store.counts()[KIND]
        assert (counts.scheduled, counts.leased, counts.overdue) == (1, 0, 1)

    def test_a_lease_ends_on_the_millisecond_for_callers(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store)

        clock.advance(LEASE_MS - 1)
        assert shown(store).state is TaskState.LEASED
        clock.advance(1)
        assert shown(store).state is TaskState.SCHEDULED
        assert cancel(store)

    def test_a_schedule_replaces_what_an_ended_lease_left(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        answer = schedule(store, payload=b"new")

        assert answer.status is ScheduleStatus.REPLACED
        assert settle(store, lease) is SettleResult.LEASE_LOST
        task = claim_one(store).task
        assert (task.payload, task.attempt, task.lost) == (b"new", 1, 0)

    def test_a_task_kept_in_place_of_a_new_one_is_attempted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        answer = schedule(store, payload=b"new", on_conflict=OnConflict.KEEP)

        assert answer.status is ScheduleStatus.KEPT
        assert answer.revision == lease.task.revision
        assert settle(store, lease) is SettleResult.LEASE_LOST
        assert claim_one(store).task == replace(lease.task, attempt=2, lost=1)

    def test_an_ended_lease_meets_if_revision(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        expire(clock)

        answer = schedule(store, if_revision=lease.task.revision)

        assert answer.status is ScheduleStatus.REPLACED

    def test_an_ended_lease_makes_revive_skip(self, store: Store, clock: ManualClock) -> None:
        kill(store)
        start(store)
        expire(clock)

        assert revive(store) is ReviveResult.SKIPPED

    def test_a_cancelled_attempt_that_has_ended_does_not_make_revive_skip(
        self, store: Store, clock: ManualClock
    ) -> None:
        kill(store)
        start(store)
        cancel(store)
        expire(clock)

        assert revive(store) is ReviveResult.REVIVED
