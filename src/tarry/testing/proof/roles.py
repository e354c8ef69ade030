"""Roles: what the processes of a campaign do; everything they ask and are told is noted."""

import asyncio
import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import mmap
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tarry.answers import CancelResult, Moved, RenewResult, Scheduled, SettleResult
from tarry.app import Tarry
from tarry.attempt import AnyOutcome, Dead, Done, Skip, Snooze
from tarry.backoff import Backoff
from tarry.clock import Clock, nap
from tarry.context import Context
from tarry.due import In
from tarry.lease import Lease
from tarry.outcome.decide import name
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.store import Claimed, Store
from tarry.task import TaskRef
from tarry.testing.ledger import (
    Answered,
    Asked,
    Asking,
    Book,
    Finished,
    Settled,
    Started,
    earliest,
)
from tarry.worker.run import Attempt
from tarry.worker.serve import run_until_signal
from tarry.worker.worker import Worker

KINDS = ("async.work", "plain.work")
DEEDS = ("done",) * 20 + (
    "fail once",
    "fail once",
    "snooze once",
    "snooze once",
    "skip",
    "hopeless",
)
_OPS = 1_000_000_000
"""Each process numbers its operations in a range of its own."""
_SHARED = 6
"""So many keys of an era belong to all producers: their operations meet on one ref."""


class Work(msgspec.Struct):
    """The payload: what becomes of the attempt, how long it takes, and who asked for it."""

    deed: str = "done"
    run_ms: float = 0
    op: int = 0
    """The op of the schedule, which the witness puts in."""


class Witness:
    """A store that notes in a book what is asked of it, and the answers; all else is its own.

    *page*, shared with the parent, counts what a worker has under way: its first byte is 0 while
    the process may be stalled. In a call it would hold up others at an embedded medium; between
    the start gate and the handler it would begin what it had rightly been allowed to begin.
    """

    def __init__(self, store: Store, book: Book, *, number: int, by: str, page: mmap) -> None:
        self._store = store
        self._book = book
        self._clock: Clock | None = getattr(store, "_clock", None)
        """The store's, where it can be read without asking the store."""
        self.by = by
        self._ops = itertools.count(number * _OPS + 1)
        self._claims: dict[int, int] = {}
        self._now = 0
        self._page = page
        self._counting = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self) -> None:
        """Begin something that a stall must not cut in two."""
        with self._counting:
            self._page[0] += 1

    def let_go(self) -> None:
        """End it."""
        with self._counting:
            self._page[0] -= 1

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def _ask(self, verb: str, items: Sequence[Asking]) -> list[int]:
        ops = [next(self._ops) for _ in items]
        for op, item in zip(ops, items, strict=True):
            due = self._earliest(item)
            self._book.write(Asked(op=op, verb=verb, ref=str(item.ref), by=self.by, earliest=due))
        return ops

    def _earliest(self, asked: Asking | AnyOutcome) -> int:
        return 0 if self._clock is None else earliest(asked, self._clock.now())

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule, noted."""
        ops = self._ask("schedule", requests)
        answers = self._store.schedule(list(map(_signed, requests, ops)), call=call)
        self._placed(ops, answers)
        return answers

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move, noted."""
        ops = self._ask("move", moves)
        answers = self._store.reschedule(moves, call=call)
        self._placed(ops, answers)
        return answers

    def _placed(self, ops: Sequence[int], answers: Sequence[Scheduled | Moved]) -> None:
        for op, answer in zip(ops, answers, strict=True):
            self._book.write(
                Answered(
                    op=op,
                    status=answer.status.value,
                    revision=answer.revision,
                    due=answer.due,
                )
            )

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel, noted."""
        ops = self._ask("cancel", cancellations)
        answers = self._store.cancel(cancellations, call=call)
        for op, answer in zip(ops, answers, strict=True):
            self._book.write(Answered(op=op, status=answer.value))
        return answers

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim, noted."""
        op = next(self._ops)
        self._book.write(Asked(op=op, verb="claim", by=self.by))
        with self._under_way():
            claimed = self._store.claim(
                kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call
            )
        self._book.write(Answered(op=op, status="claimed"))
        # Shards have clocks of their own: a lease tells when it was granted.
        granted = (lease.expires - lease_ms for lease in claimed.leases)
        self._now = max((claimed.now, *granted))
        self._claims.update((lease.token, op) for lease in claimed.leases)
        return claimed

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Renew; nothing to note."""
        with self._under_way():
            return self._store.renew(leases, lease_ms=lease_ms)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Settle, noted: what was decided, and whether the store took it."""
        for each in settlements:
            outcome = each.outcome
            due = self._earliest(outcome)
            self._book.write(Finished(token=each.lease.token, outcome=name(outcome), earliest=due))
        with self._under_way():
            answers = self._store.settle(settlements, call=call)
        for each, answer in zip(settlements, answers, strict=True):
            self._book.write(
                Settled(token=each.lease.token, outcome=name(each.outcome), answer=answer.value)
            )
        return answers

    def started(self, ctx: Context, op: int) -> None:
        """Note that a handler begins, with the op in its payload."""
        self._book.write(
            Started(
                ref=str(ctx.ref),
                revision=ctx.revision,
                token=ctx.token,
                attempt=ctx.attempt,
                lost=ctx.lost,
                due=ctx.due,
                now=self._now,
                by=self.by,
                claim=self._claims.pop(ctx.token, 0),
                op=op,
            )
        )
        self.let_go()


def _signed(request: Request, op: int) -> Request:
    """Return *request* with its op in the payload."""
    work = msgspec.json.decode(request.payload, type=Work)
    return replace(request, payload=msgspec.json.encode(replace(work, op=op)))


class Careless(Witness):
    """The planted bug: a task is deleted when it is claimed, as if that were its end."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim at most once."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        self._store.settle([Settlement(lease, Done()) for lease in claimed.leases])
        return claimed


class Holding(Worker):
    """A worker that cannot be stalled between its start gate and the handler's first line."""

    def __init__(self, witness: Witness, app: Tarry, **settings: Any) -> None:
        store = cast("Store", witness)
        super().__init__(store, app.registry, codec=app.codec, emit=app.emit, **settings)
        self._witness = witness

    def _gate(self, attempt: Attempt, now: int) -> AnyOutcome | None:
        self._witness.hold()
        refused = super()._gate(attempt, now)
        if refused is not None:
            self._witness.let_go()
        return refused


def work(witness: Witness, **settings: Any) -> None:
    """Be a worker until SIGTERM."""
    app = Tarry()
    policy = Backoff.fixed("10ms", times=3)

    @app.task("async.work", retry=policy)
    async def async_work(ctx: Context, deed: str = "done", run_ms: float = 0, op: int = 0) -> None:
        witness.started(ctx, op)
        if run_ms:
            await asyncio.sleep(run_ms / 1_000)
        _do(deed, ctx)

    @app.task("plain.work", retry=policy)
    def plain_work(ctx: Context, deed: str = "done", run_ms: float = 0, op: int = 0) -> None:
        witness.started(ctx, op)
        if run_ms:
            nap(run_ms / 1_000)
        _do(deed, ctx)

    run_until_signal(Holding(witness, app, **settings))
    witness.close()


def _do(deed: str, ctx: Context) -> None:
    """Let the attempt end as its task's payload says."""
    match deed:
        case "fail once" if ctx.attempt - ctx.lost == 1:
            raise RuntimeError("the first attempt fails")
        case "snooze once" if ctx.snoozes == 0:
            raise Snooze("20ms")
        case "skip":
            raise Skip("nothing to do")
        case "hopeless":
            raise Dead("it can never succeed")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


def produce(witness: Witness, *, seed: int, era: int = 0, run_ms: float = 15) -> None:
    """Be a producer: schedule, replace, move and cancel until killed."""
    dice = random.Random(seed)  # noqa: S311 - a seed of the campaign
    for number in itertools.count():
        shared = dice.random() < 0.25
        key = f"shared-{era}-{dice.randrange(_SHARED)}" if shared else f"{witness.by}-{number}"
        ref = TaskRef(dice.choice(KINDS), key)
        for verb in ("schedule", *dice.choices(_VERBS, k=dice.choice((0, 0, 1, 2)))):
            _ask(witness, verb, ref, dice, run_ms)
            nap(dice.random() * 0.006)


_VERBS = ("schedule", "move", "cancel")


def _ask(witness: Witness, verb: str, ref: TaskRef, dice: random.Random, run_ms: float) -> None:
    due = In(dice.choice((0, 5, 30, 120, 300)))
    if verb == "schedule":
        deed = Work(dice.choice(DEEDS), dice.random() * run_ms)
        witness.schedule([Request(ref, due, msgspec.json.encode(deed))])
    elif verb == "move":
        witness.reschedule([Move(ref, due)])
    else:
        witness.cancel([Cancellation(ref)])
