"""Joined: the verbs of the SQLite store as statements of the caller's own transaction.

The first statement of each verb writes: from it on SQLite's write lock is the caller's, and what is
read behind it stays as it is until the caller commits (decision 26).
"""

import os
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from tarry import life as lives
from tarry.answers import CancelResult, Moved, Scheduled, ScheduleStatus, SettleResult
from tarry.clock import Clock
from tarry.errors import StoreRefusedError
from tarry.lease import Lease
from tarry.life import Change, Life
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.joining import Rows, Statement, Steps
from tarry.stores.sqlite import record, rows, short
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.lanes import Lanes
from tarry.stores.sqlite.record import SQL
from tarry.task import TaskRef

A = TypeVar("A")
Item = TypeVar("Item")

_NAMED = re.compile(r":([a-z_]+)")
_Step = Callable[[Life, Any, int, lives.Draw], Change[A]]


class Joined:
    """Builds what the caller's connection runs; nothing here has a connection of its own."""

    def __init__(
        self, path: str, namespace: str, connections: Connections, lanes: Lanes, clock: Clock
    ) -> None:
        self._path = path
        self._namespace = namespace
        self._connections = connections
        self._lanes = lanes
        self._clock = clock

    def check(self) -> Steps[None]:
        """Refuse a connection whose main database is another file."""
        self._connections.own()
        found = yield Statement("PRAGMA database_list")
        file = next((row[2] for row in found if row[1] == "main"), "")
        if not file or os.path.realpath(file) != self._path:
            message = (
                f"the transaction is one of {file or 'a database in memory'}, the tasks are in "
                f"{self._path}; nothing was written; what commits together lies in one file"
            )
            raise StoreRefusedError(message)

    def schedule(self, requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests."""
        first = yield from self._draw(len(requests))
        answers = []
        for revision, request in enumerate(requests, first):
            fresh = yield from self._insert(request, revision)
            if fresh is None:
                fresh = yield from self._each(request.ref, request, lives.schedule, revision)
            answers.append(fresh)
        return answers

    def _insert(self, request: Request, revision: int) -> Steps[Scheduled | None]:
        """Insert a task whose ref is new; None, and nothing written, if it is not."""
        if request.if_revision is not None:
            return None
        lane = yield from self._lane(request.ref.kind)
        row = short.record(request, lane, self._clock.now(), revision)
        if not (yield Statement(SQL["insert_new"], row)):
            return None
        return Scheduled(request.ref, row[2], revision, ScheduleStatus.CREATED)

    def reschedule(self, moves: Sequence[Move]) -> Steps[list[Moved]]:
        """Move waiting tasks."""
        first = yield from self._draw(len(moves))
        answers = []
        for revision, move in enumerate(moves, first):
            answers.append((yield from self._each(move.ref, move, lives.reschedule, revision)))
        return answers

    def cancel(self, cancellations: Sequence[Cancellation]) -> Steps[list[CancelResult]]:
        """Cancel tasks."""
        yield from self._lock()
        answers = []
        for item in cancellations:
            answer = yield from self._each(item.ref, item, _cancel, 0)
            answers.append(answer)
        return answers

    def settle(self, settlements: Sequence[Settlement]) -> Steps[list[SettleResult]]:
        """Record outcomes."""
        first = 0
        if any(item.successor for item in settlements):
            first = yield from self._draw(len(settlements))
        else:
            yield from self._lock()
        answers = []
        for revision, item in enumerate(settlements, first):
            answers.append((yield from self._each(item.lease.ref, item, lives.settle, revision)))
        return answers

    # ---- the write lock, and what is done under it

    def _draw(self, count: int) -> Steps[int]:
        """Take the write lock and *count* revisions; returns the first.

        They are nobody's block: whoever has one finds that it is no longer the newest, and a
        rollback gives the counter back as it was.
        """
        [[last]] = yield Statement(SQL["draw_joined"], (count,))
        self._connections.heal_joined()
        return int(last) - count + 1

    def _lock(self) -> Steps[None]:
        """Take the write lock."""
        yield Statement(SQL["lock_joined"], rows=False)
        self._connections.heal_joined()

    def _lane(self, kind: str) -> Steps[int]:
        """Return the kind's lane; one that is made here is not remembered: it may be undone."""
        known = self._lanes.of((kind,)).get(kind)
        if known is not None:
            return known
        yield Statement(SQL["add_lane"], (self._namespace, kind), rows=False)
        [[lane]] = yield Statement(SQL["lane_joined"], (self._namespace, kind))
        return int(lane)

    def _each(self, ref: TaskRef, item: Item, step: _Step[A], revision: int) -> Steps[A]:
        """Run *step* on the life of the item's ref."""
        lane = yield from self._lane(ref.kind)
        found = yield from _read(lane, ref)
        change = step(found.life, item, self._clock.now(), lambda: revision)
        yield from _write(lane, found, change)
        return change.answer


def _cancel(life: Life, item: Cancellation, now: int, draw: lives.Draw) -> Change[CancelResult]:
    del draw
    return lives.cancel(life, item, now)


def _read(lane: int, ref: TaskRef) -> Steps[record.Found]:
    """Do what `record.read` does."""
    found = yield Statement(SQL["find"], (lane, ref.key))
    if not found:
        return record.Found(Life(), None)
    [row] = found
    token, holder, expires = row[rows.HEAD :]
    if token is None:
        return record.Found(Life(rows.task(ref.kind, row)), row[0])
    behind = yield Statement(SQL["behind"], (row[0],))
    waiting = rows.task(ref.kind, behind[0]) if behind else None
    return record.Found(Life(waiting, rows.lease(ref.kind, row, token, holder, expires)), row[0])


def _write(lane: int, found: record.Found, change: Change[Any]) -> Generator[Statement, Rows, None]:
    """Do what `record.write` does."""
    old, new, place = found.life, change.life, found.place
    if new is not old:
        first, second = record.slots(new)
        if first is None:
            yield Statement(SQL["delete"], (place,), rows=False)
        elif first is not record.slots(old)[0]:
            task = first.task if isinstance(first, Lease) else first
            yield _named("put", {"id": place, **rows.columns(lane, task), **record.held(first)})
        if second is not None:
            yield _named("put_behind", {"id": place, **rows.columns(lane, second)})
        elif record.slots(old)[1] is not None:
            yield Statement(SQL["delete_behind"], (place,), rows=False)
    for task in change.ended:
        if kept := record.kept(task):
            yield _named("put_ended", {**rows.columns(lane, task), **kept})


def _named(name: str, values: dict[str, Any]) -> Statement:
    """Return a statement with names as one with places: callers' drivers differ in names."""
    sql = SQL[name]
    places = tuple(values[found] for found in _NAMED.findall(sql))
    return Statement(_NAMED.sub("?", sql), places, rows=False)
