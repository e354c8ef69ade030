"""What a claim takes of one kind, and what it says about the time to come."""
# ruff: noqa: D102 - the name of a promise is its sentence

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tarry.attempt import Retry
from tarry.due import In
from tarry.request import Request
from tarry.stores.store import CHUNK, Claimed, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    ANOTHER_KIND,
    KIND,
    LEASE_MS,
    REF,
    cancel,
    claim,
    claim_one,
    move,
    one_order,
    renew,
    schedule,
    settle,
    shown,
    start,
)


def look(store: Store, kinds: Sequence[str] = (KIND,), limit: int = 100) -> Claimed:
    """Claim, and show all that is answered."""
    return store.claim(kinds, limit=limit, lease_ms=LEASE_MS, holder="w1")


class Claiming:
    """Take due tasks under a lease."""

    def test_nothing_starts_before_its_due(self, store: Store, clock: ManualClock) -> None:
        schedule(store, due=In(1_000))

        clock.advance(999)
        assert claim(store) == []
        clock.advance(1)
        assert claim_one(store).ref == REF

    def test_a_claim_counts_the_attempt_and_changes_nothing_else(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, payload=b"p", headers=b"h", rule="r", keep_ms=5)
        before = shown(store)
        clock.advance(50)

        lease = claim_one(store)

        assert lease.task == replace(before, attempt=1, state=TaskState.LEASED)
        assert shown(store) == lease.task

    def test_a_lease_names_its_holder_and_its_end(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        clock.advance(50)

        [lease] = claim(store, holder="host-1:4711", lease_ms=1_234)

        assert (lease.holder, lease.expires) == ("host-1:4711", clock.now() + 1_234)
        assert not lease.cancelled

    def test_what_is_leased_is_not_claimed_again(self, store: Store) -> None:
        start(store)

        assert claim(store) == []
        assert claim(store, holder="w2") == []

    def test_the_earliest_due_comes_first(self, store: Store, clock: ManualClock) -> None:
        one_order(store)
        delays = [70, 10, 90, 30, 50, 20, 80]
        store.schedule([Request(TaskRef(KIND, str(n)), In(n)) for n in delays])
        clock.advance(100)

        taken = claim(store, limit=3) + claim(store, limit=3) + claim(store, limit=3)

        assert [int(lease.ref.key) for lease in taken] == sorted(delays)

    @pytest.mark.parametrize("limit", [1, 2, 5])
    def test_no_more_than_the_limit_is_taken(self, store: Store, limit: int) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(5)])

        assert len(claim(store, limit=limit)) == limit
        assert len(claim(store)) == 5 - limit

    def test_a_claim_without_room_takes_nothing_and_tells_what_waits(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store)

        claimed = look(store, limit=0)

        assert (claimed.leases, claimed.next_due) == ([], clock.now())
        assert shown(store).attempt == 0

    def test_only_the_asked_kinds_are_taken(self, store: Store) -> None:
        schedule(store)
        schedule(store, TaskRef(ANOTHER_KIND, "1"))

        assert [lease.ref.kind for lease in claim(store, ANOTHER_KIND)] == [ANOTHER_KIND]

    def test_a_kind_named_twice_is_one_kind(self, store: Store) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(3)])

        taken = claim(store, KIND, KIND, KIND, limit=2) + claim(store, KIND, KIND)

        assert sorted(lease.ref.key for lease in taken) == ["0", "1", "2"]

    def test_kinds_that_nobody_scheduled_have_nothing(self, store: Store) -> None:
        assert look(store, ("no.such.kind",)).leases == []
        assert look(store, ("no.such.kind",)).next_due is None

    def test_no_kinds_no_tasks(self, store: Store) -> None:
        schedule(store)

        claimed = look(store, ())

        assert (claimed.leases, claimed.next_due) == ([], None)

    def test_every_lease_has_a_token_of_its_own(self, store: Store) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(CHUNK)])
        leases = claim(store, limit=CHUNK)
        settle(store, leases[0], Retry(In(0)))

        leases += claim(store)

        assert len(leases) == CHUNK + 1
        assert len({lease.token for lease in leases}) == CHUNK + 1

    def test_a_claim_tells_the_stores_time(self, store: Store, clock: ManualClock) -> None:
        clock.advance(123)

        claimed = look(store)

        assert claimed.now == clock.now()
        assert 0 <= claimed.micros <= 999

    def test_next_due_is_none_when_nothing_is_in_sight(self, store: Store) -> None:
        assert look(store).next_due is None
        settle(store, start(store))
        schedule(store)
        cancel(store)
        assert look(store).next_due is None

    def test_next_due_is_the_earliest_due_of_the_asked_kinds(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, due=In(9_000))
        schedule(store, TaskRef(KIND, "2"), In(7_000))
        schedule(store, TaskRef(ANOTHER_KIND, "1"), In(5_000))

        assert look(store, (KIND,)).next_due == clock.now() + 7_000
        assert look(store, (ANOTHER_KIND,)).next_due == clock.now() + 5_000
        assert look(store, (ANOTHER_KIND, KIND, "no.such.kind")).next_due == clock.now() + 5_000

    def test_next_due_is_now_at_the_latest_when_more_is_due_than_was_taken(
        self, store: Store, clock: ManualClock
    ) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(n)) for n in range(3)])
        clock.advance(100)

        claimed = look(store, limit=2)

        assert claimed.next_due is not None
        assert claimed.next_due <= clock.now()

    def test_next_due_is_the_end_of_a_lease(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        schedule(store, TaskRef(KIND, "far"), In(60_000))

        assert look(store).next_due == clock.now() + LEASE_MS

    def test_next_due_follows_a_renewed_lease(self, store: Store, clock: ManualClock) -> None:
        lease = start(store)
        clock.advance(4_000)

        renew(store, lease)

        assert look(store).next_due == clock.now() + LEASE_MS

    def test_next_due_is_never_a_revision_behind_a_running_attempt(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store)
        schedule(store)

        assert look(store).next_due == clock.now() + LEASE_MS

    def test_next_due_follows_a_move(self, store: Store, clock: ManualClock) -> None:
        schedule(store, due=In(5_000))
        move(store, In(8_000))
        assert look(store).next_due == clock.now() + 8_000

        move(store, In(3_000))
        assert look(store).next_due == clock.now() + 3_000
