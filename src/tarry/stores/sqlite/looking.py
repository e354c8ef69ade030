"""What operators see of the file: get, scan, counts, forecast and the doctor's look."""

import heapq
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tarry import life as lives
from tarry.clock import MS_PER_YEAR_9999, Clock
from tarry.life import Life
from tarry.stores.sql import paging
from tarry.stores.sql.paging import Place
from tarry.stores.sqlite import record, rows
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.lanes import Lanes
from tarry.stores.sqlite.record import SQL
from tarry.stores.store import Counts, Filter, Page
from tarry.task import Task, TaskRef, TaskState

_EXAMINE = 10
_json = msgspec.json.Encoder().encode


class Looking:
    """Reads that never lock out a writer."""

    def __init__(self, connections: Connections, lanes: Lanes, clock: Clock) -> None:
        self._connections = connections
        self._lanes = lanes
        self._clock = clock

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show the waiting revision, else the running, else the newest dead or kept one."""
        lanes = self._lanes.of([ref.kind for ref in refs])
        with self._connections.reading() as db:
            now = self._clock.now()
            return [self._get(db, lanes.get(ref.kind), ref, now) for ref in refs]

    def _get(self, db: sqlite3.Connection, lane: int | None, ref: TaskRef, now: int) -> Task | None:
        if lane is None:
            return None
        found = lives.view(record.read(db, lane, ref.kind, ref.key).life, now)
        if found is not None:
            return found
        row = db.execute(SQL["newest_ended"], (lane, ref.key, now)).fetchone()
        return None if row is None else rows.ended(ref.kind, row)

    def scan(self, where: Filter, cursor: str | None, limit: int) -> Page:
        """Show tasks by due, or in the order of their end."""
        lanes = {
            lane: kind
            for kind, (lane, _) in self._lanes.all().items()
            if not where.kinds or kind in where.kinds
        }
        with self._connections.reading() as db:
            if where.state in (None, TaskState.SCHEDULED, TaskState.LEASED):
                return self._scan_live(db, lanes, where, cursor, limit)
            return self._scan_ended(db, lanes, where, cursor, limit)

    def _scan_live(
        self,
        db: sqlite3.Connection,
        lanes: dict[int, str],
        where: Filter,
        cursor: str | None,
        limit: int,
    ) -> Page:
        start = paging.parse(cursor)
        examine = limit * _EXAMINE
        streams = [iter(sorted(self._leased(db, lanes, start), key=lambda pair: pair[0]))]
        if where.state is not TaskState.LEASED:
            streams += [
                self._waiting(db, lane, kind, where, start, examine) for lane, kind in lanes.items()
            ]
        merged = heapq.merge(*streams, key=lambda pair: pair[0])
        return paging.page(merged, where, limit, examine, lambda place: " ".join(map(str, place)))

    def _waiting(
        self,
        db: sqlite3.Connection,
        lane: int,
        kind: str,
        where: Filter,
        start: Place,
        examine: int,
    ) -> Iterator[tuple[Place, Task]]:
        asked = {
            "lane": lane,
            "low": where.due_after or 0,
            "high": MS_PER_YEAR_9999 + 1 if where.due_before is None else where.due_before,
            "due": start[0],
            "id": start[1],
            "limit": examine + 1,
        }
        for row in db.execute(SQL["scan_waiting"], asked).fetchall():
            yield (row[2], row[0], 0), rows.task(kind, row)

    def _leased(
        self, db: sqlite3.Connection, lanes: dict[int, str], start: Place
    ) -> Iterator[tuple[Place, Task]]:
        now = self._clock.now()
        for lane, key in db.execute(SQL["scan_leased"], (_json(list(lanes)),)).fetchall():
            found = record.read(db, lane, lanes[lane], key)
            life = lives.at(found.life, now).life
            for slot, task in enumerate(_tasks(life)):
                place = (task.due, found.place or 0, slot)
                if place > start:
                    yield place, task

    def _scan_ended(
        self,
        db: sqlite3.Connection,
        lanes: dict[int, str],
        where: Filter,
        cursor: str | None,
        limit: int,
    ) -> Page:
        assert where.state is not None  # noqa: S101 - what lives was scanned elsewhere
        examine = limit * _EXAMINE
        asked = {
            "state": where.state.value,
            "id": 0 if cursor is None else paging.numbers(cursor, 1)[0],
            "now": self._clock.now(),
            "limit": examine + 1,
        }
        streams = [
            iter(
                [
                    ((row[0], 0, 0), rows.ended(kind, row))
                    for row in db.execute(SQL["scan_ended"], {**asked, "lane": lane}).fetchall()
                ]
            )
            for lane, kind in lanes.items()
        ]
        merged = heapq.merge(*streams, key=lambda pair: pair[0])
        return paging.page(merged, where, limit, examine, lambda place: str(place[0]))

    def counts(self, kinds: Sequence[str] | None) -> Mapping[str, Counts]:
        """Count tasks by kind; expired leases count as what they will be found to be."""
        lanes = self._lanes.all()
        with self._connections.reading() as db:
            now = self._clock.now()
            leased = self._count_leased(db, {lane: kind for kind, (lane, _) in lanes.items()}, now)
            answer = {}
            for kind in lanes if kinds is None else kinds:
                lane, paused = lanes.get(kind, (-1, False))
                counts = self._count(db, lane, leased.get(kind, []), now, paused=paused)
                if kinds is not None or counts != Counts():
                    answer[kind] = counts
            return answer

    def _count_leased(
        self, db: sqlite3.Connection, lanes: dict[int, str], now: int
    ) -> dict[str, list[Task]]:
        found: dict[str, list[Task]] = {}
        for lane, key in db.execute(SQL["scan_leased"], (_json(list(lanes)),)).fetchall():
            life = lives.at(record.read(db, lane, lanes[lane], key).life, now).life
            found.setdefault(lanes[lane], []).extend(_tasks(life))
        return found

    def _count(
        self, db: sqlite3.Connection, lane: int, others: list[Task], now: int, *, paused: bool
    ) -> Counts:
        [waiting] = db.execute(SQL["count_waiting"], (lane,)).fetchone()
        overdue, oldest = db.execute(SQL["count_overdue"], (lane, now)).fetchone()
        [dead] = db.execute(SQL["count_dead"], (lane,)).fetchone()
        scheduled = [task for task in others if task.state is TaskState.SCHEDULED]
        late = [task.due for task in scheduled if task.due <= now]
        dues = [*late, *([] if oldest is None else [oldest])]
        return Counts(
            scheduled=waiting + len(scheduled),
            leased=len(others) - len(scheduled),
            dead=dead,
            overdue=overdue + len(late),
            oldest_due=min(dues, default=None),
            paused=paused,
        )

    def forecast(self, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        lanes = {lane: kind for kind, (lane, _) in self._lanes.all().items()}
        answer = [0] * buckets
        with self._connections.reading() as db:
            now = self._clock.now()
            asked = {"now": now, "bucket": bucket_ms, "end": now + bucket_ms * buckets}
            for lane in lanes:
                for place, count in db.execute(SQL["forecast"], {**asked, "lane": lane}):
                    answer[place] += count
            for tasks in self._count_leased(db, lanes, now).values():
                for task in tasks:
                    place = max(0, task.due - now) // bucket_ms
                    if task.state is TaskState.SCHEDULED and place < buckets:
                        answer[place] += 1
        return answer

    def check(self) -> list[str]:
        """Prove that the file is sound and its tables agree."""
        found = []
        with self._connections.reading() as db:
            report = [row[0] for row in db.execute("PRAGMA integrity_check(10)").fetchall()]
            if report != ["ok"]:
                found += [f"the file is damaged: {line}" for line in report]
            [alone] = db.execute(SQL["check_behind"]).fetchone()
            if alone:
                found.append(f"{alone} revisions wait behind attempts that are not there")
            [mode] = db.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                found.append(f"the journal mode is {mode}, not wal")
        return found


def _tasks(life: Life) -> list[Task]:
    running = [] if life.running is None else [life.running.task]
    return running + ([] if life.waiting is None else [life.waiting])
