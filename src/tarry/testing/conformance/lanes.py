"""Kinds are lanes: how a claim's limit is shared over them."""
# ruff: noqa: D102 - the name of a promise is its sentence

from collections import Counter

import pytest

from tarry.due import In
from tarry.request import Request
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import claim, one_order

LANES = ("a", "b", "c")


def fill(store: Store, kind: str, delays: range) -> None:
    """Schedule one task of *kind* for each delay."""
    store.schedule([Request(TaskRef(kind, str(n)), In(n)) for n in delays])


class Lanes:
    """No kind starves another."""

    def test_the_limit_is_shared_evenly_over_the_kinds_that_have_due_tasks(
        self, store: Store, clock: ManualClock
    ) -> None:
        one_order(store)
        fill(store, "a", range(50))
        fill(store, "b", range(50, 60))
        fill(store, "c", range(5_000, 5_010))
        clock.advance(100)

        taken = Counter(lease.ref.kind for lease in claim(store, *LANES, limit=10))

        assert taken == {"a": 5, "b": 5}

    def test_what_a_kind_cannot_use_goes_to_the_others(
        self, store: Store, clock: ManualClock
    ) -> None:
        one_order(store)
        fill(store, "a", range(50))
        fill(store, "b", range(50, 53))
        clock.advance(100)

        taken = Counter(lease.ref.kind for lease in claim(store, *LANES, limit=10))

        assert taken == {"a": 7, "b": 3}

    @pytest.mark.parametrize("earliest", LANES)
    def test_the_rest_goes_by_earliest_due(
        self, store: Store, clock: ManualClock, earliest: str
    ) -> None:
        one_order(store)
        for kind in LANES:
            fill(store, kind, range(20) if kind == earliest else range(30, 50))
        clock.advance(100)

        taken = Counter(lease.ref.kind for lease in claim(store, *LANES, limit=5))

        assert taken == {kind: 3 if kind == earliest else 1 for kind in LANES}

    def test_within_a_kind_the_earliest_due_comes_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        one_order(store)
        fill(store, "a", range(1, 40, 2))
        fill(store, "b", range(0, 40, 2))
        clock.advance(100)

        taken = claim(store, "b", "a", limit=13)

        for kind in ("a", "b"):
            dues = [lease.task.due for lease in taken if lease.ref.kind == kind]
            assert dues == sorted(dues)
            assert dues[0] == clock.now() - 100 + (kind == "a")

    def test_every_kind_has_its_turn_when_there_are_more_kinds_than_places(
        self, store: Store, clock: ManualClock
    ) -> None:
        for kind in LANES:
            fill(store, kind, range(40))
        clock.advance(100)

        taken = Counter(claim(store, *LANES, limit=1)[0].ref.kind for _ in range(30))

        assert set(taken) == set(LANES)
        assert min(taken.values()) >= 5

    def test_no_place_stays_free_while_something_is_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        fill(store, "a", range(1))
        fill(store, "b", range(2))
        fill(store, "c", range(40))
        clock.advance(100)

        assert len(claim(store, *LANES, limit=20)) == 20
        assert len(claim(store, *LANES, limit=100)) == 23
