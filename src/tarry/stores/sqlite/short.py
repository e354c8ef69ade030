"""Short paths: batches that meet nothing in their way, in one statement."""

import sqlite3
from collections.abc import Sequence

from tarry.due import resolve
from tarry.request import Request
from tarry.stores.sqlite.record import SQL

Record = tuple[int, str, int, int, int, int, bool, int, str, bytes, bytes]
"""The columns of `insert`."""


class TakenError(Exception):
    """Something stood in the way; the transaction is to be rolled back and the long path taken."""


def record(r: Request, lane: int, now: int, revision: int) -> Record:
    """Return the columns of a new task."""
    due = resolve(r.due, now)
    return (
        lane,
        r.ref.key,
        due,
        revision,
        now,
        r.nominal or (due if r.rule else 0),
        r.declared,
        r.keep_ms,
        r.rule,
        r.headers,
        r.payload,
    )


def insert_all(db: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Insert new tasks; raises TakenError if one is not new."""
    try:
        db.executemany(SQL["insert"], records)
    except sqlite3.IntegrityError as error:
        raise TakenError from error


def insert_if(db: sqlite3.Connection, record: Record, owner: int, mark: int) -> bool:
    """Insert a new task while the counter has *owner* and *mark*; raises TakenError if not new."""
    try:
        return db.execute(SQL["insert_owned"], (*record, owner, mark)).rowcount == 1
    except sqlite3.IntegrityError as error:
        raise TakenError from error


def delete_done(db: sqlite3.Connection, places: bytes, tokens: bytes, count: int) -> None:
    """Delete attempts that are done; raises TakenError unless that is all there is to do."""
    if db.execute(SQL["any_behind"]).fetchone():
        raise TakenError
    if db.execute(SQL["settle_done"], (places, tokens)).rowcount != count:
        raise TakenError
