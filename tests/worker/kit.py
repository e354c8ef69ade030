"""What the tests of workers share: ears for events, gates for handlers, no sleeping."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tarry import Context, Event, Tarry
from tarry.api.function import TaskFunction
from tarry.events import AttemptEnded

LIMIT = 20
"""Seconds a test waits for what must come."""

E = TypeVar("E", bound=Event)
AnyTask = TaskFunction[Any, Any, Any, Any]
Body = Callable[[Context, int], Any]


class Ears:
    """Hears the events of an app, on whatever thread they happen."""

    def __init__(self, app: Tarry) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()
        app.listen(self._hear)

    def _hear(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind so far."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def wait(self, kind: type[E], count: int = 1) -> list[E]:
        """Wait until *count* events of *kind* have come."""
        with self._news:
            came = self._news.wait_for(lambda: len(self.of(kind)) >= count, LIMIT)
        assert came, f"{count} of {kind.__name__} were to come; came: {self.events}"
        return self.of(kind)

    def ended(self, count: int = 1) -> list[AttemptEnded]:
        """Wait until *count* attempts have ended."""
        return self.wait(AttemptEnded, count)

    def outcomes(self, count: int = 1) -> list[str]:
        """Wait until *count* attempts have ended; returns how."""
        return [event.outcome for event in self.ended(count)]


class Gate:
    """A door that handlers wait at, and that a test opens."""

    def __init__(self) -> None:
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def wait(self) -> None:
        """Wait at the door; for plain handlers."""
        self._entered.release()
        assert self._open.wait(LIMIT)

    async def await_(self) -> None:
        """Wait at the door; for async handlers."""
        self._entered.release()
        while not self._open.is_set():  # noqa: ASYNC110 - opened from another thread
            await asyncio.sleep(0.002)

    def entered(self, count: int = 1) -> None:
        """Wait until *count* handlers have come to the door."""
        for _ in range(count):
            assert self._entered.acquire(timeout=LIMIT), "the handler was not started"

    def open(self) -> None:
        """Let everybody through, now and later."""
        self._open.set()


def declare(app: Tarry, colour: str, body: Body, kind: str = "k", **options: Any) -> AnyTask:
    """Declare a handler of either colour that does *body*; only an async one may await."""
    if colour == "async":

        @app.task(kind, key="{n}", **options)
        async def handler(ctx: Context, n: int = 0) -> Any:
            result = body(ctx, n)
            return await result if inspect.iscoroutine(result) else result

        return handler

    @app.task(kind, key="{n}", **options)
    def plain(ctx: Context, n: int = 0) -> Any:
        return body(ctx, n)

    return plain


def waits(colour: str, gate: Gate) -> Any:
    """Wait at *gate* the way a handler of *colour* does; to be returned by a body."""
    return gate.await_() if colour == "async" else gate.wait()
