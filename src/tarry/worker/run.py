"""Run a handler: from a lease to a settlement, on the event loop or on a thread."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec

from tarry.attempt import AnyOutcome, Dead
from tarry.context import Context
from tarry.errors import HandlerError, PayloadError, TarryError
from tarry.events import AttemptEnded, Event, UnknownFields
from tarry.handler import Handler
from tarry.lease import Lease
from tarry.outcome import decide
from tarry.payload import Codec
from tarry.request import Settlement


class Ran(msgspec.Struct):
    """What came of a handler: its result or its error; `unfit`: it was not called at all."""

    result: object = None
    error: BaseException | None = None
    unfit: bool = False


class Attempt:
    """One run of a handler under one lease."""

    __slots__ = ("_codec", "_emit", "handler", "lateness_ms", "lease", "stop_asked")

    def __init__(
        self, lease: Lease, handler: Handler, codec: Codec, emit: Callable[[Event], None]
    ) -> None:
        self.lease = lease
        self.handler = handler
        self.lateness_ms = 0.0
        self.stop_asked = lease.cancelled
        self._codec = codec
        self._emit = emit

    def refuse(self, lateness_ms: float) -> Dead | None:
        """Return why the task must not be attempted, None if it may start now."""
        self.lateness_ms = lateness_ms
        return decide.before(self.lease.task, self.handler, lateness_ms)

    def prepare(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the handler is called with; raises PayloadError if the payload does not fit."""
        task = self.lease.task
        try:
            data = self._codec.decode(task.payload)
        except Exception as error:
            message = f"the payload cannot be decoded: {decide.describe(error)}"
            raise PayloadError(message) from error
        values, unknown = self.handler.arguments.decode(data)
        if unknown:
            self._emit(UnknownFields(ref=task.ref, fields=unknown))
        if not self.handler.wants_context:
            return (), values
        context = Context.of(
            task,
            token=self.lease.token,
            lateness_ms=self.lateness_ms,
            asked_to_stop=self._asked_to_stop,
        )
        return (context,), values

    def _asked_to_stop(self) -> bool:
        return self.stop_asked

    def outcome(self, ran: Ran, now: int, chance: float) -> AnyOutcome:
        """Return the outcome of what ran; a payload that no longer fits is a dead letter at once."""
        error = ran.error
        if ran.unfit:
            return Dead(str(error))
        if error is None:
            try:
                return decide.of_result(ran.result, now)
            except TarryError as wrong:
                error = wrong
        return decide.of_error(error, self.lease.task, self.handler, now, chance)

    def settlement(self, outcome: AnyOutcome, now: int) -> Settlement:
        """Return what the store is told."""
        task = self.lease.task
        return Settlement(self.lease, outcome, decide.successor(task, now) if task.rule else None)

    def ended(self, outcome: AnyOutcome, run_ms: float, error: BaseException | None) -> AttemptEnded:
        """Return the event of this attempt's end."""
        task = self.lease.task
        return AttemptEnded(
            ref=task.ref,
            revision=task.revision,
            attempt=task.attempt,
            due=task.due,
            outcome=decide.name(outcome),
            reason=outcome.reason,
            lateness_ms=self.lateness_ms,
            run_ms=run_ms,
            error=error,
        )


class in_context:  # noqa: N801 - reads as the verb it is: await in_context(coro)
    """Await a coroutine in a fresh contextvars context, without the price of a task of its own."""

    __slots__ = ("_context", "_coro")

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro
        self._context = contextvars.copy_context()

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coro = self._context.run, self._coro
        try:
            waited = run(coro.send, None)
            while True:
                try:
                    value = yield waited
                except BaseException as error:  # noqa: BLE001 - the handler's to deal with
                    waited = run(coro.throw, error)
                else:
                    waited = run(coro.send, value)
        except StopIteration as stop:
            return stop.value


async def run_async(attempt: Attempt) -> Ran:
    """Run an async handler on the loop; its exceptions are its result."""
    try:
        args, kwargs = attempt.prepare()
    except PayloadError as error:
        return Ran(error=error, unfit=True)
    try:
        return Ran(await in_context(attempt.handler.fn(*args, **kwargs)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a handler may even call sys.exit
        return Ran(error=error)


def run_sync(attempt: Attempt) -> Ran:
    """Run a plain handler on this thread; its exceptions are its result."""
    try:
        args, kwargs = attempt.prepare()
    except PayloadError as error:
        return Ran(error=error, unfit=True)
    try:
        result = contextvars.copy_context().run(attempt.handler.fn, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - a handler may even call sys.exit
        return Ran(error=error)
    if asyncio.iscoroutine(result):
        result.close()
        name = attempt.handler.fn.__qualname__
        message = f"{name} returned a coroutine that nobody awaits: declare it with async def"
        return Ran(error=HandlerError(message))
    return Ran(result)
