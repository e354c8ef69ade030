"""Load: producers and a worker whose every question and answer is noted in a ledger."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tests.network.world import KIND

from tarry import Context, Dead, Retry, Snooze
from tarry.answers import CancelResult, Moved, Scheduled, SettleResult
from tarry.api.client import Client
from tarry.due import In
from tarry.errors import UnknownOutcomeError
from tarry.outcome.decide import name
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.store import Claimed, Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.conformance.kit import scanned
from tarry.testing.ledger import Answered, Asked, Entry, Finished, Left, Settled, Started

A = TypeVar("A", Scheduled, Moved, CancelResult)
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


class Noting(Store):
    """Part of a worker's store that notes claims and settlements; a repeat is the same one."""

    def note_in(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claim = (0, 0)
        self._settling: set[str] = set()
        self._claims: dict[int, tuple[int, int]] = {}

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        if self._claim[0] != call:
            self._claim = (call, self._ledger.asked("claim", "worker"))
        op = self._claim[1]
        claimed = super().claim(  # type: ignore[safe-super]  # beside a real store
            kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call
        )
        self._ledger.write(Answered(op=op, status="claimed"))
        for lease in claimed.leases:
            # Shards have clocks of their own: what counts is when the lease was granted.
            self._claims[lease.token] = op, max(claimed.now, lease.expires - lease_ms)
        return claimed

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        outcomes = [(each.lease.token, name(each.outcome)) for each in settlements]
        if call not in self._settling:
            self._settling.add(call)
            for token, outcome in outcomes:
                self._ledger.write(Finished(token=token, outcome=outcome))
        answers = super().settle(  # type: ignore[safe-super]  # beside a real store
            settlements, call=call
        )
        for (token, outcome), answer in zip(outcomes, answers, strict=True):
            self._ledger.write(Settled(token=token, outcome=outcome, answer=answer.value))
        return answers

    def started(self, ctx: Context) -> None:
        claim, now = self._claims[ctx.token]
        self._ledger.write(
            Started(
                ref=str(ctx.ref),
                revision=ctx.revision,
                token=ctx.token,
                attempt=ctx.attempt,
                lost=ctx.lost,
                due=ctx.due,
                now=now,
                by="worker",
                claim=claim,
            )
        )


class Producer:
    """Schedules, replaces, moves and cancels keys of its own; notes what it is told."""

    def __init__(self, client: Client, ledger: Ledger, number: int, most: int = MOST) -> None:
        self._client = client
        self._ledger = ledger
        self._name = f"p{number}"
        self._dice = random.Random(number)
        self._most = most

    def produce(self, *, enough: Callable[[], bool]) -> None:
        for number in range(self._most):
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
        try:
            [answer] = act()
        except UnknownOutcomeError:
            return
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
        for task in scanned(store, Filter(state)):
            yield Left(
                ref=str(task.ref),
                state=state.value,
                revision=task.revision,
                attempt=task.attempt,
                lost=task.lost,
                reason=task.reason,
            )
