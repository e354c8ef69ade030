"""Joins: the verbs of a store as statements that the caller's own transaction runs.

Each verb is a generator: it yields a statement, is sent the rows that came back, and returns the
answers of `Store`. So the same verb runs on a connection that blocks, on one that is awaited and
below SQLAlchemy or Django, and nothing here commits or rolls back: that is the caller's.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgspec

from tarry.answers import CancelResult, Moved, Scheduled, SettleResult
from tarry.request import Cancellation, Move, Request, Settlement

Rows = Sequence[Sequence[Any]]

T = TypeVar("T")


class Statement(msgspec.Struct, frozen=True):
    """One statement in the driver's own style of parameters; `rows`: it answers with rows."""

    sql: str
    values: Sequence[Any] = ()
    rows: bool = True


Steps = Generator[Statement, Rows, T]


class Joins(ABC):
    """What a store offers whose tasks may be part of a caller's transaction."""

    joined_drivers: frozenset[str] = frozenset()
    """Drivers whose style of parameters the statements have; none: whatever the caller uses."""

    def join_check(self, connection: object) -> Steps[None]:
        """Raise StoreRefusedError if the transaction is not one of the store's own database.

        Runs before every verb and writes nothing; *connection* is the driver's own, for a store
        that looks once at each. Nothing to do where the statements of the verbs see it themselves.
        """
        del connection
        yield from ()

    @abstractmethod
    def join_schedule(self, requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests when the caller commits."""

    @abstractmethod
    def join_reschedule(self, moves: Sequence[Move]) -> Steps[list[Moved]]:
        """Give waiting tasks a new due when the caller commits."""

    @abstractmethod
    def join_cancel(self, cancellations: Sequence[Cancellation]) -> Steps[list[CancelResult]]:
        """Cancel tasks when the caller commits."""

    @abstractmethod
    def join_settle(self, settlements: Sequence[Settlement]) -> Steps[list[SettleResult]]:
        """Record outcomes when the caller commits; a lost lease is said, nothing is raised."""

    @abstractmethod
    def committed(self, due: int) -> None:
        """Wake the workers for *due*: what was joined has been committed.

        Nothing to do where the medium itself tells them of a commit.
        """
