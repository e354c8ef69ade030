"""Producers and a worker in a storm of faults: the ledger of what really happened is flawless."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.network.load import Ledger, Noting, Producer, deed, left
from tests.network.servers import HOST, Server, python, until
from tests.network.socket_store import SocketStore
from tests.network.wire import verb_of
from tests.network.world import Works, World

from tarry import Context
from tarry.testing.ledger import (
    Drained,
    check,
)
from tarry.testing.proxy import Coverage, Fault, Phase

VERBS = ("schedule", "reschedule", "cancel", "claim", "settle")
PRODUCERS = 4


class NotingStore(Noting, SocketStore):
    """A store behind the proxy."""


class Storm:
    """Hits every so many exchanges, each verb's in one phase after the other."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._turns: Counter[str] = Counter()

    def __call__(self, request: bytes) -> Fault | None:
        verb = verb_of(request)
        if verb not in VERBS or self._dice.random() > 0.2:
            return None
        phase = list(Phase)[self._turns[verb] % len(Phase)]
        self._turns[verb] += 1
        lasts = {Phase.REFUSE: 20, Phase.BLACK_HOLE: 300}
        return Fault(phase, verb, lasts.get(phase, self._dice.choice((5, 300))))


def drained(world: World) -> bool:
    counts = world.left()
    return not counts.scheduled and not counts.leased


def ride_out(server: Server, seed: int) -> tuple[Ledger, Works]:
    """Let producers and a worker work until each verb was hit in each phase, then drain."""
    coverage = Coverage()
    coverage.expect(VERBS, Phase)
    ledger = Ledger()
    address = (HOST, server.port)
    with closing(World(address, f"storm{seed}", coverage, medium=NotingStore)) as world:
        store = world.store
        assert isinstance(store, NotingStore)
        store.note_in(ledger)

        def body(ctx: Context) -> object:
            store.started(ctx)
            return deed(ctx)

        works = Works(world, body)
        producers = [Producer(world.client, ledger, number) for number in range(PRODUCERS)]
        world.proxy.follow(Storm(seed))
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
def test_nothing_is_lost_early_doubled_or_run_after_a_cancel(
    store_server: Server, seed: int
) -> None:
    ledger, works = ride_out(store_server, seed)

    assert check(ledger.entries) == []
    assert works.lost == []
    assert ledger.counts()["Started"] > PRODUCERS


def test_a_medium_that_forgets_its_calls_is_found_out() -> None:
    with python("store_server.py", "schedule", "reschedule", "cancel") as server:
        ledger, _ = ride_out(server, 1)

    assert check(ledger.entries)
