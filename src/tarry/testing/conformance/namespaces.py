"""Namespaces that share a medium do not see one another."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.answers import CancelResult, MoveStatus, ReviveResult, ScheduleStatus
from tarry.due import In
from tarry.request import Request
from tarry.stores.store import Filter, Store
from tarry.task import TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    REF,
    cancel,
    claim,
    expire,
    get,
    kill,
    move,
    purge,
    revive,
    scanned,
    schedule,
    settle,
    shown,
    start,
)


class Namespaces:
    """What happens elsewhere stays there."""

    @pytest.fixture
    def elsewhere(self, request: pytest.FixtureRequest) -> Store:
        """Return the store of another namespace, where the medium's tests have one."""
        try:
            other: Store = request.getfixturevalue("other")
        except pytest.FixtureLookupError:
            pytest.skip("no fixture `other`: a store of another namespace on the same medium")
        return other

    def test_the_same_ref_is_another_task(self, store: Store, elsewhere: Store) -> None:
        schedule(store, payload=b"here")

        answer = schedule(elsewhere, payload=b"there")

        assert answer.status is ScheduleStatus.CREATED
        assert (shown(store).payload, shown(elsewhere).payload) == (b"here", b"there")

    def test_callers_verbs_do_not_reach_across(self, store: Store, elsewhere: Store) -> None:
        schedule(store)
        before = shown(store)

        assert get(elsewhere) is None
        assert move(elsewhere, In(5)).status is MoveStatus.ABSENT
        assert cancel(elsewhere) is CancelResult.ABSENT
        assert shown(store) == before

    def test_claims_do_not_reach_across(self, store: Store, elsewhere: Store) -> None:
        schedule(store)

        claimed = elsewhere.claim([KIND], limit=10, lease_ms=1_000, holder="w1")

        assert (claimed.leases, claimed.next_due) == ([], None)
        assert len(claim(store)) == 1

    def test_ended_leases_are_found_by_their_own_namespace_only(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        claim(elsewhere)

        assert settle(store, lease)

    def test_pause_does_not_reach_across(self, store: Store, elsewhere: Store) -> None:
        schedule(store)

        assert elsewhere.pause(KIND, paused=True) is False

        assert store.pause(KIND, paused=False) is False
        assert len(claim(store)) == 1

    def test_calls_are_remembered_by_their_own_namespace_only(
        self, store: Store, elsewhere: Store
    ) -> None:
        store.schedule([Request(REF, In(5))], call="c1")

        elsewhere.schedule([Request(REF, In(5))], call="c1")

        assert shown(elsewhere).due == shown(store).due

    def test_dead_letters_do_not_reach_across(self, store: Store, elsewhere: Store) -> None:
        kill(store)

        assert revive(elsewhere) is ReviveResult.ABSENT
        assert not purge(elsewhere)
        assert scanned(elsewhere, Filter(state=TaskState.DEAD)) == []
        assert shown(store).state is TaskState.DEAD

    def test_looking_does_not_reach_across(self, store: Store, elsewhere: Store) -> None:
        schedule(store)

        assert scanned(elsewhere) == []
        assert dict(elsewhere.counts()) == {}
        assert elsewhere.forecast(bucket_ms=1_000, buckets=1) == [0]
