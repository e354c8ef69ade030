"""Tarry: the one object that wires store, client and worker together."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from tarry.answers import CancelResult, Moved, Scheduled
from tarry.api.batcher import Batcher
from tarry.api.client import Client, accepted
from tarry.api.function import (
    ConflictMode,
    MoveTo,
    TaskFunction,
    conflict_mode,
    fresh_key,
    move_due,
)
from tarry.api.transaction import Transactions
from tarry.backoff import Backoff
from tarry.clock import SYSTEM, Clock
from tarry.context import Context
from tarry.due import Duration, When, duration_ms, parse_when
from tarry.errors import HandlerError, StoreBusyError, UnsupportedError, WhenError
from tarry.events import Event, Listener
from tarry.handler import Handler, Registry
from tarry.payload import PAYLOAD_LIMIT, Codec, Plain, check_size, encode, encode_headers
from tarry.recurrence import CatchUp, Rule
from tarry.request import Cancellation, Move, Request
from tarry.runtime import Runtime, ThreadRuntime
from tarry.stores.connect import connect
from tarry.stores.store import REMEMBER_MS, Store
from tarry.task import Task, TaskRef, check_namespace, check_ref

if TYPE_CHECKING:
    from tarry.worker.worker import Worker

P = ParamSpec("P")
K = ParamSpec("K")
R = TypeVar("R")

DEFAULT_URL = "sqlite:///tarry.db"
MOST_RETRY_FOR_MS = REMEMBER_MS - 10_000
"""Leaves the last try ten seconds to arrive."""


class Declared(TypedDict, total=False):
    """The options of `Tarry.task`."""

    retry: Backoff | None
    timeout: Duration | None
    drop_after: Duration | None
    keep: Duration | None
    concurrency: int | None
    aliases: Sequence[str]
    cron: str | None
    every: Duration | None
    tz: str | None
    catch_up: CatchUp


class ByName(TypedDict, total=False):
    """The options of `Tarry.build`, for the verbs that pass them on."""

    key: str | None
    payload: object
    headers: Mapping[str, str] | None
    on_conflict: ConflictMode
    max_wait: Duration | None
    if_revision: int | None
    every: Duration | None
    cron: str | None
    tz: str | None
    catch_up: CatchUp


class Tarry:
    """Schedules tasks on a store, and runs them.

    Nothing is opened before the first verb: an app may be made at import.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        namespace: str = "default",
        codec: Codec | None = None,
        payload_limit: int = PAYLOAD_LIMIT,
        retry_for: Duration = "10s",
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        self.namespace = check_namespace(namespace)
        self.codec: Codec = codec or Plain()
        self.payload_limit = payload_limit
        self.clock: Clock = clock or SYSTEM
        self.registry = Registry()
        self._retry_for_ms = _checked_retry_for(retry_for)
        self._listeners: tuple[Listener, ...] = ()
        self._opening = threading.RLock()
        self._client: Client | None = None
        self._runtime: Runtime | None = None
        self._joined: tuple[Client, Transactions] | None = None
        self._batchers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Batchers] = (
            weakref.WeakKeyDictionary()
        )

    # ---- what the app stands on

    @property
    def store(self) -> Store:
        """The store, opened at the first use."""
        return self.client.store

    @property
    def client(self) -> Client:
        """The client of the store."""
        if self._client is None:
            with self._opening:
                if self._client is None:
                    clock = None if self.clock is SYSTEM else self.clock
                    store = connect(self.url, namespace=self.namespace, clock=clock)
                    self._client = self._client_of(store)
        return self._client

    @property
    def runtime(self) -> Runtime:
        """The threads on which coroutines' calls block."""
        with self._opening:
            if self._runtime is None:
                self._runtime = ThreadRuntime()
            return self._runtime

    def _client_of(self, store: Store) -> Client:
        return Client(store, self.runtime, retry_for_ms=self._retry_for_ms)

    def swap(
        self, store: Store | None, clock: Clock, runtime: Runtime | None = None
    ) -> tuple[Store | None, Clock, Runtime | None]:
        """Put the app on another store, clock and machine; returns what it stood on before.

        For test kits.
        """
        before = (self._client.store if self._client else None, self.clock, self._runtime)
        self._runtime = runtime or self._runtime
        self._client = self._client_of(store) if store else None
        self.clock = clock
        self._batchers = weakref.WeakKeyDictionary()
        return before

    def close(self) -> None:
        """Let go of the store; the next verb opens it again."""
        client, self._client = self._client, None
        runtime, self._runtime = self._runtime, None
        self._batchers = weakref.WeakKeyDictionary()
        if client is not None:
            client.store.close()
        if isinstance(runtime, ThreadRuntime):
            runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- handlers

    @overload
    def task(
        self,
        kind: str | None = None,
        /,
        *,
        key: Callable[K, str],
        **options: Unpack[Declared],
    ) -> "Declaration[K]": ...

    @overload
    def task(
        self,
        kind: str | None = None,
        /,
        *,
        key: str | None = None,
        **options: Unpack[Declared],
    ) -> "Declaration[...]": ...

    def task(
        self,
        kind: str | None = None,
        /,
        *,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[Declared],
    ) -> "Declaration[...]":
        """Declare a handler; its kind is the function's name unless one is given.

        *key* makes the task's key of its arguments: a template, or a function whose parameters
        then type `cancel`, `reschedule`, `get` and `run_now`. *timeout* ends an attempt,
        *drop_after* makes a dead letter of what is later than that, *keep* keeps history,
        *concurrency* bounds the kind within a worker, *aliases* are older names of the kind.
        *cron* or *every* make it recur.
        """
        if callable(kind):
            message = f"write @app.task() above {kind.__name__}: the parentheses are needed"
            raise HandlerError(message)
        return Declaration(self, lambda fn: Handler(fn, kind=kind, key=key, **_handler(options)))

    # ---- verbs for producers without the handler's code

    def build(
        self,
        kind: str,
        when: When,
        *,
        key: str | None = None,
        payload: object = None,
        headers: Mapping[str, str] | None = None,
        on_conflict: ConflictMode = "replace",
        max_wait: Duration | None = None,
        if_revision: int | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
    ) -> Request:
        """Return a request for *kind* by name; the payload is an object of the arguments."""
        rule = ""
        if every is not None or cron is not None:
            rule = Rule.make(cron=cron, every=every, tz=tz, catch_up=catch_up).text()
        data = self.codec.encode(encode({} if payload is None else payload))
        kept = encode_headers(headers)
        check_size(data, kept, self.payload_limit)
        handler = self.registry.find(kind)
        return Request(
            check_ref(kind, fresh_key(self.clock, self.runtime) if key is None else key),
            parse_when(when, self.clock.now()),
            data,
            kept,
            conflict_mode(on_conflict),
            None if max_wait is None else duration_ms(max_wait),
            if_revision,
            rule,
            keep_ms=handler.keep_ms if handler else 0,
        )

    def schedule(
        self, kind: str, when: When, *, tx: object = None, **options: Unpack[ByName]
    ) -> Scheduled:
        """Schedule *kind* by name; takes what `build` takes."""
        return self.schedule_request(self.build(kind, when, **options), tx)

    async def aschedule(
        self, kind: str, when: When, *, tx: object = None, **options: Unpack[ByName]
    ) -> Scheduled:
        """Schedule *kind* by name; for coroutines."""
        return await self.aschedule_request(self.build(kind, when, **options), tx)

    def schedule_many(self, requests: Iterable[Request]) -> list[Scheduled]:
        """Schedule many built requests; all are validated before the first is written."""
        return accepted(self.client.schedule(list(requests)))

    async def aschedule_many(self, requests: Iterable[Request]) -> list[Scheduled]:
        """Schedule many built requests; for coroutines."""
        ready = list(requests)
        return accepted(await self.runtime.run_blocking(self.client.schedule, ready))

    def reschedule(
        self, ref: TaskRef, when: MoveTo, *, if_revision: int | None = None, tx: object = None
    ) -> Moved:
        """Move the waiting task of *ref*."""
        return self.move(Move(ref, *move_due(when, self.clock), if_revision), tx)

    async def areschedule(
        self, ref: TaskRef, when: MoveTo, *, if_revision: int | None = None, tx: object = None
    ) -> Moved:
        """Move the waiting task of *ref*; for coroutines."""
        return await self.amove(Move(ref, *move_due(when, self.clock), if_revision), tx)

    def cancel(
        self, ref: TaskRef, *, if_revision: int | None = None, tx: object = None
    ) -> CancelResult:
        """Cancel the task of *ref*."""
        return self.cancel_ref(Cancellation(ref, if_revision), tx)

    async def acancel(
        self, ref: TaskRef, *, if_revision: int | None = None, tx: object = None
    ) -> CancelResult:
        """Cancel the task of *ref*; for coroutines."""
        return await self.acancel_ref(Cancellation(ref, if_revision), tx)

    def run_now(self, ref: TaskRef) -> Moved:
        """Make the waiting task of *ref* due now, or revive it if it is dead."""
        return self.client.run_now(ref)

    async def arun_now(self, ref: TaskRef) -> Moved:
        """Make the waiting task of *ref* due now; for coroutines."""
        return await self.runtime.run_blocking(self.client.run_now, ref)

    def get(self, ref: TaskRef) -> Task | None:
        """Return the task of *ref*: waiting, else running, else dead or kept."""
        return self.client.get(ref)

    async def aget(self, ref: TaskRef) -> Task | None:
        """Return the task of *ref*; for coroutines."""
        return await self.runtime.run_blocking(self.client.get, ref)

    def pause(self, kind: str) -> bool:
        """Stop claims of *kind* everywhere; says whether it was paused already."""
        return self.client.pause(kind, paused=True)

    def resume(self, kind: str) -> bool:
        """Let *kind* be claimed again; says whether it was paused."""
        return self.client.pause(kind, paused=False)

    # ---- what a TaskFunction asks for

    def schedule_request(self, request: Request, tx: object = None) -> Scheduled:
        """Schedule one built request."""
        if tx is not None:
            return accepted([self._transactions.schedule(request, tx)])[0]
        return accepted(self.client.schedule([request]))[0]

    async def aschedule_request(self, request: Request, tx: object = None) -> Scheduled:
        """Schedule one built request, together with what others ask for at this moment."""
        if tx is not None:
            return accepted([await self._transactions.aschedule(request, tx)])[0]
        answer = await self._batch.schedule.ask(request)
        return accepted([answer])[0]

    def move(self, move: Move, tx: object = None) -> Moved:
        """Move one task."""
        if tx is not None:
            return self._transactions.move(move, tx)
        return self.client.reschedule([move])[0]

    async def amove(self, move: Move, tx: object = None) -> Moved:
        """Move one task, together with what others ask for at this moment."""
        if tx is not None:
            return await self._transactions.amove(move, tx)
        return await self._batch.reschedule.ask(move)

    def cancel_ref(self, cancellation: Cancellation, tx: object = None) -> CancelResult:
        """Cancel one task."""
        if tx is not None:
            self._refuse_series(cancellation.ref)
            return self._transactions.cancel(cancellation, tx)
        if self._recurs(cancellation.ref):
            return self.client.skip(cancellation)
        return self.client.cancel([cancellation])[0]

    async def acancel_ref(self, cancellation: Cancellation, tx: object = None) -> CancelResult:
        """Cancel one task, together with what others ask for at this moment."""
        if tx is not None:
            await self.runtime.run_blocking(self._refuse_series, cancellation.ref)
            return await self._transactions.acancel(cancellation, tx)
        if self._recurs(cancellation.ref):
            return await self.runtime.run_blocking(self.client.skip, cancellation)
        return await self._batch.cancel.ask(cancellation)

    def _recurs(self, ref: TaskRef) -> bool:
        """Say whether a cancel of *ref* may have to skip an occurrence: unknown kinds might."""
        handler = self.registry.find(ref.kind)
        return handler is None or handler.rule is not None

    def _refuse_series(self, ref: TaskRef) -> None:
        """Raise if a cancel of *ref* would have to skip an occurrence: that takes two steps."""
        task = self.client.get(ref) if self._recurs(ref) else None
        if task is not None and task.declared:
            message = (
                f"{ref} recurs by its declaration: to skip an occurrence cannot be part of a "
                "transaction (tx=); cancel it after the commit; nothing was written"
            )
            raise UnsupportedError(message)

    @property
    def _transactions(self) -> Transactions:
        try:
            client = self.client
        except StoreBusyError as error:
            message = (
                f"{error}; the store was to be opened, and its tables made, inside of your "
                "transaction: do so before it (app.store, or `tarry migrate`)"
            )
            raise StoreBusyError(message) from error
        if self._joined is None or self._joined[0] is not client:
            self._joined = (client, Transactions(client.store, self.runtime))
        return self._joined[1]

    @property
    def _batch(self) -> "_Batchers":
        loop = asyncio.get_running_loop()
        found = self._batchers.get(loop)
        if found is None:
            found = self._batchers[loop] = _Batchers(self.client, self.runtime)
        return found

    # ---- events

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with every event of this app's workers; returns an undo."""
        self._listeners = (*self._listeners, listener)

        def undo() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return undo

    def emit(self, event: Event) -> None:
        """Tell the listeners; one that fails harms nobody."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever a listener does wrong
                from tarry.observe.logs import log  # noqa: PLC0415 - logging only when needed

                log.exception("a listener failed on %s", type(event).__name__)

    # ---- workers

    def make_worker(self, **settings: Any) -> "Worker":
        """Return a worker for this app's handlers; takes the settings of `Worker`."""
        from tarry.observe.logs import attach  # noqa: PLC0415 - a producer stays light
        from tarry.worker.worker import Worker  # noqa: PLC0415

        attach(self)
        return Worker(self.store, self.registry, codec=self.codec, emit=self.emit, **settings)

    def run_worker(self, **settings: Any) -> None:
        """Run a worker until SIGTERM or SIGINT."""
        from tarry.worker.serve import run_until_signal  # noqa: PLC0415

        run_until_signal(self.make_worker(**settings))

    def worker(self, **settings: Any) -> "AbstractContextManager[Worker]":
        """Run a worker on a thread of its own while the block lasts."""
        from tarry.worker.serve import in_background  # noqa: PLC0415

        return in_background(self.make_worker(**settings))

    def aworker(self, **settings: Any) -> "AbstractAsyncContextManager[Worker]":
        """Run a worker on the running event loop while the block lasts."""
        from tarry.worker.serve import on_loop  # noqa: PLC0415

        return on_loop(self.make_worker(**settings))

    def lifespan(
        self,
        *,
        worker: bool = False,
        **settings: Any,
    ) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """Return a lifespan for ASGI frameworks: opens the store, and runs a worker if asked to."""

        @asynccontextmanager
        async def span(_: object) -> AsyncIterator[None]:
            try:
                if worker:
                    async with self.aworker(**settings):
                        yield
                else:
                    yield
            finally:
                self.close()

        return span


def _checked_retry_for(retry_for: Duration) -> int:
    """Return milliseconds; a call must not be repeated when the medium may have forgotten it."""
    wanted = duration_ms(retry_for)
    if wanted > MOST_RETRY_FOR_MS:
        message = (
            f"retry_for={retry_for!r} is too long: a medium remembers a call for "
            f"{REMEMBER_MS // 1_000} s, so that it can be repeated for at most "
            f"{MOST_RETRY_FOR_MS // 1_000} s"
        )
        raise WhenError(message)
    return wanted


def _handler(options: Declared) -> dict[str, Any]:
    """Return the options of a Handler: the words of a rule become one."""
    given: dict[str, Any] = dict(options)
    words = {name: given.pop(name, None) for name in ("cron", "every", "tz", "catch_up")}
    if any(word is not None for word in words.values()):
        words["catch_up"] = words["catch_up"] or "latest"
        given["rule"] = Rule.make(**words)
    return given


class Declaration(Generic[K]):
    """What `app.task(…)` returns: makes a TaskFunction of the function it decorates."""

    def __init__(self, app: Tarry, make: Callable[[Callable[..., Any]], Handler]) -> None:
        self._app = app
        self._make = make

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Context, P], R], /
    ) -> TaskFunction[Concatenate[Context, P], P, K, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> TaskFunction[P, P, K, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Register *fn*."""
        handler = self._make(fn)
        self._app.registry.add(handler)
        return TaskFunction(handler, self._app)


class _Batchers:
    """The batchers of one event loop."""

    def __init__(self, client: Client, runtime: Runtime) -> None:
        self.schedule: Batcher[Request, Scheduled] = Batcher(client.schedule, runtime)
        self.reschedule: Batcher[Move, Moved] = Batcher(client.reschedule, runtime)
        self.cancel: Batcher[Cancellation, CancelResult] = Batcher(client.cancel, runtime)
