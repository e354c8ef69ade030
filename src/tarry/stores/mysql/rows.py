"""From rows to tasks and leases, and back.

Numbers of a record come in one column, parted by commas: the driver reads each column of each row
in Python, and one split costs less than a dozen of columns.
"""

from collections.abc import Sequence
from typing import Any

from tarry.lease import Lease
from tarry.life import Life
from tarry.task import Task, TaskRef, TaskState

Row = Sequence[Any]

SPAN = 4_096
"""So many revisions a row can draw from one base: see the migration."""

_TEXTS = (
    "IF(rule = '' AND reason = '' AND headers = '', NULL, "
    "CONCAT(LENGTH(rule), ',', LENGTH(reason), ',', rule, reason, headers))"
)
"""Most tasks have none of these: one column that is empty, instead of three."""

RECORD = (
    f"CONCAT_WS(',', id, due, IF(revision = 0, id * {SPAN}, revision), created, attempt, snoozes, "
    "lost, nominal, declared, cancelled, keep_ms), `key`, "
    f"{_TEXTS}, payload"
)
"""The columns of a record that waits, or runs with nothing behind it."""

LIFE = (
    f"{RECORD}, CONCAT_WS(',', leased, at, base, drawn), token, "
    "IF(b_due IS NULL, NULL, CONCAT_WS(',', b_due, b_revision, b_created, b_nominal, b_declared, "
    "b_keep_ms)), b_rule, b_headers, b_payload"
)
"""The columns of both slots of a ref."""

ENDED = (
    "CONCAT_WS(',', id, due, revision, created, attempt, snoozes, lost, nominal, declared, "
    f"cancelled, keep_ms), `key`, {_TEXTS}, payload, state, at"
)
"""The columns of what has ended."""

_REST = 4
"""Where the columns behind those of a record begin."""


def task(kind: str, row: Row, state: TaskState = TaskState.SCHEDULED, ended: int = 0) -> Task:
    """Return the task in a row that starts with the columns of a record."""
    numbers = [int(number) for number in row[0].split(",")]
    rule, reason, headers = _texts(row[2])
    return Task(
        ref=TaskRef(kind, row[1].decode()),
        due=numbers[1],
        revision=numbers[2],
        created=numbers[3],
        attempt=numbers[4],
        snoozes=numbers[5],
        lost=numbers[6],
        nominal=numbers[7],
        declared=numbers[8] == 1,
        cancelled=numbers[9] == 1,
        keep_ms=numbers[10],
        rule=rule,
        reason=reason,
        headers=headers,
        payload=row[3],
        state=state,
        ended=ended,
    )


def _texts(packed: bytes | None) -> tuple[str, str, bytes]:
    if packed is None:
        return "", "", b""
    first, second, rest = packed.split(b",", 2)
    end = int(first) + int(second)
    return rest[: int(first)].decode(), rest[int(first) : end].decode(), rest[end:]


def place(row: Row) -> int:
    """Return the id of a row that starts with the columns of a record."""
    return int(row[0].partition(",")[0])


def claimed(kind: str, row: Row, nonce: int, holder: str, expires: int) -> Lease:
    """Return the lease on the waiting record in *row*, which is claimed by it."""
    numbers = [int(number) for number in row[0].split(",")]
    rule, reason, headers = _texts(row[2])
    return Lease(
        task=Task(
            ref=TaskRef(kind, row[1].decode()),
            due=numbers[1],
            revision=numbers[2],
            created=numbers[3],
            attempt=numbers[4] + 1,
            snoozes=numbers[5],
            lost=numbers[6],
            nominal=numbers[7],
            declared=numbers[8] == 1,
            cancelled=numbers[9] == 1,
            keep_ms=numbers[10],
            rule=rule,
            reason=reason,
            headers=headers,
            payload=row[3],
            state=TaskState.LEASED,
        ),
        token=nonce + numbers[0],
        holder=holder,
        expires=expires,
        place=numbers[0],
    )


def ended(kind: str, row: Row) -> Task:
    """Return the record of an end."""
    return task(kind, row, TaskState(row[_REST].decode()), row[_REST + 1])


def life(kind: str, row: Row, holder: str = "") -> tuple[Life, int, int]:
    """Return the life in a row of the columns of both slots, with its base and what it drew.

    Who holds a lease is not in its row: only a holder that asks for its own leases knows.
    """
    leased, at, base, drawn = map(int, row[_REST].split(","))
    token, numbers, *texts = row[_REST + 1 :]
    if not leased:
        return Life(task(kind, row)), base, drawn
    lease = Lease(
        task=task(kind, row, TaskState.LEASED),
        token=token,
        holder=holder,
        expires=at,
        place=place(row),
    )
    if numbers is None:
        return Life(None, lease), base, drawn
    due, revision, created, nominal, declared, keep_ms = map(int, numbers.split(","))
    behind = Task(
        ref=lease.ref,
        due=due,
        revision=revision,
        created=created,
        nominal=nominal,
        declared=declared == 1,
        keep_ms=keep_ms,
        rule=texts[0].decode(),
        headers=texts[1],
        payload=texts[2],
    )
    return Life(behind, lease), base, drawn


def record(task: Task) -> dict[str, Any]:
    """Return a task's columns by name, its key aside."""
    return {
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
        "rule": task.rule.encode(),
        "reason": task.reason.encode(),
        "headers": task.headers,
        "payload": task.payload,
    }


_BEHIND = ("due", "revision", "created", "nominal", "declared", "keep_ms", "rule", "headers")
_NO_BEHIND: dict[str, Any] = {f"b_{name}": None for name in (*_BEHIND, "payload")}


def columns(life: Life) -> dict[str, Any]:
    """Return the columns of both slots by name; empty for a ref that has none."""
    running, waiting = life.running, life.waiting
    if running is None:
        if waiting is None:
            return {}
        lease: dict[str, Any] = {"leased": 0, "at": waiting.due, "token": 0}
        return record(waiting) | lease | _NO_BEHIND
    lease = {"leased": 1, "at": running.expires, "token": running.token}
    behind = _NO_BEHIND
    if waiting is not None:
        # What waits behind an attempt was never attempted itself, or it is forgotten: take_over.
        fresh = record(waiting)
        behind = {name: fresh[name.removeprefix("b_")] for name in _NO_BEHIND}
    return record(running.task) | lease | behind
