"""The lives of refs as rows: read them under their locks, write what changed of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from tarry.life import NOTHING, Life
from tarry.stores.joining import Rows, Statement
from tarry.stores.mysql import rows
from tarry.stores.mysql.plan import marks
from tarry.task import Task, TaskRef, TaskState

_NEW = ("leased", "at", "due", "created", "attempt", "snoozes", "lost", "nominal", "declared")
_NEW_MORE = ("cancelled", "keep_ms", "rule", "reason", "headers", "payload")
_INSERTED = (*_NEW, *_NEW_MORE)
_END = ("lane", "`key`", "state", "at", "until")


class Found:
    """A ref's row as it was found and as it shall be, and what ended on the way."""

    __slots__ = ("_base", "_before", "_drawn", "ended", "lane", "life", "place", "ref")

    def __init__(self, lane: int, ref: TaskRef) -> None:
        self.lane = lane
        self.ref = ref
        self.place: int | None = None
        self.life = self._before = NOTHING
        self.ended: list[Task] = []
        self._base = self._drawn = 0

    def fill(self, row: rows.Row) -> None:
        """Take over what a row says."""
        self.life, self._base, self._drawn = rows.life(self.ref.kind, row)
        self._before = self.life
        self.place = rows.place(row)

    @property
    def changed(self) -> bool:
        """Whether the life is another than the one that was found."""
        return self.life is not self._before

    @property
    def is_used_up(self) -> bool:
        """Whether few revisions are left to draw from the base."""
        return self._drawn > rows.SPAN - 600

    def rebase(self, base: int) -> None:
        """Draw from another base from now on."""
        self._base, self._drawn = base, 0

    def draw(self) -> int:
        """Return the next revision; 0 for a row that is still to come, which knows its first."""
        if self.place is None:
            return 0
        self._drawn += 1
        return (self._base or self.place) * rows.SPAN + self._drawn

    def claimable(self) -> int | None:
        """Return the due of a waiting revision that no attempt stands before."""
        life = self.life
        return life.waiting.due if life.waiting is not None and life.running is None else None

    def write(self) -> Statement | None:
        """Return the statement that makes the row what it shall be; deletions aside."""
        if self.place is None:
            return _insert(self.lane, self.ref, self.life)
        before, after = rows.columns(self._before), rows.columns(self.life)
        changed = {name: value for name, value in after.items() if value != before[name]}
        changed |= {"base": self._base, "drawn": self._drawn}
        sets = ", ".join(f"{name} = %s" for name in changed)
        return Statement(
            f"UPDATE tarry_task SET {sets} WHERE id = %s",
            (*changed.values(), self.place),
            rows=False,
        )


def read(wanted: Iterable[Found]) -> list[Statement]:
    """Return the statements that read and lock the rows of *wanted*, one for each lane."""
    lanes: dict[int, list[bytes]] = {}
    for found in wanted:
        lanes.setdefault(found.lane, []).append(found.ref.key.encode())
    return [
        Statement(
            f"SELECT {rows.LIFE} FROM tarry_task FORCE INDEX (ref) "
            f"WHERE lane = %s AND `key` IN ({marks(len(keys))}) FOR UPDATE",
            (lane, *sorted(keys)),
        )
        for lane, keys in sorted(lanes.items())
    ]


def fill(wanted: Iterable[Found], replies: Sequence[Rows]) -> None:
    """Hand out what `read` found."""
    lanes: dict[int, dict[bytes, Found]] = {}
    for found in wanted:
        lanes.setdefault(found.lane, {})[found.ref.key.encode()] = found
    for lane, reply in zip(sorted(lanes), replies, strict=True):
        for row in reply:
            lanes[lane][row[1]].fill(row)


def writes(changed: Iterable[Found]) -> list[Statement]:
    """Return the statements that write what became of refs."""
    deleted: list[int] = []
    statements: list[Statement] = []
    ends: list[Statement] = []
    for found in changed:
        if found.changed:
            if found.life == NOTHING:
                deleted += [] if found.place is None else [found.place]
            elif (written := found.write()) is not None:
                statements.append(written)
        ends += (end for task in found.ended if (end := keep(found.lane, task)) is not None)
    if deleted:
        statements.append(delete(deleted))
    return statements + ends


def delete(places: Sequence[int]) -> Statement:
    """Return the statement that removes rows."""
    return Statement(
        f"DELETE FROM tarry_task WHERE id IN ({marks(len(places))})",
        sorted(places),
        rows=False,
    )


def keep(lane: int, task: Task) -> Statement | None:
    """Return what keeps the record of an end: dead letters for good, others while they ask for."""
    dead = task.state is TaskState.DEAD
    if not dead and not task.keep_ms:
        return None
    fields = rows.record(task)
    until = None if dead else task.ended + task.keep_ms
    end = (lane, task.ref.key.encode(), task.state.value.encode(), task.ended, until)
    return Statement(
        f"REPLACE INTO tarry_ended ({', '.join((*_END, *fields))}) "
        f"VALUES ({marks(len(end) + len(fields))})",
        (*end, *fields.values()),
        rows=False,
    )


def _insert(lane: int, ref: TaskRef, life: Life) -> Statement:
    fields: dict[str, Any] = rows.columns(life)
    return Statement(
        f"INSERT INTO tarry_task (lane, `key`, {', '.join(_INSERTED)}) "
        f"VALUES ({marks(len(_INSERTED) + 2)})",
        (lane, ref.key.encode(), *(fields[name] for name in _INSERTED)),
        rows=False,
    )
