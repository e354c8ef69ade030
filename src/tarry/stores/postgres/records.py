"""Records: from rows to tasks, leases and lives.

Every row of a task begins with the same columns: COLUMNS, behind a place and a kind or lane.
"""

from collections.abc import Sequence
from typing import Any

from tarry.lease import Lease
from tarry.life import Life
from tarry.task import Task, TaskRef, TaskState

Row = Sequence[Any]

COLUMNS = (
    *("key", "due", "revision", "created", "attempt", "snoozes", "lost", "nominal", "declared"),
    *("cancelled", "keep_ms", "rule", "reason", "headers", "payload"),
)
FIRST = 2
WIDTH = len(COLUMNS)


def columns(alias: str) -> str:
    """Return the columns of a record as a select names them."""
    return ", ".join(f"{alias}.{name}" for name in COLUMNS)


def task_of(
    kind: str, row: Row, state: TaskState = TaskState.SCHEDULED, ended: int = 0, at: int = FIRST
) -> Task:
    """Return the task in a row whose record begins at column *at*."""
    # fmt: off
    (key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
     rule, reason, headers, payload) = row[at : at + WIDTH]
    # fmt: on
    return Task(
        ref=TaskRef(kind, key),
        due=due,
        revision=revision,
        created=created,
        attempt=attempt,
        snoozes=snoozes,
        lost=lost,
        nominal=nominal,
        declared=declared,
        cancelled=cancelled,
        keep_ms=keep_ms,
        rule=rule,
        reason=reason,
        headers=headers,
        payload=payload,
        state=state,
        ended=ended,
    )


def lease_of(kind: str, row: Row, holder: str) -> Lease:
    """Return the lease in a row that ends with token and expires; its place is that of the row."""
    return Lease(
        task=task_of(kind, row, TaskState.LEASED),
        token=row[-2],
        holder=holder,
        expires=row[-1],
        place=int.from_bytes(row[0]),
    )


def life_of(kind: str, row: Row) -> Life:
    """Return both slots of a ref: record, token, expires, then the record behind it."""
    if row[FIRST] is None:
        return Life()
    at = FIRST + WIDTH
    token, expires = row[at : at + 2]
    if token is None:
        return Life(task_of(kind, row))
    behind = at + 2
    waiting = None if row[behind] is None else task_of(kind, row, at=behind)
    running = Lease(
        task=task_of(kind, row, TaskState.LEASED), token=token, holder="", expires=expires
    )
    return Life(waiting, running)
