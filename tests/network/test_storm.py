"""Producers and a worker in a storm of faults: the ledger of what really happened is flawless."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar, cast

import pytest
from tests.network.conftest import new_world
from tests.network.media import Forgetful, Medium
from tests.network.servers import until
from tests.network.world import KIND, Works, World

from tarry import Context, Dead, Retry, Snooze
from tarry.answers import CancelResult, Moved, Scheduled, SettleResult
from tarry.api.client import Client
from tarry.due import In
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.store import Claimed, Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.ledger import (
    Answered,
    Asked,
    Drained,
    Entry,
    Left,
    Notes,
    check,
)
from tarry.testing.proxy import Coverage, Fault, Phase

A = TypeVar("A", Scheduled, Moved, CancelResult)
VERBS = ("schedule", "reschedule", "cancel", "claim", "settle")
PRODUCERS = 4
LEAST, MOST = 25, 400
"""On how many keys a producer acts: no more, even if some phase was never hit."""


class Ledger:
    """What happened, in order, whichever thread it happened on."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._ops = 0
        self._lock = threading.Lock()

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)

    def asked(self, verb: str, by: str, ref: str = "") -> int:
        with self._lock:
            self._ops += 1
            self.write(Asked(op=self._ops, verb=verb, ref=ref, by=by))
            return self._ops

    def counts(self) -> Counter[str]:
        return Counter(type(entry).__name__ for entry in self.entries)


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


class Producer:
    """Schedules, replaces, moves and cancels keys of its own; notes what it is told."""

    def __init__(self, client: Client, ledger: Ledger, number: int) -> None:
        self._client = client
        self._ledger = ledger
        self._name = f"p{number}"
        self._dice = random.Random(number)

    def produce(self, *, enough: Callable[[], bool]) -> None:
        for number in range(MOST):
            if number >= LEAST and enough():
                return
            ref = TaskRef(KIND, f"{self._name}-{number}")
            self._schedule(ref)
            for act in self._dice.choices((self._schedule, self._move, self._cancel), k=2):
                act(ref)

    def _schedule(self, ref: TaskRef) -> None:
        self._noted("schedule", ref, lambda: self._client.schedule([Request(ref, self._due())]))

    def _move(self, ref: TaskRef) -> None:
        self._noted("move", ref, lambda: self._client.reschedule([Move(ref, self._due())]))

    def _cancel(self, ref: TaskRef) -> None:
        self._noted("cancel", ref, lambda: self._client.cancel([Cancellation(ref)]))

    def _due(self) -> In:
        return In(self._dice.choice((0, 0, 5, 50)))

    def _noted(self, verb: str, ref: TaskRef, act: Callable[[], list[A]]) -> None:
        op = self._ledger.asked(verb, self._name, str(ref))
        [answer] = act()
        if isinstance(answer, CancelResult):
            self._ledger.write(Answered(op=op, status=answer.value))
        else:
            status, revision, due = answer.status.value, answer.revision, answer.due
            self._ledger.write(Answered(op=op, status=status, revision=revision, due=due))


def deed(ctx: Context) -> object:
    """Let some attempts end otherwise than well."""
    match ctx.revision % 10, ctx.attempt, ctx.snoozes:
        case 1, 1, _:
            return Retry("10ms")
        case 2, _, 0:
            return Snooze("10ms")
        case 3, _, _:
            return Dead("hopeless")
        case _:
            return None


def left(store: Store) -> Iterator[Left]:
    for state in (TaskState.SCHEDULED, TaskState.LEASED, TaskState.DEAD):
        for task in store.scan(Filter(state), limit=10_000).tasks:
            yield Left(
                ref=str(task.ref),
                state=state.value,
                revision=task.revision,
                attempt=task.attempt,
                lost=task.lost,
                reason=task.reason,
            )


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
