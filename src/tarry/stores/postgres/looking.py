"""What operators see of the tables: get, scan, counts, forecast and the doctor's look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tarry import life as lives
from tarry.clock import MS_PER_YEAR_9999, Clock
from tarry.due import shown
from tarry.errors import CursorError
from tarry.stores.postgres.links import Links
from tarry.stores.postgres.records import FIRST, WIDTH, columns, life_of, task_of
from tarry.stores.postgres.wire import Statement
from tarry.stores.sql.statements import load
from tarry.stores.store import Counts, Filter, Page, matches
from tarry.task import Task, TaskRef, TaskState

_EXAMINE = 10
_ENDED = (TaskState.DEAD, TaskState.DONE, TaskState.CANCELLED)
_WAITING, _RUNNING, _OVER = "a", "b", "c"
"""The parts of a kind in the order of a scan: what waits to be claimed, what runs or waits behind
an attempt, what has ended."""
_PAST_NUMBERS = 1 << 63
_TOKEN = FIRST + WIDTH
_TYPES = {
    "get": ("text", "int8", "text[]", "text[]"),
    "lanes": ("text",),
    "waiting": ("int4", "int8", "text", "int8", "int8", "int4"),
    "running": ("int4", "int8", "text", "int8", "int4"),
    "ended": ("int4", "text", "int8", "int8", "int4"),
    "counts": ("text", "int8"),
    "forecast": ("text", "int8", "int8", "int4"),
    "soonest": ("text",),
    "check": ("text",),
    "abandon": ("text",),
}


class _Place(NamedTuple):
    """Where a scan goes on: in a part of a kind, behind a record.

    `number` is the due, or the number of what has ended; `slot` 1 is what waits behind an attempt.
    """

    kind: str = ""
    part: str = _WAITING
    number: int = -1
    key: str = ""
    slot: int = -1

    def text(self) -> str:
        """Return it as a cursor."""
        return f"{self.kind} {self.part} {self.number} {self.slot} {self.key}"


_Found: TypeAlias = tuple[_Place, Task | None]
"""A record that was examined, if it is a task of this part, and the place behind it."""


class Looking:
    """Reads that lock out nobody."""

    def __init__(self, links: Links, schema: str, namespace: str, clock: Clock | None) -> None:
        self._links = links
        self._namespace = namespace
        self._clock = clock
        texts = load("tarry.stores.postgres")
        self._statements = {
            name: Statement(f"look_{name}", _filled(texts[name], schema), types)
            for name, types in _TYPES.items()
        }

    def _run(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._links.run(self._statements[name], values)

    def _now_us(self) -> int | None:
        return None if self._clock is None else self._clock.now_us()

    # ---- one by one

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show the waiting revision, else the running, else the newest dead or kept one."""
        if not refs:
            return []
        kinds, keys = [ref.kind for ref in refs], [ref.key for ref in refs]
        rows = self._run("get", self._namespace, self._now_us(), kinds, keys)
        return [_shown(ref.kind, row) for ref, row in zip(refs, rows, strict=True)]

    # ---- page by page

    def scan(self, where: Filter, cursor: str | None, limit: int) -> Page:
        """Show tasks by kind: what waits by due, what runs by due, what has ended by its end."""
        found: list[Task] = []
        walk = self._walk(where, _parse(cursor), limit * _EXAMINE)
        for examined, (place, task) in enumerate(walk, 1):
            if task is not None and matches(task, where):
                found.append(task)
            if len(found) == limit or examined == limit * _EXAMINE:
                return Page(found, place.text())
        return Page(found, None)

    def _walk(self, where: Filter, start: _Place, step: int) -> Iterator[_Found]:
        lanes = {kind: lane for kind, (lane, _) in self._lanes().items()}
        for kind in sorted(lanes):
            if where.kinds and kind not in where.kinds:
                continue
            for part in _parts(where):
                place = _Place(kind, part)
                if place[:2] == start[:2]:
                    place = start
                if place >= start:
                    yield from self._show(lanes[kind], where, place, step)

    def _show(self, lane: int, where: Filter, place: _Place, step: int) -> Iterator[_Found]:
        """Show a part of a kind from *place* on, in steps of so many records."""
        while True:
            rows = self._step(lane, where, place, step)
            for row in rows:
                if place.part == _RUNNING:
                    for behind, task in self._slots(row, place):
                        # The row that a cursor names comes again, for its second slot.
                        if behind > place:
                            place = behind
                            yield place, task
                elif place.part == _WAITING:
                    place = _Place(place.kind, place.part, row[3], row[2], 0)
                    yield place, None if row[-1] else task_of(place.kind, row)
                else:
                    place = place._replace(number=row[0])
                    yield place, task_of(place.kind, row, TaskState(row[1]), row[-1])
            # In the part of what runs the last row comes again.
            if len(rows) < step:
                return

    def _step(self, lane: int, where: Filter, place: _Place, step: int) -> list[tuple[Any, ...]]:
        if place.part == _OVER:
            assert where.state is not None  # noqa: S101 - what lives is in the other parts
            return self._run(
                "ended", lane, where.state.value, max(0, place.number), self._now_us(), step
            )
        if place.part == _RUNNING:
            return self._run("running", lane, place.number, place.key, self._now_us(), step)
        low = where.due_after or 0
        high = MS_PER_YEAR_9999 + 1 if where.due_before is None else where.due_before
        return self._run("waiting", lane, place.number, place.key, low, high, step)

    def _slots(self, row: tuple[Any, ...], place: _Place) -> Iterator[_Found]:
        """Show both slots of what runs; an expired lease is shown as it will be found."""
        life = lives.at(life_of(place.kind, row), row[-1]).life
        running = None if life.running is None else life.running.task
        leased = row[_TOKEN] is not None
        for slot, task in enumerate((running, life.waiting)):
            behind = _Place(place.kind, place.part, row[3], row[2], slot)
            yield behind, task if leased else None

    # ---- counts

    def _lanes(self) -> dict[str, tuple[int, bool]]:
        """Return every kind of the namespace with its lane, and whether it is paused."""
        return {kind: (lane, paused) for lane, kind, paused in self._run("lanes", self._namespace)}

    def counts(self, kinds: Sequence[str] | None) -> Mapping[str, Counts]:
        """Count tasks by kind; expired leases count as what they will be found to be."""
        found = {
            kind: Counts(
                scheduled=scheduled,
                leased=leased,
                dead=dead,
                overdue=overdue,
                oldest_due=oldest,
                paused=paused,
            )
            for kind, paused, scheduled, leased, dead, overdue, oldest in self._run(
                "counts", self._namespace, self._now_us()
            )
        }
        if kinds is not None:
            return {kind: found.get(kind, Counts()) for kind in kinds}
        return {kind: counts for kind, counts in found.items() if counts != Counts()}

    def forecast(self, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        answer = [0] * buckets
        for place, number in self._run(
            "forecast", self._namespace, self._now_us(), bucket_ms, buckets
        ):
            answer[place] += number
        return answer

    def soonest(self) -> int | None:
        """Return the earliest due of what waits and may be claimed."""
        [[due]] = self._run("soonest", self._namespace)
        return due  # type: ignore[no-any-return]

    # ---- the doctor's look, and the end

    def check(self) -> list[str]:
        """Prove that the tables agree."""
        [[alone, missing, odd]] = self._run("check", self._namespace)
        found = []
        if alone:
            found.append(f"{alone:,} revisions wait behind attempts that are not there")
        if missing:
            found.append(f"{missing:,} attempts have lost the revision that waited behind them")
        if odd:
            found.append(f"{odd:,} tasks have half a lease")
        return found

    def abandon(self) -> None:
        """Remove every row of the namespace."""
        self._run("abandon", self._namespace)


def _filled(text: str, schema: str) -> str:
    """Return a statement with its schema and the columns of records written out."""
    text = text.replace("tarry.", f'"{schema}".')
    for alias in ("t", "b", "e"):
        text = text.replace(f"{alias}.RECORD", columns(alias))
    return text


def _shown(kind: str, row: tuple[Any, ...]) -> Task | None:
    """Return what a row of `get` shows: its life, and what ended last."""
    found = lives.view(life_of(kind, row), row[0])
    if found is not None or row[-3] is None:
        return found
    at = len(row) - 3 - WIDTH
    return task_of(kind, row, TaskState(row[-3]), row[-2], at=at)


def _parts(where: Filter) -> tuple[str, ...]:
    """Return the parts of a kind that hold what *where* asks for."""
    if where.state in _ENDED:
        return (_OVER,)
    return (_RUNNING,) if where.state is TaskState.LEASED else (_WAITING, _RUNNING)


def _parse(cursor: str | None) -> _Place:
    if cursor is None:
        return _Place()
    try:
        kind, part, number, slot, key = cursor.split(" ", 4)
        place = _Place(kind, part, int(number), key, int(slot))
    except ValueError:
        place = _Place(part="")
    known = place.part in {_WAITING, _RUNNING, _OVER} and "\0" not in place.key
    if not known or abs(place.number) >= _PAST_NUMBERS:
        message = (
            f"{shown(cursor)} is no cursor of this scan: hand back what the page before answered"
        )
        raise CursorError(message)
    return place
