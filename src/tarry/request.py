"""Request, Move, Cancellation, Settlement: what stores are asked to do."""

from enum import Enum

import msgspec

from tarry.attempt import AnyOutcome
from tarry.due import By, Due
from tarry.lease import Lease
from tarry.task import TaskRef


class OnConflict(Enum):
    """What a schedule does when a revision of its ref waits already."""

    REPLACE = "replace"
    KEEP = "keep"
    EARLIEST = "earliest"
    LATEST = "latest"
    FAIL = "fail"


class Only(Enum):
    """Which moves are wanted."""

    ANY = "any"
    EARLIER = "earlier"
    LATER = "later"


class Request(msgspec.Struct, frozen=True, gc=False):
    """A task to be scheduled. `nominal` 0 means: the due itself is the occurrence of `rule`."""

    ref: TaskRef
    due: Due
    payload: bytes = b"{}"
    headers: bytes = b""
    on_conflict: OnConflict = OnConflict.REPLACE
    max_wait_ms: int | None = None
    if_revision: int | None = None
    rule: str = ""
    nominal: int = 0
    declared: bool = False
    keep_ms: int = 0


class Move(msgspec.Struct, frozen=True, gc=False):
    """A new due for a waiting task; `nominal` also moves the series on to that occurrence."""

    ref: TaskRef
    due: Due | By
    only: Only = Only.ANY
    if_revision: int | None = None
    nominal: int | None = None


class Cancellation(msgspec.Struct, frozen=True, gc=False):
    """A task that is no longer wanted; `only_running`: a conflict if it waits."""

    ref: TaskRef
    if_revision: int | None = None
    only_running: bool = False


class Successor(msgspec.Struct, frozen=True):
    """The next occurrence of a recurring task, placed by the settlement of this one."""

    due: int
    nominal: int


class Settlement(msgspec.Struct, frozen=True):
    """What became of the attempt under *lease*."""

    lease: Lease
    outcome: AnyOutcome
    successor: Successor | None = None


class DeadRef(msgspec.Struct, frozen=True):
    """A dead letter; revision 0 means the newest one of the ref."""

    ref: TaskRef
    revision: int = 0
