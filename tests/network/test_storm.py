"""Producers and a worker in a storm of faults: the ledger of what really happened is flawless."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

import pytest
from tests.network.conftest import new_world
from tests.network.load import Ledger, Producer, deed, left
from tests.network.media import Forgetful, Medium
from tests.network.servers import until
from tests.network.world import Works, World

from tarry import Context
from tarry.answers import SettleResult
from tarry.request import Settlement
from tarry.stores.store import Claimed, Store
from tarry.testing.ledger import (
    Drained,
    Notes,
    check,
)
from tarry.testing.proxy import Coverage, Fault, Phase

VERBS = ("schedule", "reschedule", "cancel", "claim", "settle")
PRODUCERS = 4


class NotingStore:
    """A worker's store that notes its claims and settlements; a repeat is the same operation."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self.notes = Notes(ledger.write, by="worker")
        self._claim = (0, 0)
        self._settling: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        if self._claim[0] != call:
            self._claim = (call, self._ledger.asked("claim", "worker"))
        op = self._claim[1]
        claimed = self._store.claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        self.notes.claimed(op, claimed)
        return claimed

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        if call not in self._settling:
            self._settling.add(call)
            self.notes.finished(settlements, lambda _: 0)
        answers = self._store.settle(settlements, call=call)
        self.notes.settled(settlements, answers)
        return answers


class Storm:
    """Hits every so many exchanges, each verb's in one phase after the other."""

    def __init__(self, medium: Medium, seed: int) -> None:
        self._medium = medium
        self._dice = random.Random(seed)
        self._turns: Counter[str] = Counter()

    def __call__(self, request: bytes) -> Fault | None:
        verb = self._medium.verb_of(request)
        if verb not in VERBS or self._dice.random() > 0.2:
            return None
        phase = list(Phase)[self._turns[verb] % len(Phase)]
        self._turns[verb] += 1
        lasts = {Phase.REFUSE: 20, Phase.BLACK_HOLE: 300}
        return Fault(phase, verb, lasts.get(phase, self._dice.choice((5, 300))))


def drained(world: World) -> bool:
    counts = world.left()
    return not counts.scheduled and not counts.leased


def ride_out(
    medium: Medium, seed: int, around: Callable[[Store], Any] = lambda store: store
) -> tuple[Ledger, Works]:
    """Let producers and a worker work until each verb was hit in each phase, then drain."""
    coverage = Coverage()
    coverage.expect(VERBS, Phase)
    ledger = Ledger()
    with closing(new_world(medium, coverage)) as world:
        world.wrap(lambda store: NotingStore(around(store), ledger))
        store = cast("NotingStore", world.store)

        def body(ctx: Context) -> object:
            store.notes.started(ctx)
            return deed(ctx)

        works = Works(world, body)
        producers = [Producer(world.client, ledger, number) for number in range(PRODUCERS)]
        world.proxy.follow(Storm(medium, seed))
        with works.working(), ThreadPoolExecutor(PRODUCERS) as pool:
            going = [
                pool.submit(producer.produce, enough=lambda: not coverage.missing())
                for producer in producers
            ]
            for each in going:
                each.result()
            world.proxy.heal()
            until(lambda: drained(world), "everything has had its attempt")
        ledger.write(Drained())
        ledger.entries += left(world.direct)
    assert coverage.missing() == []
    return ledger, works


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_early_doubled_or_run_after_a_cancel(medium: Medium, seed: int) -> None:
    ledger, works = ride_out(medium, seed)

    assert check(ledger.entries) == []
    assert works.lost == []
    assert ledger.counts()["Started"] > PRODUCERS


def test_a_medium_that_forgets_its_calls_is_found_out(medium: Medium) -> None:
    callers = ("schedule", "reschedule", "cancel")

    ledger, _ = ride_out(medium, 1, lambda store: Forgetful(store, callers))

    assert check(ledger.entries)
