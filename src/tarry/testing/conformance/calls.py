"""A repeated call gets the same answers and changes nothing, where the medium remembers calls."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.answers import CancelResult, ReviveResult, SettleResult
from tarry.attempt import Dead, Retry
from tarry.due import By, In
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Claimed, Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    LEASE_MS,
    REF,
    claim_one,
    expire,
    get,
    kept,
    kill,
    schedule,
    settle,
    shown,
    start,
)


def numbered(store: Store, call: int, limit: int = 1) -> Claimed:
    """Claim as the holder's call number *call*."""
    return store.claim([KIND], limit=limit, lease_ms=LEASE_MS, holder="w1", call=call)


class Calls:
    """Any further try, a late first one included, is harmless."""

    @pytest.fixture
    def remembering(self, store: Store) -> Store:
        """Return the store if it remembers calls."""
        if not store.capabilities.remembers_calls:
            pytest.skip(f"{store.capabilities.medium} remembers no calls: no reply can be lost")
        return store

    def test_a_repeated_schedule(self, remembering: Store, clock: ManualClock) -> None:
        requests = [Request(REF, In(5)), Request(TaskRef(KIND, "2"), In(5))]
        first = remembering.schedule(requests, call="c1")
        newer = schedule(remembering, due=In(9_000), payload=b"newer")
        clock.advance(1_000)

        assert remembering.schedule(requests, call="c1") == first

        assert shown(remembering).revision == newer.revision

    def test_a_repeated_take_over(self, remembering: Store, clock: ManualClock) -> None:
        tasks = [Task(ref=REF, due=clock.now() + 5, revision=1, created=clock.now())]
        first = remembering.take_over(tasks, call="c1")

        assert remembering.take_over(tasks, call="c1") == first == [True]
        assert remembering.take_over(tasks, call="c2") == [False]

    def test_a_repeated_reschedule(self, remembering: Store) -> None:
        schedule(remembering, due=In(5_000))
        first = remembering.reschedule([Move(REF, By(1_000))], call="c1")

        assert remembering.reschedule([Move(REF, By(1_000))], call="c1") == first

        assert shown(remembering).due == first[0].due

    def test_a_repeated_cancel(self, remembering: Store) -> None:
        schedule(remembering)
        assert remembering.cancel([Cancellation(REF)], call="c1") == [CancelResult.CANCELLED]
        schedule(remembering)

        assert remembering.cancel([Cancellation(REF)], call="c1") == [CancelResult.CANCELLED]

        assert shown(remembering).state is TaskState.SCHEDULED

    def test_a_repeated_settle(self, remembering: Store, clock: ManualClock) -> None:
        lease = start(remembering)
        settlements = [Settlement(lease, Retry(In(5)))]
        assert remembering.settle(settlements, call="c1") == [SettleResult.SETTLED]
        clock.advance(1_000)
        before = shown(remembering)

        assert remembering.settle(settlements, call="c1") == [SettleResult.SETTLED]

        assert shown(remembering) == before

    def test_a_repeated_revive(self, remembering: Store) -> None:
        kill(remembering)
        assert remembering.revive([DeadRef(REF)], call="c1") == [ReviveResult.REVIVED]
        settle(remembering, claim_one(remembering), Dead("again"))

        assert remembering.revive([DeadRef(REF)], call="c1") == [ReviveResult.REVIVED]

        assert len(kept(remembering, TaskState.DEAD)) == 1

    def test_a_repeated_purge(self, remembering: Store) -> None:
        first = kill(remembering)
        kill(remembering)
        assert remembering.purge([DeadRef(REF)], call="c1") == [True]

        assert remembering.purge([DeadRef(REF)], call="c1") == [True]

        assert [task.revision for task in kept(remembering, TaskState.DEAD)] == [first]

    def test_a_repeated_pause(self, remembering: Store) -> None:
        assert remembering.pause(KIND, paused=True, call="c1") is False
        remembering.pause(KIND, paused=False, call="c2")

        assert remembering.pause(KIND, paused=True, call="c1") is False

        assert remembering.pause(KIND, paused=False, call="c3") is False

    def test_another_call_acts(self, remembering: Store) -> None:
        first = remembering.schedule([Request(REF, In(5))], call="c1")

        second = remembering.schedule([Request(REF, In(5))], call="c2")

        assert second[0].revision > first[0].revision

    def test_calls_without_a_name_are_not_remembered(self, remembering: Store) -> None:
        first = remembering.schedule([Request(REF, In(5))])

        second = remembering.schedule([Request(REF, In(5))])

        assert second[0].revision > first[0].revision

    def test_a_repeated_claim_returns_the_same_leases(self, remembering: Store) -> None:
        remembering.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(4)])
        first = numbered(remembering, 1, limit=2)

        again = numbered(remembering, 1, limit=2)

        assert [lease.token for lease in again.leases] == [lease.token for lease in first.leases]
        assert len(again.leases) == 2
        assert len(numbered(remembering, 2, limit=10).leases) == 2

    def test_a_repeated_claim_leaves_out_what_was_settled(self, remembering: Store) -> None:
        remembering.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(2)])
        done, held = numbered(remembering, 1, limit=2).leases
        settle(remembering, done)

        again = numbered(remembering, 1, limit=2)

        assert [lease.token for lease in again.leases] == [held.token]

    def test_a_repeated_claim_leaves_out_what_has_expired(
        self, remembering: Store, clock: ManualClock
    ) -> None:
        schedule(remembering)
        numbered(remembering, 1)
        expire(clock)

        assert numbered(remembering, 1).leases == []

    def test_a_repeated_claim_leaves_out_what_has_expired_in_a_paused_kind(
        self, remembering: Store, clock: ManualClock
    ) -> None:
        schedule(remembering)
        numbered(remembering, 1)
        remembering.pause(KIND, paused=True)
        expire(clock)

        assert numbered(remembering, 1).leases == []

    def test_a_claim_older_than_the_newest_takes_nothing(self, remembering: Store) -> None:
        remembering.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(3)])
        numbered(remembering, 5)

        assert numbered(remembering, 4).leases == []

        assert len(numbered(remembering, 6, limit=10).leases) == 2

    def test_holders_number_their_claims_by_themselves(self, remembering: Store) -> None:
        remembering.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(2)])
        numbered(remembering, 5)

        other = remembering.claim([KIND], limit=1, lease_ms=LEASE_MS, holder="w2", call=1)

        assert len(other.leases) == 1

    def test_a_call_may_be_repeated_though_the_task_is_gone(self, remembering: Store) -> None:
        first = remembering.schedule([Request(REF, In(0))], call="c1")
        settle(remembering, claim_one(remembering))

        assert remembering.schedule([Request(REF, In(0))], call="c1") == first

        assert get(remembering) is None
