"""The life of a ref as rows: read it, let `tarry.life` change it, write what changed."""

import sqlite3
from typing import Any

import msgspec

from tarry.lease import Lease
from tarry.life import Change, Life
from tarry.stores.sql.statements import load
from tarry.stores.sqlite import rows
from tarry.task import Task, TaskState

SQL = load("tarry.stores.sqlite")


class Found(msgspec.Struct, frozen=True):
    """A life, and the id of its row (None: it has none)."""

    life: Life
    place: int | None


def read(db: sqlite3.Connection, lane: int, kind: str, key: str) -> Found:
    """Return what the database knows of a ref."""
    row = db.execute(SQL["find"], (lane, key)).fetchone()
    if row is None:
        return Found(Life(), None)
    token, holder, expires = row[rows.HEAD :]
    if token is None:
        return Found(Life(rows.task(kind, row)), row[0])
    behind = db.execute(SQL["behind"], (row[0],)).fetchone()
    waiting = None if behind is None else rows.task(kind, behind)
    return Found(Life(waiting, rows.lease(kind, row, token, holder, expires)), row[0])


def write(db: sqlite3.Connection, lane: int, found: Found, change: Change[Any]) -> None:
    """Write the life after *change* in place of the one that was found."""
    old, new, place = found.life, change.life, found.place
    if new is not old:
        first, second = slots(new)
        if first is None:
            db.execute(SQL["delete"], (place,))
        elif first is not slots(old)[0]:
            place = _put(db, lane, place, first)
        if second is not None:
            db.execute(SQL["put_behind"], {"id": place, **rows.columns(lane, second)})
        elif slots(old)[1] is not None:
            db.execute(SQL["delete_behind"], (found.place,))
    for task in change.ended:
        keep(db, lane, task)


def move(db: sqlite3.Connection, lane: int, found: Found, change: Change[Any]) -> None:
    """Write a change that moved a waiting task and nothing else; any other as `write` does."""
    old, new = found.life, change.life
    if new is old:
        return
    if old.running is not None or new.waiting is None:
        write(db, lane, found, change)
    else:
        moved = new.waiting
        db.execute(SQL["move"], (moved.due, moved.revision, moved.nominal, found.place))


def keep(db: sqlite3.Connection, lane: int, task: Task) -> None:
    """Keep the record of an end: dead letters for good, others as long as the task asks for."""
    if end := kept(task):
        db.execute(SQL["put_ended"], {**rows.columns(lane, task), **end})


def kept(task: Task) -> dict[str, Any] | None:
    """Return the columns that only the record of an end has; None if it is not kept."""
    dead = task.state is TaskState.DEAD
    if not dead and not task.keep_ms:
        return None
    return {
        "state": task.state.value,
        "at": task.ended,
        "until": None if dead else task.ended + task.keep_ms,
    }


def claimable(life: Life) -> int | None:
    """Return the due of a waiting revision that no attempt stands before."""
    return life.waiting.due if life.waiting is not None and life.running is None else None


def slots(life: Life) -> tuple[Task | Lease | None, Task | None]:
    """Return what stands in the ref's own row, and what stands behind it."""
    if life.running is not None:
        return life.running, life.waiting
    return life.waiting, None


def held(slot: Task | Lease) -> dict[str, Any]:
    """Return the columns of the lease in *slot*; empty ones if it is a task that waits."""
    if isinstance(slot, Lease):
        return {"token": slot.token, "holder": slot.holder, "expires": slot.expires}
    return {"token": None, "holder": None, "expires": None}


def _put(db: sqlite3.Connection, lane: int, place: int | None, slot: Task | Lease) -> int:
    task = slot.task if isinstance(slot, Lease) else slot
    cursor = db.execute(SQL["put"], {"id": place, **rows.columns(lane, task), **held(slot)})
    return place if place is not None else int(cursor.lastrowid or 0)
