"""From rows to tasks and leases, and back."""

from collections.abc import Sequence
from typing import Any

from tarry.lease import Lease
from tarry.task import Task, TaskRef, TaskState

Row = Sequence[Any]

HEAD = 16
"""Every record starts with these columns: see statements.sql."""


def task(kind: str, row: Row, state: TaskState = TaskState.SCHEDULED, ended: int = 0) -> Task:
    """Return the task in a row that starts with the columns of a record."""
    return Task(
        ref=TaskRef(kind, row[1]),
        due=row[2],
        revision=row[3],
        created=row[4],
        attempt=row[5],
        snoozes=row[6],
        lost=row[7],
        nominal=row[8],
        declared=bool(row[9]),
        cancelled=bool(row[10]),
        keep_ms=row[11],
        rule=row[12],
        reason=row[13],
        headers=_bytes(row[14]),
        payload=_bytes(row[15]),
        state=state,
        ended=ended,
    )


def lease(kind: str, row: Row, token: int, holder: str, expires: int) -> Lease:
    """Return the lease on the record in *row*."""
    return Lease(
        task=task(kind, row, TaskState.LEASED),
        token=token,
        holder=holder,
        expires=expires,
        place=row[0],
    )


def ended(kind: str, row: Row) -> Task:
    """Return the record of an end."""
    return task(kind, row, TaskState(row[HEAD]), row[HEAD + 1])


def _bytes(value: bytes | str) -> bytes:
    # What somebody mended in a SQL shell is text.
    return value.encode() if isinstance(value, str) else value


def columns(lane: int, task: Task) -> dict[str, Any]:
    """Return a task's columns by name."""
    return {
        "lane": lane,
        "key": task.ref.key,
        "due": task.due,
        "revision": task.revision,
        "created": task.created,
        "attempt": task.attempt,
        "snoozes": task.snoozes,
        "lost": task.lost,
        "nominal": task.nominal,
        "declared": task.declared,
        "cancelled": task.cancelled,
        "keep_ms": task.keep_ms,
        "rule": task.rule,
        "reason": task.reason,
        "headers": task.headers,
        "payload": task.payload,
    }
