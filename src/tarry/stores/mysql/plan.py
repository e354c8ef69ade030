"""Plans: verbs as batches of statements, which our own connections and callers' ones can run.

A plan yields statements, is sent their rows, and returns what it told and what is left to write:
on a connection of ours the writes go with the commit, in one exchange.
"""

from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from tarry.stores.joining import Rows, Statement

A = TypeVar("A")
S = TypeVar("S")

LAST = 253_402_300_799_999
NOW_US = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""The server's clock, whatever the time zone of the session."""
NOW = f"({NOW_US} DIV 1000)"


class Told(msgspec.Struct, Generic[A], frozen=True):
    """The answers of a verb, what is left to write, and what became claimable: lanes and dues."""

    answers: list[A]
    writes: Sequence[Statement] = ()
    news: Sequence[tuple[int, int]] = ()


Plan: TypeAlias = Generator[Sequence[Statement], Sequence[Rows], Told[A]]


def literal(value: Any) -> str:
    """Return a value as it is written in a statement; bytes as hexadecimal digits."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(int(value))


def text(statement: Statement) -> str:
    """Return a statement with its values written out."""
    if not statement.values:
        return statement.sql
    return statement.sql % tuple(map(literal, statement.values))


def marks(count: int) -> str:
    """Return so many places for values."""
    return ", ".join(["%s"] * count)


def rows_of(plan: Plan[A]) -> Generator[Statement, Rows, Told[A]]:
    """Run a plan one statement at a time, its writes too: for a connection of the caller's."""
    batch = next(plan)
    while True:
        replies = []
        for statement in batch:
            replies.append((yield statement))  # noqa: PERF401 - a comprehension cannot yield
        try:
            batch = plan.send(replies)
        except StopIteration as end:
            told: Told[A] = end.value
            for statement in told.writes:
                yield statement
            return told
