"""What operators see of Redis: get, scan, counts, forecast and the doctor's look."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from tarry import life as lives
from tarry.due import shown
from tarry.errors import CursorError
from tarry.life import Life
from tarry.stores.redis.exchange import Exchange
from tarry.stores.redis.layout import shard_of
from tarry.stores.redis.records import life_of, task_of
from tarry.stores.store import Counts, Filter, Page, matches
from tarry.task import Task, TaskRef, TaskState

_STEP = 500
_FORECAST_STEP = 2_000
"""Ranges counted in one script: about a microsecond each."""
_ENDED = (TaskState.DEAD, TaskState.DONE, TaskState.CANCELLED)
_REVISION_BYTES = 8
_WAITING, _RUNNING, _OVER = "a", "b", "c"
"""The parts of a kind in the order of a scan: what waits to be claimed, what runs or waits behind
an attempt, what has ended."""


class _Seen(NamedTuple):
    """One ref as it is stored."""

    life: Life
    dead: bytes | None
    kept: bytes | None


class _Place(NamedTuple):
    """Where a scan goes on: in a part of a kind of a shard, behind a key; in order.

    `number` is the due, the slot or the revision that belongs to the key.
    """

    shard: int = 0
    kind: str = ""
    part: str = _WAITING
    number: int = -1
    key: str = ""

    def text(self) -> str:
        """Return it as a cursor."""
        return f"{self.shard} {self.kind} {self.part} {self.number} {self.key}"


_Steps: TypeAlias = Iterator[tuple[_Place, Task]]
"""Tasks with the places behind them."""


class Looking:
    """Reads without changing anything."""

    def __init__(self, exchange: Exchange, shards: int, now_us: Callable[[], str | int]) -> None:
        self._exchange = exchange
        self._shards = range(shards)
        self._now_us = now_us

    # ---- one by one

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show tasks: the waiting revision, else the running, else the newest that ended."""
        found: list[Task | None] = []
        for start in range(0, len(refs), _STEP):
            now, seen = self._look(refs[start : start + _STEP])
            for ref, one in zip(refs[start : start + _STEP], seen, strict=True):
                found.append(lives.view(one.life, now) or _newest(ref, one))
        return found

    def _look(self, refs: Sequence[TaskRef]) -> tuple[int, list[_Seen]]:
        """Return the store's now and what is stored of each ref."""
        by_shard: dict[int, list[int]] = {}
        for place, ref in enumerate(refs):
            by_shard.setdefault(shard_of(ref, len(self._shards)), []).append(place)
        clock = self._now_us()
        calls = [
            (shard, (clock, *(word for n in places for word in (refs[n].kind, refs[n].key))))
            for shard, places in by_shard.items()
        ]
        found: list[Any] = [None] * len(refs)
        now = 0
        for places, reply in zip(
            by_shard.values(), self._exchange.calls("look", calls), strict=True
        ):
            now = max(now, int(reply[0]))
            for place, at in zip(places, range(1, len(reply), 6), strict=True):
                front, token, expires, behind, dead, kept = reply[at : at + 6]
                life = life_of(refs[place], front, token, expires, behind)
                found[place] = _Seen(life, dead, kept)
        return now, found

    # ---- page by page

    def scan(self, where: Filter, cursor: str | None, limit: int) -> Page:
        """Show tasks by shard and kind: what waits by due, what runs or has ended by key."""
        found: list[Task] = []
        walk = self._walk(where, _place(cursor), min(10 * limit, _STEP))
        for examined, (place, task) in enumerate(walk, 1):
            if matches(task, where):
                found.append(task)
            if len(found) == limit or examined == 10 * limit:
                return Page(found, place.text())
        return Page(found, None)

    def _walk(self, where: Filter, start: _Place, step: int) -> _Steps:
        for shard in self._shards[start.shard :]:
            for kind in self._kinds_of(shard, where):
                for part in _parts(where):
                    place = _Place(shard, kind, part)
                    if place[:3] == start[:3]:
                        place = start
                    if place >= start:
                        yield from self._show(where, place, step)

    def _show(self, where: Filter, place: _Place, step: int) -> _Steps:
        if place.part == _WAITING:
            return self._waiting(where, place, step)
        if place.part == _RUNNING:
            return self._running(place, step)
        return self._ended(place, "D" if where.state is TaskState.DEAD else "K", step)

    def _waiting(self, where: Filter, place: _Place, step: int) -> _Steps:
        """Show what waits to be claimed, by due and key."""
        before = "+inf" if where.due_before is None else where.due_before
        if where.due_after is not None and where.due_after > place.number:
            place = place._replace(number=where.due_after, key="")
        keys = [b""] * step
        while len(keys) == step:
            since = "-inf" if place.number < 0 else place.number
            said = (place.kind, since, place.key, before, step)
            keys, records = self._exchange.call("waiting", place.shard, said)
            for key, record in zip(keys, records, strict=True):
                task = task_of(TaskRef(place.kind, key.decode()), record, TaskState.SCHEDULED)
                place = place._replace(number=task.due, key=task.ref.key)
                yield place, task

    def _running(self, place: _Place, step: int) -> _Steps:
        """Show both slots of what runs, by key; an expired lease is shown as it will be found."""
        keys = sorted(
            key for key in self._fields(place.shard, f"t:{place.kind}") if key >= place.key
        )
        for start in range(0, len(keys), step):
            refs = [TaskRef(place.kind, key) for key in keys[start : start + step]]
            now, seen = self._look(refs)
            for ref, one in zip(refs, seen, strict=True):
                life = lives.at(one.life, now).life
                slots = (life.waiting, life.running.task if life.running else None)
                for number, task in enumerate(slots):
                    if task is not None and (ref.key, number) > (place.key, place.number):
                        yield place._replace(number=number, key=ref.key), task

    def _ended(self, place: _Place, letter: str, step: int) -> _Steps:
        """Show dead letters or history, by key and revision."""
        members = [b""] * step
        while len(members) == step:
            after: str | bytes = "-"
            if place.key:
                after = b"(%b\0%b" % (place.key.encode(), place.number.to_bytes(_REVISION_BYTES))
            order, bodies = f"{letter}z:{place.kind}", f"{letter}b:{place.kind}"
            members = self._read(place.shard, "ZRANGEBYLEX", order, after, "+", "LIMIT", 0, step)
            records = self._read(place.shard, "HMGET", bodies, *members) if members else []
            for member, record in zip(members, records, strict=True):
                key, revision = member[: -_REVISION_BYTES - 1], member[-_REVISION_BYTES:]
                place = place._replace(number=int.from_bytes(revision), key=key.decode())
                if record is not None:
                    ref = TaskRef(place.kind, place.key)
                    state = TaskState.DEAD if letter == "D" else TaskState.DONE
                    yield place, task_of(ref, record, state)

    # ---- counts

    def counts(self, kinds: Sequence[str] | None) -> dict[str, Counts]:
        """Count tasks by kind."""
        names = self._kinds() if kinds is None else list(dict.fromkeys(kinds))
        tally: dict[str, Counts] = dict.fromkeys(names, Counts())
        for start in range(0, len(names), _STEP):
            step = names[start : start + _STEP]
            calls = [(shard, (self._now_us(), *step)) for shard in self._shards]
            for (shard, _), rows in zip(calls, self._exchange.calls("counts", calls), strict=True):
                for kind, row in zip(step, rows, strict=True):
                    tally[kind] = _added(tally[kind], self._count(shard, kind, row))
        return tally

    def _count(self, shard: int, kind: str, row: list[Any]) -> Counts:
        waiting, running, behind, dead, overdue, oldest, paused, expired = row
        counts = Counts(
            scheduled=waiting + behind,
            leased=running,
            dead=dead,
            overdue=overdue,
            oldest_due=int(oldest) if oldest and overdue else None,
            paused=bool(paused),
        )
        if not expired and not behind:
            return counts
        # Few: what waits behind an attempt, and leases that have ended and nobody noticed yet.
        scheduled, leased, late = waiting, 0, [counts.oldest_due] if counts.oldest_due else []
        for now, task in self._odd(shard, kind):
            if task.state is TaskState.LEASED:
                leased += 1
                continue
            scheduled += 1
            if task.due <= now:
                overdue += 1
                late.append(task.due)
        return Counts(
            scheduled=scheduled,
            leased=leased,
            dead=dead,
            overdue=overdue,
            oldest_due=min(late, default=None),
            paused=counts.paused,
        )

    def _odd(self, shard: int, kind: str) -> Iterator[tuple[int, Task]]:
        """Show both slots of every ref that has a lease, with the store's now."""
        keys = sorted(self._fields(shard, f"t:{kind}"))
        for start in range(0, len(keys), _STEP):
            now, seen = self._look([TaskRef(kind, key) for key in keys[start : start + _STEP]])
            for one in seen:
                life = lives.at(one.life, now).life
                if life.waiting is not None:
                    yield now, life.waiting
                if life.running is not None:
                    yield now, life.running.task

    def forecast(self, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        answer = [0] * buckets
        for shard in self._shards:
            kinds = self._kinds_of(shard, Filter())
            for start in range(0, len(kinds), _STEP):
                some = kinds[start : start + _STEP]
                step = max(1, _FORECAST_STEP // len(some))
                for first in range(0, buckets, step):
                    count = min(step, buckets - first)
                    said = (self._now_us(), bucket_ms, first, count, *some)
                    _, *found = self._exchange.call("forecast", shard, said)
                    for place, number in enumerate(found, first):
                        answer[place] += number
            for kind in kinds:
                for now, task in self._odd(shard, kind):
                    place = max(0, task.due - now) // bucket_ms
                    if task.state is TaskState.SCHEDULED and place < buckets:
                        answer[place] += 1
        return answer

    # ---- the doctor's look

    def check(self) -> list[str]:
        """Prove that orders, heads and records agree."""
        return [line for shard in self._shards for line in self._check(shard)]

    def _check(self, shard: int) -> Iterator[str]:
        kinds = self._kinds_of(shard, Filter())
        for start in range(0, len(kinds), _STEP):
            for kind in self._exchange.call("sound", shard, kinds[start : start + _STEP]):
                yield f"the orders of {kind.decode()} in shard {shard} do not agree with each other"
        for kind in kinds:
            wrong = 0
            for keys in self._field_pages(shard, f"b:{kind}"):
                wrong += len(self._exchange.call("check", shard, (kind, *keys)))
            if wrong:
                yield f"{wrong:,} records of {kind} in shard {shard} do not agree with its orders"

    # ---- what there is

    def _kinds(self) -> list[str]:
        """Return every kind that has tasks, dead letters or a pause."""
        names: set[str] = set()
        for shard in self._shards:
            names.update(self._kinds_of(shard, Filter()))
            for kind in self._kinds_of(shard, Filter(TaskState.DEAD)):
                if self._read(shard, "EXISTS", f"Dz:{kind}"):
                    names.add(kind)
        return sorted(names)

    def _kinds_of(self, shard: int, where: Filter) -> list[str]:
        if where.kinds:
            return sorted(set(where.kinds))
        if where.state in _ENDED:
            found = self._read(shard, "ZRANGE", "e", 0, -1)
        else:
            found = [
                *self._read(shard, "ZRANGE", "h", 0, -1),
                *self._read(shard, "ZRANGE", "x", 0, -1),
                *self._read(shard, "SMEMBERS", "p"),
            ]
        return sorted({name.decode() for name in found})

    def _fields(self, shard: int, name: str) -> set[str]:
        return {key for page in self._field_pages(shard, name) for key in page}

    def _field_pages(self, shard: int, name: str) -> Iterator[list[str]]:
        """Return the fields of a hash, in steps; what stays is among them, perhaps twice."""
        cursor: Any = 0
        while cursor != b"0":
            cursor, found = self._exchange.call("fields", shard, (name, cursor, _STEP))
            fields = [field.decode() for field in found]
            for start in range(0, len(fields), _STEP):
                yield fields[start : start + _STEP]

    def _read(self, shard: int, *words: str | bytes | int) -> Any:
        return self._exchange.call("read", shard, words)


def _parts(where: Filter) -> tuple[str, ...]:
    """Return the parts of a kind that hold what *where* asks for."""
    if where.state in _ENDED:
        return (_OVER,)
    return (_RUNNING,) if where.state is TaskState.LEASED else (_WAITING, _RUNNING)


def _newest(ref: TaskRef, seen: _Seen) -> Task | None:
    """Return what ended last of a ref, if it is known."""
    found = []
    if seen.dead is not None:
        found.append(task_of(ref, seen.dead, TaskState.DEAD))
    if seen.kept is not None:
        found.append(task_of(ref, seen.kept, TaskState.DONE))
    return max(found, key=lambda task: task.revision, default=None)


def _added(one: Counts, other: Counts) -> Counts:
    dues = [due for due in (one.oldest_due, other.oldest_due) if due is not None]
    return Counts(
        scheduled=one.scheduled + other.scheduled,
        leased=one.leased + other.leased,
        dead=one.dead + other.dead,
        overdue=one.overdue + other.overdue,
        oldest_due=min(dues, default=None),
        paused=one.paused or other.paused,
    )


def _place(cursor: str | None) -> _Place:
    if cursor is None:
        return _Place()
    try:
        shard, kind, part, number, key = cursor.split(" ", 4)
        place = _Place(int(shard), kind, part, int(number), key)
    except ValueError:
        place = None
    if place is None or place.shard < 0 or place.part not in (_WAITING, _RUNNING, _OVER):
        message = (
            f"{shown(cursor)} is no cursor of this scan: hand back what the page before answered"
        )
        raise CursorError(message)
    return place
