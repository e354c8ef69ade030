"""What operators see of the database: get, scan, counts, forecast and the doctor's look."""

import heapq
from collections.abc import Iterator, Mapping, Sequence

from tarry import life as lives
from tarry.clock import MS_PER_YEAR_9999
from tarry.life import Life
from tarry.stores.mysql import rows
from tarry.stores.mysql.exchange import Exchange
from tarry.stores.mysql.lanes import Lanes
from tarry.stores.mysql.links import Result
from tarry.stores.mysql.plan import literal
from tarry.stores.sql import paging
from tarry.stores.sql.paging import Place
from tarry.stores.store import Counts, Filter, Page
from tarry.task import Task, TaskRef, TaskState

_EXAMINE = 10
_SNAPSHOT = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


class Looking:
    """Reads that lock nothing."""

    def __init__(self, exchange: Exchange, lanes: Lanes) -> None:
        self._exchange = exchange
        self._lanes = lanes

    def _snapshot(self, verb: str, asked: Sequence[str]) -> tuple[int, list[Result]]:
        """Read tables as they are at one moment: what changes its place is in one of them."""
        results = self._exchange.ask(
            *_SNAPSHOT,
            f"SET @tarry_now = {self._exchange.now}",
            "SELECT @tarry_now",
            *asked,
            "COMMIT",
            verb=verb,
        )
        return int(results[3].rows[0][0]), results[4:-1]

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show the waiting revision, else the running, else the newest dead or kept one."""
        lanes = self._lanes.of([ref.kind for ref in refs])
        keys: dict[str, list[str]] = {}
        for ref in dict.fromkeys(refs):
            if ref.kind in lanes:
                keys.setdefault(ref.kind, []).append(literal(ref.key.encode()))
        asked = [
            f"SELECT {columns} FROM {table} FORCE INDEX (ref) "
            f"WHERE lane = {lanes[kind]} AND `key` IN ({', '.join(those)})"
            for kind, those in keys.items()
            for columns, table in (
                (rows.LIFE, "tarry_task"),
                (f"{rows.ENDED}, until", "tarry_ended"),
            )
        ]
        now, results = self._snapshot("get", asked)
        found: dict[TaskRef, Task] = {}
        for number, kind in enumerate(keys):
            live, ended = results[2 * number].rows, results[2 * number + 1].rows
            for row in ended:
                task = rows.ended(kind, row[:-1])
                known = found.get(task.ref)
                stays = row[-1] is None or row[-1] > now
                if stays and (known is None or known.revision < task.revision):
                    found[task.ref] = task
            for row in live:
                shown_life = lives.view(rows.life(kind, row)[0], now)
                if shown_life is not None:
                    found[shown_life.ref] = shown_life
        return [found.get(ref) for ref in refs]

    def scan(self, where: Filter, cursor: str | None, limit: int) -> Page:
        """Show tasks by due, or in the order of their end."""
        lanes = {
            lane: kind
            for kind, (lane, _) in self._lanes.all().items()
            if not where.kinds or kind in where.kinds
        }
        if where.state in (None, TaskState.SCHEDULED, TaskState.LEASED):
            return self._scan_live(lanes, where, cursor, limit)
        return self._scan_ended(lanes, where, cursor, limit)

    def _scan_live(
        self, lanes: dict[int, str], where: Filter, cursor: str | None, limit: int
    ) -> Page:
        start = paging.parse(cursor)
        examine = limit * _EXAMINE
        asked = [_leased(lane) for lane in lanes]
        if where.state is not TaskState.LEASED:
            asked += [_waiting(lane, where, start, examine) for lane in lanes]
        now, results = self._snapshot("scan", asked)
        streams: list[Iterator[tuple[Place, Task]]] = []
        for number, kind in enumerate(lanes.values()):
            leased = _slots(kind, results[number].rows, now)
            streams.append(iter(sorted((pair for pair in leased if pair[0] > start), key=_first)))
        if where.state is not TaskState.LEASED:
            for number, kind in enumerate(lanes.values()):
                found = results[len(lanes) + number].rows
                streams.append(_tasks(kind, found))
        merged = heapq.merge(*streams, key=_first)
        return paging.page(merged, where, limit, examine, lambda place: " ".join(map(str, place)))

    def _scan_ended(
        self, lanes: dict[int, str], where: Filter, cursor: str | None, limit: int
    ) -> Page:
        assert where.state is not None  # noqa: S101 - what lives was scanned elsewhere
        examine = limit * _EXAMINE
        start = 0 if cursor is None else paging.numbers(cursor, 1)[0]
        asked = [
            f"SELECT {rows.ENDED} FROM tarry_ended FORCE INDEX (state) "
            f"WHERE state = '{where.state.value}' AND lane = {lane} AND id > {start} "
            f"AND (until IS NULL OR until > {self._exchange.now}) "
            f"ORDER BY id LIMIT {examine + 1}"
            for lane in lanes
        ]
        results = self._exchange.ask(*asked) if asked else []
        streams = [
            iter([((rows.place(row), 0, 0), rows.ended(kind, row)) for row in result.rows])
            for kind, result in zip(lanes.values(), results, strict=True)
        ]
        merged = heapq.merge(*streams, key=_first)
        return paging.page(merged, where, limit, examine, lambda place: str(place[0]))

    def counts(self, kinds: Sequence[str] | None) -> Mapping[str, Counts]:
        """Count tasks by kind; expired leases count as what they will be found to be."""
        lanes = self._lanes.all()
        names = list(lanes if kinds is None else dict.fromkeys(kinds))
        known = [kind for kind in names if kind in lanes]
        asked = [statement for kind in known for statement in _counted(lanes[kind][0])]
        now, results = self._snapshot("counts", asked)
        answer = {}
        for kind in names:
            counts = Counts()
            if kind in lanes:
                part = results[4 * known.index(kind) :][:4]
                others = [task for _, task in _slots(kind, part[3].rows, now)]
                counts = _count([each.rows[0] for each in part[:3]], others, now, lanes[kind][1])
            if kinds is not None or counts != Counts():
                answer[kind] = counts
        return answer

    def forecast(self, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        lanes = {lane: kind for kind, (lane, _) in self._lanes.all().items()}
        answer = [0] * buckets
        asked = [
            f"SELECT (GREATEST(at, @tarry_now) - @tarry_now) DIV {bucket_ms}, COUNT(*) "
            f"FROM tarry_task FORCE INDEX (turn) WHERE lane = {lane} AND leased = 0 "
            f"AND at < @tarry_now + {bucket_ms * buckets} GROUP BY 1"
            for lane in lanes
        ]
        asked += [_leased(lane) for lane in lanes]
        now, results = self._snapshot("forecast", asked)
        for result in results[: len(lanes)]:
            for place, count in result.rows:
                answer[int(place)] += count
        for kind, result in zip(lanes.values(), results[len(lanes) :], strict=True):
            for _, task in _slots(kind, result.rows, now):
                place = max(0, task.due - now) // bucket_ms
                if task.state is TaskState.SCHEDULED and place < buckets:
                    answer[place] += 1
        return answer

    def check(self) -> list[str]:
        """Prove that what the orders say is what the records say."""
        lanes = ", ".join(str(lane) for lane, _ in self._lanes.all().values()) or "0"
        [astray, halves, lost] = self._exchange.ask(
            f"SELECT COUNT(*) FROM tarry_task WHERE lane IN ({lanes}) AND leased = 0 "
            "AND (at <> due OR token <> 0 OR b_due IS NOT NULL)",
            f"SELECT COUNT(*) FROM tarry_task WHERE lane IN ({lanes}) "
            "AND (leased NOT IN (0, 1) OR (leased = 1 AND token = 0) "
            "OR (b_due IS NULL) <> (b_payload IS NULL))",
            "SELECT COUNT(*) FROM tarry_task t WHERE NOT EXISTS "
            "(SELECT 1 FROM tarry_lane l WHERE l.id = t.lane)",
        )
        found = []
        if astray.rows[0][0]:
            found.append(f"{astray.rows[0][0]} waiting tasks stand in the wrong place of the order")
        if halves.rows[0][0]:
            found.append(f"{halves.rows[0][0]} tasks are half leased")
        if lost.rows[0][0]:
            found.append(f"{lost.rows[0][0]} tasks are of a kind that is gone")
        return found


def _leased(lane: int) -> str:
    return (
        f"SELECT {rows.LIFE} FROM tarry_task FORCE INDEX (turn) WHERE lane = {lane} AND leased = 1"
    )


def _waiting(lane: int, where: Filter, start: Place, examine: int) -> str:
    low = max(where.due_after or 0, start[0])
    high = MS_PER_YEAR_9999 + 1 if where.due_before is None else where.due_before
    return (
        f"SELECT {rows.RECORD} FROM tarry_task FORCE INDEX (turn) "
        f"WHERE lane = {lane} AND leased = 0 AND at >= {low} AND at < {high} "
        f"AND (at > {start[0]} OR (at = {start[0]} AND id > {start[1]})) "
        f"ORDER BY at, id LIMIT {examine + 1}"
    )


def _counted(lane: int) -> tuple[str, str, str, str]:
    waiting = f"FROM tarry_task FORCE INDEX (turn) WHERE lane = {lane} AND leased = 0"
    return (
        f"SELECT COUNT(*) {waiting}",
        f"SELECT COUNT(*), MIN(at) {waiting} AND at <= @tarry_now",
        f"SELECT COUNT(*) FROM tarry_ended WHERE state = 'dead' AND lane = {lane}",
        _leased(lane),
    )


def _count(found: Sequence[rows.Row], others: list[Task], now: int, paused: bool) -> Counts:  # noqa: FBT001 - a column
    (waiting,), (overdue, oldest), (dead,) = found
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


def _tasks(kind: str, found: Sequence[rows.Row]) -> Iterator[tuple[Place, Task]]:
    for row in found:
        task = rows.task(kind, row)
        yield (task.due, rows.place(row), 0), task


def _slots(kind: str, found: Sequence[rows.Row], now: int) -> Iterator[tuple[Place, Task]]:
    """Show what is in the slots of leased refs, as it is by now."""
    for row in found:
        life: Life = lives.at(rows.life(kind, row)[0], now).life
        held = [life.running.task] if life.running is not None else []
        waiting = [life.waiting] if life.waiting is not None else []
        for slot, task in enumerate(held + waiting):
            yield (task.due, rows.place(row), slot), task


def _first(pair: tuple[Place, Task]) -> Place:
    return pair[0]
