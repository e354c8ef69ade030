"""The medium stays whole, whatever happened to it."""
# ruff: noqa: D102 - the name of a promise is its sentence

import random

import pytest

from tarry.due import By, In
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Request, Settlement, Successor
from tarry.stores.store import Store
from tarry.task import TaskRef, check_namespace
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    ANOTHER_KIND,
    KIND,
    LEASE_MS,
    OUTCOMES,
    claim,
    scanned,
)


class Soundness:
    """What `tarry doctor` asks."""

    def test_an_untouched_store_is_sound(self, store: Store) -> None:
        assert store.check() == []

    def test_the_layout_is_changed_once(self, store: Store) -> None:
        store.migrate()

        assert store.migrate() == []

    def test_a_store_says_what_it_is(self, store: Store) -> None:
        assert check_namespace(store.namespace) == "test"
        assert store.capabilities.medium
        assert store.capabilities.survives
        assert store.capabilities.wakeup

    def test_closing_may_be_repeated(self, store: Store) -> None:
        store.close()
        store.close()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_store_is_sound_after_a_lively_history(
        self, store: Store, clock: ManualClock, seed: int
    ) -> None:
        dice = random.Random(seed)  # noqa: S311 - a seeded history, no secret
        refs = [TaskRef(kind, str(n)) for kind in (KIND, ANOTHER_KIND) for n in range(6)]
        held = []

        for _ in range(60):
            chosen = dice.sample(refs, 4)
            modes = dice.choices(list(OnConflict), k=4)
            store.schedule(
                [
                    Request(ref, In(dice.randrange(3_000)), on_conflict=mode, keep_ms=5_000)
                    for ref, mode in zip(chosen, modes, strict=True)
                ]
            )
            store.reschedule([Move(dice.choice(refs), By(dice.randrange(-2_000, 2_000)))])
            held += claim(store, KIND, ANOTHER_KIND, limit=dice.randrange(6))
            dice.shuffle(held)
            later = clock.now() + 1_000
            store.settle(
                [
                    Settlement(lease, dice.choice(OUTCOMES), Successor(later, later))
                    for lease in held[::2]
                ]
            )
            store.renew(held, lease_ms=LEASE_MS)
            store.cancel([Cancellation(dice.choice(refs))])
            store.revive([DeadRef(dice.choice(refs))])
            store.pause(dice.choice((KIND, ANOTHER_KIND)), dice.random() < 0.2)
            clock.advance(dice.choice((1, 50, 700, LEASE_MS + 1)))

        assert store.check() == []
        for kind in (KIND, ANOTHER_KIND):
            store.pause(kind, paused=False)
        clock.advance(600_000)
        left = {task.ref for task in scanned(store)}
        found = {lease.ref for lease in claim(store, KIND, ANOTHER_KIND)}
        assert found == left
        assert store.check() == []
