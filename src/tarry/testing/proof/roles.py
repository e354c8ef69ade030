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
from tarry.clock import SYSTEM, Clock, nap
from tarry.context import Context
from tarry.due import In, duration_ms
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Claimed, Store
from tarry.task import TaskRef
from tarry.testing.ledger import (
    Answered,
    Asked,
    Asking,
    Book,
    Failed,
    Notes,
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


HELD_UP = "held up"
"""What a worker enters that was without the processor, or its store, for too long.

So long that its leases may have ended: on a machine that is busy with other things that happens,
and is neither a fault of the campaign's nor a broken promise.
"""


class Work(msgspec.Struct):
    """The payload: what becomes of the attempt, how long it takes, and who asked for it."""

    deed: str = "done"
    run_ms: float = 0
    op: int = 0
    """The op of the schedule, which the witness puts in."""


class Witness:
    """A store that notes in a book what is asked of it, and the answers; all else is its own.

    A call that is repeated because its reply was lost is the same operation.

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
        self._notes = Notes(book.write, by=by)
        self._calls: dict[str, list[int]] = {}
        """The ops of the calls that have no answer yet."""
        self._claim = (0, 0)
        """The newest claim's number, and its op."""
        self._page = page
        self._counting = threading.Lock()
        self.patience_ns = 0
        """How long a worker can be held up without danger to its leases; 0: that is not noted."""

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
        began = SYSTEM.elapsed()
        try:
            yield
        finally:
            self.let_go()
            self.came_back(began)

    def came_back(self, since: int) -> None:
        """Enter that the process was held up, if what it began has taken too long."""
        if 0 < self.patience_ns < SYSTEM.elapsed() - since:
            self._book.write(Failed(by=self.by, how=HELD_UP))

    def _ask(self, verb: str, items: Sequence[Asking], call: str) -> list[int]:
        if call in self._calls:
            return self._calls[call]
        ops = [next(self._ops) for _ in items]
        if call:
            self._calls[call] = ops
        for op, item in zip(ops, items, strict=True):
            named = None if isinstance(item, DeadRef) else item.if_revision
            entry = Asked(
                op=op,
                verb=verb,
                ref=str(item.ref),
                by=self.by,
                earliest=self._earliest(item),
                if_revision=named or 0,
            )
            self._book.write(entry)
        return ops

    def _earliest(self, asked: Asking | AnyOutcome) -> int:
        return 0 if self._clock is None else earliest(asked, self._clock.now())

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule, noted."""
        ops = self._ask("schedule", requests, call)
        answers = self._store.schedule(list(map(_signed, requests, ops)), call=call)
        self._placed(ops, answers, call)
        return answers

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move, noted."""
        ops = self._ask("move", moves, call)
        answers = self._store.reschedule(moves, call=call)
        self._placed(ops, answers, call)
        return answers

    def _placed(self, ops: Sequence[int], answers: Sequence[Scheduled | Moved], call: str) -> None:
        self._calls.pop(call, None)
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
        ops = self._ask("cancel", cancellations, call)
        answers = self._store.cancel(cancellations, call=call)
        self._calls.pop(call, None)
        for op, answer in zip(ops, answers, strict=True):
            self._book.write(Answered(op=op, status=answer.value))
        return answers

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim, noted."""
        number, op = self._claim
        if not call or number != call:
            op = next(self._ops)
            self._claim = call, op
            self._book.write(Asked(op=op, verb="claim", by=self.by))
        with self._under_way():
            claimed = self._store.claim(
                kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call
            )
        self._notes.claimed(op, claimed)
        return claimed

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Renew; nothing to note."""
        with self._under_way():
            return self._store.renew(leases, lease_ms=lease_ms)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Settle, noted: what was decided, and whether the store took it."""
        if call not in self._calls:
            self._notes.finished(settlements, self._earliest)
            if call:
                self._calls[call] = []
        with self._under_way():
            answers = self._store.settle(settlements, call=call)
        self._calls.pop(call, None)
        self._notes.settled(settlements, answers)
        return answers

    def started(self, ctx: Context, op: int) -> None:
        """Note that a handler begins, with the op in its payload."""
        self._notes.started(ctx, op)
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


def work(witness: Witness, *, lease: str, **settings: Any) -> None:
    """Be a worker until SIGTERM."""
    witness.patience_ns = duration_ms(lease) * 1_000_000 // 3
    threading.Thread(target=_feel, args=(witness,), daemon=True).start()
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

    run_until_signal(Holding(witness, app, lease=lease, **settings))
    witness.close()


def _feel(witness: Witness) -> None:
    """Notice when the process itself is held up."""
    while True:
        began = SYSTEM.elapsed()
        nap(witness.patience_ns / 8e9)
        witness.came_back(began)


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


def produce(
    witness: Witness, *, seed: int, era: int = 0, run_ms: float = 15, patient: bool = False
) -> None:
    """Be a producer: schedule, replace, move and cancel until killed.

    One in three asks the store itself, one asks by the app, and one by its coroutines. A *patient*
    one never asks the store itself: nobody would repeat what gets no reply.
    """
    dice = random.Random(seed)  # noqa: S311 - a seed of the campaign
    app = Tarry(retry_for=_RETRY_FOR)
    app.swap(cast("Store", witness), SYSTEM)
    way = 1 + seed % 2 if patient else seed % 3
    if way == _BY_COROUTINES:
        asyncio.run(_produce_together(app, _wishes(witness.by, dice, era), dice, run_ms))
    for verb, ref in _wishes(witness.by, dice, era):
        if way == _BY_APP:
            _say(app, verb, ref, dice, run_ms)
        else:
            _ask(witness, verb, ref, dice, run_ms)
        nap(dice.random() * _PAUSE)


_BY_APP, _BY_COROUTINES = 1, 2
_RETRY_FOR = 20.0
_TOGETHER = 4
"""So many coroutines share what a producer wishes: what they ask for at once is one call."""
_PAUSE = 0.006
_VERBS = ("schedule", "move", "cancel")


def _wishes(by: str, dice: random.Random, era: int) -> Iterator[tuple[str, TaskRef]]:
    """Yield what to ask for, and of which task, for ever."""
    for number in itertools.count():
        shared = dice.random() < 0.25
        key = f"shared-{era}-{dice.randrange(_SHARED)}" if shared else f"{by}-{number}"
        ref = TaskRef(dice.choice(KINDS), key)
        for verb in ("schedule", *dice.choices(_VERBS, k=dice.choice((0, 0, 1, 2)))):
            yield verb, ref


def _ask(witness: Witness, verb: str, ref: TaskRef, dice: random.Random, run_ms: float) -> None:
    """Ask the store."""
    due = In(_delay(dice))
    if verb == "schedule":
        witness.schedule([Request(ref, due, msgspec.json.encode(_work(dice, run_ms)))])
    elif verb == "move":
        witness.reschedule([Move(ref, due)])
    else:
        witness.cancel([Cancellation(ref)])


def _say(app: Tarry, verb: str, ref: TaskRef, dice: random.Random, run_ms: float) -> None:
    """Ask as a caller without the handlers' code does."""
    when = f"{_delay(dice)}ms"
    if verb == "schedule":
        app.schedule(ref.kind, when, key=ref.key, payload=_work(dice, run_ms))
    elif verb == "move":
        app.reschedule(ref, when)
    else:
        app.cancel(ref)


async def _produce_together(
    app: Tarry, wishes: Iterator[tuple[str, TaskRef]], dice: random.Random, run_ms: float
) -> None:
    """Ask from several coroutines at a time."""

    async def go_on() -> None:
        for verb, ref in wishes:
            when = f"{_delay(dice)}ms"
            if verb == "schedule":
                payload = _work(dice, run_ms)
                await app.aschedule(ref.kind, when, key=ref.key, payload=payload)
            elif verb == "move":
                await app.areschedule(ref, when)
            else:
                await app.acancel(ref)
            await asyncio.sleep(dice.random() * _PAUSE * _TOGETHER)

    await asyncio.gather(*(go_on() for _ in range(_TOGETHER)))


def _delay(dice: random.Random) -> int:
    return dice.choice((0, 5, 30, 120, 300))


def _work(dice: random.Random, run_ms: float) -> Work:
    return Work(dice.choice(DEEDS), dice.random() * run_ms)
