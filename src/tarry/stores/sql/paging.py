"""Paging: a scan's cursor as numbers, and a page out of what comes in order (pure)."""

from collections.abc import Callable, Iterator

from tarry.due import shown
from tarry.errors import CursorError
from tarry.stores.store import Filter, Page, matches
from tarry.task import Task

Place = tuple[int, int, int]
"""Where a record stands in a scan: due, row, and 1 for what waits behind a running attempt."""

_PAST_NUMBERS = 1 << 63
"""Integers of databases have 64 bits."""


def page(
    merged: Iterator[tuple[Place, Task]],
    where: Filter,
    limit: int,
    examine: int,
    name: Callable[[Place], str],
) -> Page:
    """Collect what matches until the page or the patience is used up."""
    found: list[Task] = []
    last: Place | None = None
    for examined, (place, task) in enumerate(merged):
        if last is not None and (examined == examine or len(found) == limit):
            return Page(found, name(last))
        last = place
        if matches(task, where):
            found.append(task)
    return Page(found, None)


def parse(cursor: str | None) -> Place:
    """Return the place a cursor names; None: before all others."""
    if cursor is None:
        return (-1, -1, -1)
    due, place, slot = numbers(cursor, 3)
    return due, place, slot


def numbers(cursor: str, count: int) -> list[int]:
    """Return the *count* numbers that *cursor* names."""
    try:
        found = [int(word) for word in cursor.split(" ")]
    except ValueError:
        found = []
    if len(found) != count or any(abs(number) >= _PAST_NUMBERS for number in found):
        message = (
            f"{shown(cursor)} is no cursor of this scan: hand back what the page before answered"
        )
        raise CursorError(message)
    return found
