"""Steps: what a verb does to one ref, inside a transaction; the rules are those of `tarry.life`."""

import sqlite3

import msgspec
from msgspec.structs import replace

from tarry import life as lives
from tarry.answers import CancelResult, Moved, ReviveResult, Scheduled, SettleResult
from tarry.life import Change, Life
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.sqlite import rows
from tarry.stores.sqlite.record import SQL
from tarry.task import Task, TaskState


class Moment(msgspec.Struct):
    """What a step knows of the transaction it is in."""

    db: sqlite3.Connection
    lane: int
    now: int
    draw: lives.Draw


def schedule(life: Life, item: Request, moment: Moment) -> Change[Scheduled]:
    """Schedule one request."""
    return lives.schedule(life, item, moment.now, moment.draw)


def reschedule(life: Life, item: Move, moment: Moment) -> Change[Moved]:
    """Move one task."""
    return lives.reschedule(life, item, moment.now, moment.draw)


def cancel(life: Life, item: Cancellation, moment: Moment) -> Change[CancelResult]:
    """Cancel one task."""
    return lives.cancel(life, item, moment.now)


def settle(life: Life, item: Settlement, moment: Moment) -> Change[SettleResult]:
    """Settle one attempt."""
    return lives.settle(life, item, moment.now, moment.draw)


def revive(life: Life, item: DeadRef, moment: Moment) -> Change[ReviveResult]:
    """Make one dead letter a waiting task again."""
    row = _dead(item, moment)
    dead = None if row is None else rows.ended(item.ref.kind, row)
    change = lives.revive(life, dead, moment.now, moment.draw)
    if row is not None and change.answer is ReviveResult.REVIVED:
        moment.db.execute(SQL["delete_ended"], (row[0],))
    return change


def purge(life: Life, item: DeadRef, moment: Moment) -> Change[bool]:
    """Delete one dead letter."""
    row = _dead(item, moment)
    if row is not None:
        moment.db.execute(SQL["delete_ended"], (row[0],))
    return Change(row is not None, life)


def take_over(life: Life, item: Task, moment: Moment, *, over: bool) -> Change[bool]:
    """Place one record of another store."""
    if item.state is not TaskState.DEAD:
        return lives.take_over(life, item, moment.now, moment.draw, over=over)
    there = moment.db.execute(SQL["dead_at"], (moment.lane, item.ref.key, item.ended)).fetchone()
    if there:
        return Change(answer=False, life=life)
    return Change(answer=True, life=life, ended=(replace(item, revision=moment.draw()),))


def _dead(item: DeadRef, moment: Moment) -> rows.Row | None:
    wanted = (moment.lane, item.ref.key, item.revision, item.revision)
    found: rows.Row | None = moment.db.execute(SQL["dead"], wanted).fetchone()
    return found
