"""Events: things that happened, as values; the seam for logs, metrics and traces."""

from collections.abc import Callable

import msgspec

from tarry.task import TaskRef


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""


class AttemptEnded(Event, frozen=True, kw_only=True):
    """An attempt came to its end; `outcome` is done, skip, retry, snooze, dead or release."""

    ref: TaskRef
    revision: int
    attempt: int
    token: int
    due: int
    outcome: str
    reason: str
    lateness_ms: float
    run_ms: float
    error: BaseException | None = None


class LeaseLost(Event, frozen=True, kw_only=True):
    """An attempt could not be settled, or not be started: somebody else may have the task."""

    ref: TaskRef
    token: int


class UnknownFields(Event, frozen=True, kw_only=True):
    """A payload had fields its handler does not know; they were ignored."""

    ref: TaskRef
    fields: tuple[str, ...]


class SlotLost(Event, frozen=True, kw_only=True):
    """A handler outlived its time-out on a thread that cannot be stopped."""

    ref: TaskRef
    lost: int


class StoreLost(Event, frozen=True, kw_only=True):
    """The store did not answer; the worker tries again after `again_ms`."""

    error: BaseException
    again_ms: int


class StoreBack(Event, frozen=True, kw_only=True):
    """The store answers again."""

    after_ms: int


class WorkerStarted(Event, frozen=True, kw_only=True):
    """A worker looks after `kinds` from now on."""

    holder: str
    kinds: tuple[str, ...]


class WorkerStopped(Event, frozen=True, kw_only=True):
    """A worker has stopped, after `attempts`; `released` were given back unfinished."""

    holder: str
    attempts: int
    released: int


Listener = Callable[[Event], None]
"""Called with each event, on the thread where it happened; must be quick."""
