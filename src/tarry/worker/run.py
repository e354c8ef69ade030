"""Run a handler: from a lease to what came of it."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec

from tarry.answers import SettleResult
from tarry.attempt import DONE, AnyOutcome, Dead, Retry
from tarry.context import Context
from tarry.errors import HandlerError, PayloadError, TarryError
from tarry.events import AttemptEnded, Event, UnknownFields
from tarry.handler import Handler
from tarry.lease import Lease
from tarry.outcome import decide
from tarry.payload import Codec
from tarry.request import Settlement
from tarry.worker.joined import JoinedSettler

ON_A_THREAD = "on a thread"
"""The runner of a plain handler: there is no task of the loop to cancel."""

TIMEOUT = "timeout"
"""The word a slot is cancelled with when a handler has used up its time."""


class Ran(msgspec.Struct):
    """What came of a handler: its result or its error; `unfit`: it was not called at all."""

    result: object = None
    error: BaseException | None = None
    unfit: bool = False


class Attempt:
    """One run of a handler under one lease, with the lease's time on the worker's own clock.

    That time counts from `since`, the instant the claim or renewal was *sent*: a reply may be late.
    The store gave the lease at `claimed` or after: what a claim waits for its turn ages nothing.
    """

    __slots__ = (
        "began",
        "cancelled",
        "claimed",
        "confirmed",
        "ended_early",
        "freed",
        "handler",
        "joined",
        "lateness_ms",
        "lease",
        "lost",
        "runner",
        "settler",
        "since",
        "started",
    )

    def __init__(
        self,
        lease: Lease,
        handler: Handler,
        since: int = 0,
        claimed: int | None = None,
        settler: JoinedSettler | None = None,
    ) -> None:
        self.lease = lease
        self.handler = handler
        self.settler = settler
        self.joined: AnyOutcome | None = None
        self.since = since
        self.claimed = since if claimed is None else claimed
        self.confirmed = False
        self.started = False
        self.lost = False
        self.cancelled = lease.cancelled
        self.ended_early = False
        self.freed = False
        self.lateness_ms = 0.0
        self.began = 0
        self.runner: object = None

    def asked_to_stop(self) -> bool:
        """Say whether the task was cancelled or its lease lost."""
        return self.cancelled or self.lost

    def settle(self, outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* in the handler's own transaction; that it commits is not known here."""
        assert self.settler is not None  # noqa: S101 - a context that settles has one
        return self.settler.settle(self, outcome, tx)

    async def asettle(self, outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* in the handler's own transaction; for coroutines."""
        assert self.settler is not None  # noqa: S101 - as above
        return await self.settler.asettle(self, outcome, tx)

    def refuse(self, lateness_ms: float) -> Dead | None:
        """Return why the task must not be attempted, None if it may start now."""
        self.lateness_ms = lateness_ms
        return decide.before(self.lease.task, self.handler, lateness_ms)

    def prepare(
        self, codec: Codec, emit: Callable[[Event], None]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the handler is called with; raises PayloadError if it does not fit."""
        task = self.lease.task
        try:
            data = codec.decode(task.payload)
        except Exception as error:
            message = f"the payload cannot be decoded: {decide.describe(error)}"
            raise PayloadError(message) from error
        values, unknown = self.handler.arguments.decode(data)
        if unknown:
            emit(UnknownFields(ref=task.ref, fields=unknown))
        if not self.handler.wants_context:
            return (), values
        context = Context.of(
            task,
            token=self.lease.token,
            lateness_ms=self.lateness_ms,
            asked_to_stop=self.asked_to_stop,
            settles=None if self.settler is None else self,
        )
        return (context,), values

    def outcome(self, ran: Ran, now: int, chance: float) -> AnyOutcome:
        """Return the outcome of what ran; a payload that does not fit is dead at once."""
        error = ran.error
        if ran.unfit:
            return Dead(str(error))
        if error is None:
            if ran.result is None:
                return self.joined or DONE
            try:
                wish = decide.of_result(ran.result, now)
                return decide.within_limits(wish, self.lease.task, self.handler, now)
            except TarryError as wrong:
                error = wrong
        outcome = decide.of_error(error, self.lease.task, self.handler, now, chance)
        if isinstance(error, Retry):
            return decide.within_limits(outcome, self.lease.task, self.handler, now)
        return outcome

    def settlement(self, outcome: AnyOutcome, now: int) -> Settlement:
        """Return what the store is told."""
        task = self.lease.task
        return Settlement(self.lease, outcome, decide.successor(task, now) if task.rule else None)

    def ended(
        self, outcome: AnyOutcome, run_ms: float, error: BaseException | None
    ) -> AttemptEnded:
        """Return the event of this attempt's end."""
        task = self.lease.task
        return AttemptEnded(
            ref=task.ref,
            revision=task.revision,
            attempt=task.attempt,
            token=self.lease.token,
            due=task.due,
            outcome=decide.name(outcome),
            reason=outcome.reason,
            lateness_ms=self.lateness_ms,
            run_ms=run_ms,
            error=error,
        )


class Started:
    """An async handler that was begun: run to its first wait, in a fresh contextvars context.

    Most of a task's price is the asyncio Task around it; a handler runs on its slot's own task
    instead. One that never waits is finished here and now (`ran`); one that does is awaited by
    its slot with `finish`.
    """

    __slots__ = ("_context", "_coro", "_waited", "ran")

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro
        self._context = contextvars.copy_context()
        self.ran: Ran | None = None
        try:
            self._waited = self._context.run(coro.send, None)
        except StopIteration as stop:
            self.ran = Ran(stop.value)
        except BaseException as error:  # noqa: BLE001 - a handler may even call sys.exit
            self.ran = Ran(error=error)

    async def finish(self) -> Ran:
        """Return what came of the handler; a cancellation of the slot goes through it."""
        try:
            return Ran(await self)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            return Ran(error=error)

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coro, waited = self._context.run, self._coro, self._waited
        try:
            while True:
                try:
                    value = yield waited
                except BaseException as error:  # noqa: BLE001 - the handler's to deal with
                    waited = run(coro.throw, error)
                else:
                    waited = run(coro.send, value)
        except StopIteration as stop:
            return stop.value


def start(attempt: Attempt, codec: Codec, emit: Callable[[Event], None]) -> Started | Ran:
    """Begin an async handler; the answer is what came of it, or what to wait for."""
    try:
        args, kwargs = attempt.prepare(codec, emit)
        begun = Started(attempt.handler.fn(*args, **kwargs))
    except PayloadError as error:
        return Ran(error=error, unfit=True)
    except Exception as error:  # noqa: BLE001 - its hints cannot be read, say: a failed attempt
        return Ran(error=error)
    return begun if begun.ran is None else begun.ran


async def run_async(attempt: Attempt, codec: Codec, emit: Callable[[Event], None]) -> Ran:
    """Run an async handler to its end; its exceptions are its result."""
    begun = start(attempt, codec, emit)
    return begun if isinstance(begun, Ran) else await begun.finish()


def run_sync(attempt: Attempt, codec: Codec, emit: Callable[[Event], None]) -> Ran:
    """Run a plain handler on this thread; its exceptions are its result."""
    try:
        args, kwargs = attempt.prepare(codec, emit)
    except PayloadError as error:
        return Ran(error=error, unfit=True)
    except Exception as error:  # noqa: BLE001 - as above
        return Ran(error=error)
    try:
        result = contextvars.Context().run(attempt.handler.fn, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - a handler may even call sys.exit
        return Ran(error=error)
    if inspect.iscoroutine(result):
        result.close()
        name = attempt.handler.fn.__qualname__
        message = f"{name} returned a coroutine that nobody awaits: declare it with async def"
        return Ran(error=HandlerError(message))
    return Ran(result)


def why_stopped(attempt: Attempt, error: BaseException) -> BaseException:
    """Return as an error what made the worker cancel a handler."""
    if TIMEOUT in error.args:
        limit = attempt.handler.timeout_ms or 0
        return TimeoutError(f"the handler took longer than {limit / 1_000:g} s")
    return error
