"""Joined: a verb as the one statement that a caller's own transaction runs.

The function that the store itself calls, with the same arguments, as the caller's driver writes
them: rows, locks and the wake-up belong to the caller's transaction.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tarry.answers import Scheduled, SettleResult
from tarry.request import Request, Settlement
from tarry.stores.joining import Statement, Steps
from tarry.stores.postgres import verbs
from tarry.stores.postgres.verbs import Batch

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer


def schedule(
    schema: str, opening: list[Any], requests: Sequence[Request]
) -> Steps[list[Scheduled]]:
    """Place requests; one statement, however many there are."""
    if not requests:
        return []
    given = verbs.batch([request.ref for request in requests])
    values = [*opening, *verbs.schedule(given, requests)]
    rows = yield Statement(verbs.joined("schedule", schema), values)
    return verbs.scheduled(given, requests, rows[0][0])


def each(
    name: str,
    schema: str,
    opening: list[Any],
    items: Sequence[I],
    say: Callable[[Batch, Sequence[I]], list[Any]],
    read: Callable[[Batch, Sequence[int]], list[A]],
) -> Steps[list[A]]:
    """Run a verb on items that name their refs."""
    if not items:
        return []
    given = verbs.batch([item.ref for item in items])  # type: ignore[attr-defined]
    rows = yield Statement(verbs.joined(name, schema), [*opening, *say(given, items)])
    return read(given, rows[0][0])


def settle(
    schema: str, opening: list[Any], settlements: Sequence[Settlement]
) -> Steps[list[SettleResult]]:
    """Record outcomes; nothing is relaxed, since it is the caller's commit."""
    if not settlements:
        return []
    given = verbs.batch([item.lease.ref for item in settlements])
    values = [*opening, False, *verbs.settle(given, settlements, verbs.tids)]
    rows = yield Statement(verbs.joined("settle", schema), values)
    return verbs.settled(given, rows[0][0])
