"""Deeds: what one producer, one worker and one operator do to a store; all is noted in a ledger."""

import itertools
import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tarry.answers import Moved, Scheduled
from tarry.attempt import DONE, RELEASE, AnyOutcome, Dead, Retry, Skip, Snooze
from tarry.due import In
from tarry.lease import Lease
from tarry.outcome.decide import name
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Request, Settlement, Successor
from tarry.stores.store import Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import (
    Answered,
    Asked,
    Asking,
    Drained,
    Entry,
    Failed,
    Finished,
    Left,
    Settled,
    Started,
    earliest,
)

Note = Callable[[Entry], None]

SERIES = "series"
KINDS = ("plain", "other", SERIES)
KEYS = ("1", "2", "3", "4")
LEASE_MS = 60_000
MODES = (OnConflict.REPLACE,) * 3 + (OnConflict.KEEP, OnConflict.EARLIEST, OnConflict.LATEST)
PROMISED = frozenset({"schedule", "move", "cancel", "revive", "purge", "pause"})
"""Acknowledged at the medium's full durability; the other deeds may be forgotten by a crash."""
_OFTEN = {"schedule": 8, "move": 4, "cancel": 3, "claim": 5, "settle": 5}
_RARELY = {"renew": 1, "revive": 1, "purge": 1, "pause": 1, "stall": 1}
WEIGHTS = _OFTEN | _RARELY
_DAY = 86_400_000


class Deeds:
    """Does verb by verb what *chance* says, on the stores it is given."""

    producer: Store
    worker: Store

    def __init__(
        self, clock: ManualClock, chance: random.Random, note: Note, *, first_op: int = 1
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._note = note
        self._ops = itertools.count(first_op)
        self.asked: list[int] = []
        """What the deed under way has asked."""
        self._held: list[tuple[Lease, bool]] = []
        """Leases, and whether their attempt has started."""

    def choose(self) -> str:
        """Return the next verb."""
        [verb] = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        return verb

    def do(self, verb: str) -> None:
        """Do one deed."""
        self._clock.advance(self._chance.choice((0, 1, 700, 1_500)))
        getattr(self, f"_{verb}")()
        self.asked = []

    def _refs(self, *, most: int = 6) -> list[TaskRef]:
        count = self._chance.choice((1, 1, 1, 2, most))
        return [
            TaskRef(self._chance.choice(KINDS), self._chance.choice(KEYS)) for _ in range(count)
        ]

    def _due(self) -> In:
        return In(self._chance.choice((0, 1, 1_000, 4_000, 3_600_000)))

    def _ask(self, verb: str, items: Sequence[Asking]) -> list[int]:
        ops = self.asked = [next(self._ops) for _ in items]
        for op, item in zip(ops, items, strict=True):
            self._note(
                Asked(
                    op=op,
                    verb=verb,
                    ref=str(item.ref),
                    by="producer",
                    series=isinstance(item, Request) and bool(item.rule),
                    earliest=earliest(item, self._clock.now()),
                )
            )
        return ops

    def _schedule(self) -> None:
        self.schedule(self._refs())

    def schedule(self, refs: Sequence[TaskRef]) -> list[Scheduled]:
        """Schedule one task each."""
        requests = [self._request(ref) for ref in refs]
        ops = self._ask("schedule", requests)
        signed = [
            replace(request, payload=b'"%d"' % op + request.payload)
            for request, op in zip(requests, ops, strict=True)
        ]
        answers = self.producer.schedule(signed)
        self._placed(ops, answers)
        return answers

    def _request(self, ref: TaskRef) -> Request:
        return Request(
            ref,
            self._due(),
            # The larger ones need pages of their own.
            payload=b" " * self._chance.choice((0, 0, 100, 6_000)),
            on_conflict=self._chance.choice(MODES),
            rule="every 1h" if ref.kind == SERIES else "",
        )

    def _move(self) -> None:
        moves = [Move(ref, self._due()) for ref in self._refs()]
        ops = self._ask("move", moves)
        self._placed(ops, self.producer.reschedule(moves))

    def _placed(self, ops: Sequence[int], answers: Sequence[Scheduled | Moved]) -> None:
        for op, answer in zip(ops, answers, strict=True):
            status = answer.status.value
            self._note(Answered(op=op, status=status, revision=answer.revision, due=answer.due))

    def _cancel(self) -> None:
        cancellations = [Cancellation(ref) for ref in self._refs()]
        ops = self._ask("cancel", cancellations)
        for op, answer in zip(ops, self.producer.cancel(cancellations), strict=True):
            self._note(Answered(op=op, status=answer.value))

    def _revive(self) -> None:
        refs = self._dead()
        ops = self._ask("revive", refs)
        for op, answer in zip(ops, self.producer.revive(refs), strict=True):
            self._note(Answered(op=op, status=answer.value))

    def _purge(self) -> None:
        refs = self._dead()
        ops = self._ask("purge", refs)
        for op, there in zip(ops, self.producer.purge(refs), strict=True):
            self._note(Answered(op=op, status="purged" if there else "absent"))

    def _dead(self) -> list[DeadRef]:
        found = self.producer.scan(Filter(state=TaskState.DEAD)).tasks[:2]
        return [DeadRef(task.ref, task.revision) for task in found]

    def _pause(self) -> None:
        self.producer.pause(self._chance.choice(KINDS), self._chance.random() < 0.3)

    def _stall(self) -> None:
        """Let the worker outlive its leases; it goes on as if nothing had happened."""
        self._note(Failed(by="worker", how="stall"))
        self._clock.advance(LEASE_MS)

    def _claim(self) -> None:
        limit = self._chance.choice((1, 3, 100))
        for lease in self._claimed("worker", limit):
            start = not lease.cancelled and self._chance.random() < 0.9
            self._held.append((lease, start))
            if start:
                self._start(lease)

    def _claimed(self, by: str, limit: int) -> list[Lease]:
        self._claim_op = next(self._ops)
        self._note(Asked(op=self._claim_op, verb="claim", by=by))
        claimed = self.worker.claim(KINDS, limit=limit, lease_ms=LEASE_MS, holder=by)
        self._note(Answered(op=self._claim_op, status="claimed"))
        return claimed.leases

    def _start(self, lease: Lease, by: str = "worker") -> None:
        task = lease.task
        self._note(
            Started(
                ref=str(task.ref),
                revision=task.revision,
                token=lease.token,
                attempt=task.attempt,
                lost=task.lost,
                due=task.due,
                now=self._clock.now(),
                by=by,
                claim=self._claim_op,
                op=msgspec.json.decode(task.payload, type=int, strict=False),
            )
        )

    def _renew(self) -> None:
        self.worker.renew([lease for lease, _ in self._held], lease_ms=LEASE_MS)

    def _settle(self) -> None:
        count = self._chance.choice((1, 2, len(self._held)))
        ending, self._held = self._held[:count], self._held[count:]
        # Short paths are only for batches that are all done.
        plain = self._chance.random() < 0.3
        self._settled(
            [
                Settlement(lease, *((DONE,) if plain and started else self._end(started, lease)))
                for lease, started in ending
            ]
        )

    def _end(self, started: bool, lease: Lease) -> tuple[AnyOutcome, Successor | None]:  # noqa: FBT001
        if not started:
            return RELEASE, None
        wishes = (DONE, DONE, Skip("idle"), Dead("hopeless"), Retry(self._due()), Snooze(In(900)))
        outcome = self._chance.choice(wishes)
        if lease.task.rule and not isinstance(outcome, Retry | Snooze):
            after = self._clock.now() + self._chance.choice((0, 2_000))
            return outcome, Successor(after, after)
        return outcome, None

    def _settled(self, settlements: Sequence[Settlement]) -> None:
        for each in settlements:
            outcome = each.outcome
            due = earliest(outcome, self._clock.now())
            self._note(Finished(token=each.lease.token, outcome=name(outcome), earliest=due))
        for each, answer in zip(settlements, self.worker.settle(settlements), strict=True):
            word = name(each.outcome)
            self._note(Settled(token=each.lease.token, outcome=word, answer=answer.value))

    def drain(self) -> list[Lease]:
        """Run all that is left to its end, as a new worker would; returns the leases it had."""
        leases = []
        for kind, counts in self.producer.counts().items():
            if counts.paused:
                self.producer.pause(kind, False)  # noqa: FBT003 - the word of the verb
        self._clock.advance(_DAY)
        while found := self._claimed("drain", 100):
            leases += found
            started = [lease for lease in found if not lease.cancelled]
            for lease in started:
                self._start(lease, "drain")
            self._settled(
                [Settlement(lease, RELEASE if lease.cancelled else DONE) for lease in found]
            )
        self._note(Drained())
        self._leave()
        return leases

    def _leave(self) -> None:
        for where in (Filter(), Filter(state=TaskState.DEAD)):
            for task in self.worker.scan(where, limit=1_000).tasks:
                self._note(
                    Left(
                        ref=str(task.ref),
                        state=task.state.value,
                        revision=task.revision,
                        attempt=task.attempt,
                        lost=task.lost,
                        reason=task.reason,
                    )
                )
