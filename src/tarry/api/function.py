"""TaskFunction: a handler with the caller's verbs, typed by the handler's own arguments."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from tarry.answers import CancelResult, Moved, Scheduled
from tarry.clock import Clock
from tarry.due import By, Due, Duration, Earlier, Later, Shift, When, duration_ms, parse_when
from tarry.errors import HandlerError, UnsupportedError
from tarry.handler import Handler
from tarry.payload import Codec, check_size, encode_headers
from tarry.recurrence import CatchUp, Rule
from tarry.request import Cancellation, Move, OnConflict, Only, Request
from tarry.runtime import Runtime
from tarry.task import Task, TaskRef, check_key

C = ParamSpec("C")
P = ParamSpec("P")
K = ParamSpec("K")
R = TypeVar("R", covariant=True)

ConflictMode = Literal["replace", "keep", "earliest", "latest", "fail"]
"""What a schedule does when a revision of its ref waits already."""

MoveTo = When | Shift | Earlier | Later
"""What `reschedule` takes: a new time, a shift of the present one, or a time only if …"""


class Desk(Protocol):
    """Where a function's wishes go: the app."""

    clock: Clock
    codec: Codec
    payload_limit: int

    @property
    def runtime(self) -> Runtime: ...  # noqa: D102
    def schedule_request(self, request: Request, tx: object) -> Scheduled: ...  # noqa: D102 - as Client
    async def aschedule_request(self, request: Request, tx: object) -> Scheduled: ...  # noqa: D102
    def move(self, move: Move, tx: object) -> Moved: ...  # noqa: D102
    async def amove(self, move: Move, tx: object) -> Moved: ...  # noqa: D102
    def cancel_ref(self, cancellation: Cancellation, tx: object) -> CancelResult: ...  # noqa: D102
    async def acancel_ref(  # noqa: D102
        self, cancellation: Cancellation, tx: object
    ) -> CancelResult: ...
    def run_now(self, ref: TaskRef) -> Moved: ...  # noqa: D102
    async def arun_now(self, ref: TaskRef) -> Moved: ...  # noqa: D102
    def get(self, ref: TaskRef) -> Task | None: ...  # noqa: D102
    async def aget(self, ref: TaskRef) -> Task | None: ...  # noqa: D102


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `using` adds to the next verb."""

    key: str | None = None
    on_conflict: OnConflict = OnConflict.REPLACE
    max_wait_ms: int | None = None
    if_revision: int | None = None
    headers: bytes = b""
    rule: Rule | None = None
    tx: object = None


_PLAIN = Options()


class TaskFunction(Generic[C, P, K, R]):
    """A handler that can be scheduled, moved, cancelled, looked up, and called as it is.

    *C* are the parameters of a plain call, *P* those of `schedule` and `build` (the same without
    the context), *K* those of the verbs that need only the key.
    """

    def __init__(self, handler: Handler, desk: Desk, options: Options = _PLAIN) -> None:
        self.handler = handler
        self.kind = handler.kind
        self.__name__ = getattr(handler.fn, "__name__", handler.kind)
        self.__doc__ = handler.fn.__doc__
        self.__wrapped__ = handler.fn
        self._desk = desk
        self._options = options

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> R:
        """Call the function as it was written; nothing is scheduled."""
        return cast("R", self.handler.fn(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<task {self.kind}>"

    # ---- verbs with the handler's arguments

    def build(self, when: When, /, *args: P.args, **kwargs: P.kwargs) -> Request:
        """Return a request for `schedule_many`; a delay counts from when the store accepts it."""
        values = self.handler.arguments.bind(args, kwargs)
        payload = self._desk.codec.encode(self.handler.arguments.encode(values))
        options = self._options
        check_size(payload, options.headers, self._desk.payload_limit)
        key = options.key
        if key is None:
            key = self.handler.key.make(values) if self.handler.key.given else self._free_key()
        due = parse_when(when, self._desk.clock.now())
        rule, declared = self._rule(key)
        return Request(
            TaskRef(self.kind, key),
            due,
            payload,
            options.headers,
            options.on_conflict,
            options.max_wait_ms,
            options.if_revision,
            rule,
            0,
            declared,
            self.handler.keep_ms,
        )

    def schedule(self, when: When, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Run the handler at *when*; returns when that is durable."""
        return self._desk.schedule_request(self.build(when, *args, **kwargs), self._options.tx)

    async def aschedule(self, when: When, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Run the handler at *when*; for coroutines."""
        return await self._desk.aschedule_request(
            self.build(when, *args, **kwargs), self._options.tx
        )

    # ---- verbs with the key's fields

    def reschedule(self, when: MoveTo, /, *args: K.args, **kwargs: K.kwargs) -> Moved:
        """Move the waiting task to *when*."""
        return self._desk.move(self._move(when, args, kwargs), self._options.tx)

    async def areschedule(self, when: MoveTo, /, *args: K.args, **kwargs: K.kwargs) -> Moved:
        """Move the waiting task to *when*; for coroutines."""
        return await self._desk.amove(self._move(when, args, kwargs), self._options.tx)

    def cancel(self, *args: K.args, **kwargs: K.kwargs) -> CancelResult:
        """Cancel the task; true if no revision starts any more."""
        return self._desk.cancel_ref(self._cancellation(args, kwargs), self._options.tx)

    async def acancel(self, *args: K.args, **kwargs: K.kwargs) -> CancelResult:
        """Cancel the task; for coroutines."""
        return await self._desk.acancel_ref(self._cancellation(args, kwargs), self._options.tx)

    def run_now(self, *args: K.args, **kwargs: K.kwargs) -> Moved:
        """Make the waiting task due now, or revive it if it is dead."""
        self._refuse_tx("run_now")
        return self._desk.run_now(self.ref(*args, **kwargs))

    async def arun_now(self, *args: K.args, **kwargs: K.kwargs) -> Moved:
        """Make the waiting task due now; for coroutines."""
        self._refuse_tx("arun_now")
        return await self._desk.arun_now(self.ref(*args, **kwargs))

    def get(self, *args: K.args, **kwargs: K.kwargs) -> Task | None:
        """Return the task as it is: waiting, else running, else dead or kept."""
        return self._desk.get(self.ref(*args, **kwargs))

    async def aget(self, *args: K.args, **kwargs: K.kwargs) -> Task | None:
        """Return the task as it is; for coroutines."""
        return await self._desk.aget(self.ref(*args, **kwargs))

    def ref(self, *args: K.args, **kwargs: K.kwargs) -> TaskRef:
        """Return the name of the task these fields make."""
        key = self._options.key
        if key is None:
            if self.handler.rule is not None and not self.handler.key.given:
                key = self.handler.series_key
            else:
                key = self.handler.key.of_call(args, kwargs)
        return TaskRef(self.kind, key)

    # ---- options

    @overload
    def using(
        self,
        *,
        key: str,
        on_conflict: ConflictMode | None = None,
        max_wait: Duration | None = None,
        if_revision: int | None = None,
        headers: Mapping[str, str] | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
        tx: object = None,
    ) -> "TaskFunction[C, P, [], R]": ...

    @overload
    def using(
        self,
        *,
        key: None = None,
        on_conflict: ConflictMode | None = None,
        max_wait: Duration | None = None,
        if_revision: int | None = None,
        headers: Mapping[str, str] | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
        tx: object = None,
    ) -> "TaskFunction[C, P, K, R]": ...

    def using(
        self,
        *,
        key: str | None = None,
        on_conflict: ConflictMode | None = None,
        max_wait: Duration | None = None,
        if_revision: int | None = None,
        headers: Mapping[str, str] | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
        tx: object = None,
    ) -> "TaskFunction[C, P, ..., R]":
        """Return the same task with options for its next verb; with *key* it needs no fields.

        With *tx* `schedule`, `reschedule` and `cancel` are part of that transaction of yours: they
        happen when it commits.
        """
        old = self._options
        rule = old.rule
        if every is not None or cron is not None:
            rule = Rule.make(cron=cron, every=every, tz=tz, catch_up=catch_up)
        options = Options(
            key=old.key if key is None else check_key(key),
            on_conflict=old.on_conflict if on_conflict is None else conflict_mode(on_conflict),
            max_wait_ms=old.max_wait_ms if max_wait is None else duration_ms(max_wait),
            if_revision=old.if_revision if if_revision is None else if_revision,
            headers=old.headers if headers is None else encode_headers(headers),
            rule=rule,
            tx=old.tx if tx is None else tx,
        )
        return TaskFunction(self.handler, self._desk, options)

    # ---- how

    def _refuse_tx(self, verb: str) -> None:
        if self._options.tx is not None:
            message = f"{verb} cannot be part of a transaction (tx=); nothing was written"
            raise UnsupportedError(message)

    def _rule(self, key: str) -> tuple[str, bool]:
        if self._options.rule is not None:
            return self._options.rule.text(), False
        if self.handler.rule is not None and key == self.handler.series_key:
            return self.handler.rule.text(), True
        return "", False

    def _free_key(self) -> str:
        if self.handler.rule is not None:
            return self.handler.series_key
        if self._options.rule is not None:
            message = f"a recurring {self.kind} needs a key, to be cancelled by: using(key=…)"
            raise HandlerError(message)
        return fresh_key(self._desk.clock, self._desk.runtime)

    def _move(self, when: MoveTo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Move:
        due, only = move_due(when, self._desk.clock)
        return Move(self.ref(*args, **kwargs), due, only, self._options.if_revision)

    def _cancellation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cancellation:
        return Cancellation(self.ref(*args, **kwargs), self._options.if_revision)


def move_due(when: MoveTo, clock: Clock) -> tuple[Due | By, Only]:
    """Return what a move asks of the store for what a caller said."""
    if isinstance(when, Shift):
        return when.by(), Only.ANY
    if isinstance(when, Earlier):
        return parse_when(when.when, clock.now()), Only.EARLIER
    if isinstance(when, Later):
        return parse_when(when.when, clock.now()), Only.LATER
    return parse_when(when, clock.now()), Only.ANY


def conflict_mode(text: str) -> OnConflict:
    """Return the mode *text* names."""
    try:
        return OnConflict(text)
    except ValueError as error:
        modes = ", ".join(mode.value for mode in OnConflict)
        message = f"on_conflict is one of {modes}, not {text!r}"
        raise HandlerError(message) from error


def fresh_key(clock: Clock, runtime: Runtime) -> str:
    """Return a new key that sorts by time: a UUID, version 7."""
    number = (clock.now() & (1 << 48) - 1) << 80 | runtime.unique(80)
    number = number & ~(0xF000 << 64) | (0x7000 << 64)
    number = number & ~(0xC000 << 48) | (0x8000 << 48)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
