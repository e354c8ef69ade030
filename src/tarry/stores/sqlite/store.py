"""The SQLite store: one file, many processes and threads, no server.

A batch that meets nothing in its way takes a short path of a statement or two; whatever is not
that simple is read, changed by `tarry.life` and written back, ref by ref, in one transaction.
"""

import os
import random
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec

from tarry import life as lives
from tarry.answers import (
    CancelResult,
    Moved,
    RenewResult,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import Done, Skip
from tarry.clock import SYSTEM, Clock
from tarry.lease import Lease
from tarry.life import Change, Life
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.joining import Joins, Steps
from tarry.stores.lanes import share
from tarry.stores.sqlite import record, rows, short, steps
from tarry.stores.sqlite.checkpoint import Checkpointer
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.file import migrate, prepare
from tarry.stores.sqlite.joined import Joined
from tarry.stores.sqlite.lanes import Lanes
from tarry.stores.sqlite.looking import Looking
from tarry.stores.sqlite.record import SQL
from tarry.stores.sqlite.revisions import Revisions
from tarry.stores.sqlite.wake import Wakeups
from tarry.stores.store import (
    RECLAIM_LIMIT,
    WAKE_MS,
    Capabilities,
    Claimed,
    Counts,
    Filter,
    Page,
    Store,
    Watcher,
)
from tarry.task import Task, TaskRef, check_namespace

A = TypeVar("A")
Item = TypeVar("Item")

_STEP = 500
"""Rows of one transaction: more would keep other writers waiting."""

_EXPIRY = -1
"""Stands for the earliest end of a lease where lanes are asked for their heads."""

_json = msgspec.json.Encoder().encode


_Step = Callable[[Life, Item, steps.Moment], Change[A]]
_Write = Callable[[sqlite3.Connection, int, record.Found, Change[Any]], None]


class SqliteStore(Store, Joins):
    """Tasks in a SQLite file, in WAL mode.

    What callers are promised is committed at ``synchronous=FULL`` (*sync* "full") or survives only
    the death of processes (*sync* "normal"); claims and settlements always commit at NORMAL, but
    for those that place a next occurrence. *shared*: a file that is another program's already may
    become a store too, so that tasks and that program's own rows commit together.
    """

    def __init__(
        self,
        path: str,
        *,
        namespace: str = "default",
        sync: str = "full",
        shared: bool = False,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.namespace = check_namespace(namespace)
        # Absolute: who changes the working folder later must not get another file.
        self.path = path = os.path.realpath(path)
        self.capabilities = Capabilities(
            medium="sqlite",
            survives="power loss" if sync == "full" else "process kill",
            shared=True,
            wakeup="datagram",
            joins_transactions=True,
            takes_over=True,
        )
        self._clock = clock or SYSTEM
        self._random = rng or random.SystemRandom()
        self._synced = sync == "full"
        prepare(path, shared=shared)
        self._connections = Connections(path, full=sync.upper())
        try:
            self._migrated = migrate(self._connections)
        except BaseException:
            self._connections.close()
            raise
        self._lanes = Lanes(self._connections, namespace)
        self._revisions = Revisions(self._random.getrandbits(62))
        self._wakeups = Wakeups(path)
        self._checkpointer = Checkpointer(self._connections)
        self._looking = Looking(self._connections, self._lanes, self._clock)
        self._joined = Joined(path, namespace, self._connections, self._lanes, self._clock)
        self._turn = 0

    # ---- the caller's verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot."""
        del call
        if len(requests) == 1:
            alone = self._insert_one(requests[0])
            return self._each(requests, steps.schedule) if alone is None else [alone]
        answers: list[Scheduled] = []
        for start in range(0, len(requests), _STEP):
            step = requests[start : start + _STEP]
            fresh = self._insert(step)
            answers += self._each(step, steps.schedule) if fresh is None else fresh
        return answers

    def _insert(self, requests: Sequence[Request]) -> list[Scheduled] | None:
        """Insert tasks whose refs are all new; None, and nothing written, if one is not."""
        if any(request.if_revision is not None for request in requests):
            return None
        lanes = self._lanes.of([request.ref.kind for request in requests], make=True)
        try:
            with self._connections.writing("full") as db:
                now = self._clock.now()
                revisions = self._revisions.draw(db, len(requests))
                records = [
                    short.record(request, lanes[request.ref.kind], now, revision)
                    for request, revision in zip(requests, revisions, strict=True)
                ]
                short.insert_all(db, records)
                soon = now + WAKE_MS
                news = self._news(db, [(row[0], row[2]) for row in records if row[2] <= soon])
        except short.TakenError:
            self._revisions.forget()
            return None
        except BaseException:
            self._revisions.forget()
            raise
        self._told(news, len(requests))
        created = ScheduleStatus.CREATED
        return [
            Scheduled(r.ref, row[2], row[3], created)
            for r, row in zip(requests, records, strict=True)
        ]

    def _insert_one(self, request: Request) -> Scheduled | None:
        """Insert one task whose ref is new, in one statement; None, and nothing written, if not."""
        if request.if_revision is not None:
            return None
        kind = request.ref.kind
        lane = self._lanes.of((kind,), make=True)[kind]
        news = None
        try:
            with self._connections.writing("full") as db:
                now = self._clock.now()
                record = self._insert_owned(db, request, lane, now)
                due = record[2]
                if due <= now + WAKE_MS:
                    news = self._news(db, [(lane, due)])
        except short.TakenError:
            self._revisions.forget()
            return None
        except BaseException:
            self._revisions.forget()
            raise
        self._told(news, 1)
        return Scheduled(request.ref, due, record[3], ScheduleStatus.CREATED)

    def _insert_owned(
        self, db: sqlite3.Connection, request: Request, lane: int, now: int
    ) -> short.Record:
        """Insert one task; while the block of revisions is the newest, without asking for that."""
        ahead = self._revisions.ahead()
        if ahead is not None:
            revision, owner, mark = ahead
            record = short.record(request, lane, now, revision)
            if short.insert_if(db, record, owner, mark):
                self._revisions.used()
                return record
        record = short.record(request, lane, now, self._revisions.draw(db, 1)[0])
        short.insert_all(db, [record])
        return record

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due."""
        del call
        return self._steps(moves, steps.reschedule, write=record.move)

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks."""
        del call
        return self._steps(cancellations, steps.cancel)

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""
        del call
        return self._steps(refs, steps.revive)

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters."""
        del call
        return self._steps(refs, steps.purge)

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown."""
        del call
        return self._steps(tasks, partial(steps.take_over, over=replace))

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Stop or resume claims of *kind*."""
        del call
        lane = self._lanes.of([kind], make=True)[kind]
        with self._connections.writing("full") as db:
            soon = self._clock.now() + WAKE_MS
            [before] = db.execute(SQL["paused"], (lane,)).fetchone()
            db.execute(SQL["pause"], (paused, lane))
            heads, expiry = self._heads(db, [lane])
            found = [due for due in (*heads.values(), expiry) if due is not None and due <= soon]
        self._told(min(found, default=None), 1)
        return bool(before)

    def _steps(
        self, items: Sequence[Item], step: _Step[Item, A], *, write: _Write = record.write
    ) -> list[A]:
        answers: list[A] = []
        for start in range(0, len(items), _STEP):
            answers += self._each(items[start : start + _STEP], step, write=write)
        return answers

    def _each(
        self,
        items: Sequence[Item],
        step: _Step[Item, A],
        *,
        ref: Callable[[Item], TaskRef] = lambda item: item.ref,  # type: ignore[attr-defined]
        write: _Write = record.write,
        durability: str = "full",
    ) -> list[A]:
        """Run *step* on the life of each item's ref, in one transaction."""
        names = [ref(item) for item in items]
        lanes = self._lanes.of([name.kind for name in names], make=True)
        try:
            with self._connections.writing(durability) as db:
                now = self._clock.now()
                moment = steps.Moment(db, 0, now, self._revisions.drawer(db))
                answers: list[A] = []
                claimable: list[tuple[int, int]] = []
                for item, name in zip(items, names, strict=True):
                    moment.lane = lane = lanes[name.kind]
                    found = record.read(db, lane, name.kind, name.key)
                    change = step(found.life, item, moment)
                    write(db, lane, found, change)
                    answers.append(change.answer)
                    due = record.claimable(change.life)
                    if due is not None and due <= now + WAKE_MS and change.life is not found.life:
                        claimable.append((lane, due))
                news = self._news(db, claimable)
        except BaseException:
            self._revisions.forget()
            raise
        self._told(news, len(items), durability)
        return answers

    # ---- the worker's verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease due tasks; looks before it locks, so that nothing due costs no write lock."""
        del call
        asked = self._clock.elapsed()
        waited = 0
        known = self._lanes.of(kinds)
        lanes = [known[kind] for kind in dict.fromkeys(kinds) if kind in known]
        with self._connections.reading() as db:
            heads, expiry = self._heads(db, lanes)
            now, micros = divmod(self._clock.now_us(), 1_000)
        leases: list[Lease] = []
        if _reached(expiry, now) or (limit > 0 and any(_reached(h, now) for h in heads.values())):
            with self._connections.writing("normal") as db:
                waited = self._clock.elapsed() - asked
                now, micros = divmod(self._clock.now_us(), 1_000)
                if _reached(expiry, now):
                    self._reclaim(db, lanes, now)
                heads, _ = self._heads(db, lanes)
                due = [lane for lane, head in heads.items() if _reached(head, now)]
                found = self._take(db, due, limit, now, now + lease_ms, holder)
            kinds_by_lane = {lane: kind for kind, lane in known.items()}
            leases = [
                rows.lease(kinds_by_lane[row[17]], row, row[16], holder, now + lease_ms)
                for row in sorted(found, key=_by_due)
            ]
            self._checkpointer.wrote(len(leases))
            with self._connections.reading() as db:
                heads, expiry = self._heads(db, lanes)
            now, micros = divmod(self._clock.now_us(), 1_000)
        sights = [due for due in (*heads.values(), expiry) if due is not None]
        return Claimed(leases, now, micros, min(sights, default=None), waited)

    def _heads(
        self, db: sqlite3.Connection, lanes: Sequence[int]
    ) -> tuple[dict[int, int | None], int | None]:
        """Return each open lane's earliest due, and the earliest end of a lease in them."""
        heads = dict(db.execute(_heads_of(tuple(lanes))).fetchall())
        return heads, heads.pop(_EXPIRY)

    def _take(
        self,
        db: sqlite3.Connection,
        due: Sequence[int],
        limit: int,
        now: int,
        expires: int,
        holder: str,
    ) -> list[rows.Row]:
        self._turn += 1
        given = {
            "nonce": self._random.getrandbits(62),
            "holder": holder,
            "expires": expires,
        }
        if len(due) == 1:
            wanted = {"lane": due[0], "now": now, "limit": limit}
            return db.execute(SQL["claim_lane"], {**given, **wanted}).fetchall()

        def take(lane: int, offset: int, count: int) -> list[tuple[int, int]]:
            return db.execute(SQL["due"], (lane, now, count, offset)).fetchall()

        chosen = share(due, limit, self._turn, take, lambda found: found[1])
        ids = _json([found[0] for found in chosen])
        return db.execute(SQL["claim_ids"], {**given, "ids": ids}).fetchall()

    def _reclaim(self, db: sqlite3.Connection, lanes: Sequence[int], now: int) -> None:
        """End the leases that have expired."""
        kinds = {lane: kind for kind, lane in self._lanes.of([]).items()}
        asked = (now, _json(lanes), RECLAIM_LIMIT)
        for lane, key in db.execute(SQL["expired"], asked).fetchall():
            found = record.read(db, lane, kinds[lane], key)
            record.write(db, lane, found, lives.at(found.life, now))

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now."""
        if not leases:
            return []
        places, tokens = _places(leases)
        with self._connections.writing("normal") as db:
            expires = self._clock.now() + lease_ms
            held = dict(db.execute(SQL["renew"], (expires, places, tokens)).fetchall())
        self._checkpointer.wrote(len(leases))
        return [_renewed(held.get(lease.token)) for lease in leases]

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases."""
        del call
        answers: list[SettleResult] = []
        for start in range(0, len(settlements), _STEP):
            step = settlements[start : start + _STEP]
            simple = self._settle_done(step) if all(map(_is_simple, step)) else None
            if simple is None:
                # A next occurrence has a revision: a crash that forgot it would give it out again.
                durability = "full" if any(item.successor for item in step) else "normal"
                simple = self._each(
                    step, steps.settle, ref=lambda item: item.lease.ref, durability=durability
                )
                self._forget()
            answers += simple
        return answers

    def _settle_done(self, settlements: Sequence[Settlement]) -> list[SettleResult] | None:
        """Delete what is done and leaves nothing behind; None, and nothing written, if unsure."""
        places, tokens = _places([settlement.lease for settlement in settlements])
        try:
            with self._connections.writing("normal") as db:
                short.delete_done(db, places, tokens, len(settlements))
        except short.TakenError:
            return None
        self._checkpointer.wrote(len(settlements))
        return [SettleResult.SETTLED] * len(settlements)

    def _forget(self) -> None:
        """Drop history that was kept long enough, a few records at a time."""
        with self._connections.reading() as db:
            stale = db.execute(SQL["any_stale"], (self._clock.now(),)).fetchone()
        if stale:
            with self._connections.writing("normal") as db:
                db.execute(SQL["forget"], (self._clock.now(),))

    # ---- in the caller's transaction

    joined_drivers = frozenset({"sqlite3", "aiosqlite"})

    def join_check(self, connection: object) -> Steps[None]:
        """Refuse a connection to another file."""
        del connection
        return self._joined.check()

    def join_schedule(self, requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests when the caller commits."""
        return self._joined.schedule(requests)

    def join_reschedule(self, moves: Sequence[Move]) -> Steps[list[Moved]]:
        """Give waiting tasks a new due when the caller commits."""
        return self._joined.reschedule(moves)

    def join_cancel(self, cancellations: Sequence[Cancellation]) -> Steps[list[CancelResult]]:
        """Cancel tasks when the caller commits."""
        return self._joined.cancel(cancellations)

    def join_settle(self, settlements: Sequence[Settlement]) -> Steps[list[SettleResult]]:
        """Record outcomes when the caller commits."""
        return self._joined.settle(settlements)

    def committed(self, due: int) -> None:
        """Wake the workers for what was joined, if it is due soon."""
        soon = due <= self._clock.now() + WAKE_MS
        self._told(due if soon else None, 1)

    # ---- what operators see

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show tasks."""
        return self._looking.get(refs)

    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Show tasks page by page."""
        return self._looking.scan(where, cursor, limit)

    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """Count tasks by kind."""
        return self._looking.counts(kinds)

    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        return self._looking.forecast(bucket_ms, buckets)

    def check(self) -> list[str]:
        """Look the file over."""
        return self._looking.check()

    # ---- news, and the end

    def _news(self, db: sqlite3.Connection, claimable: Iterable[tuple[int, int]]) -> int | None:
        """Return the soonest due of (lane, due) pairs, paused lanes aside."""
        found = sorted(claimable, key=lambda pair: pair[1])
        for lane, due in found:
            if not db.execute(SQL["paused"], (lane,)).fetchone()[0]:
                return due
        return None

    def _told(self, news: int | None, wrote: int, durability: str = "full") -> None:
        """After a commit: wake the workers if there is news, and think of a checkpoint."""
        if news is not None:
            self._wakeups.notify(news)
        self._checkpointer.wrote(wrote, synced=self._synced and durability == "full")

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* on news."""
        self._connections.own()
        return self._wakeups.watch(callback)

    def migrate(self) -> list[str]:
        """Bring the file to this version's layout; the first answer tells what opening it did."""
        before, self._migrated = self._migrated, []
        return before + migrate(self._connections)

    def facts(self) -> dict[str, str]:
        """Tell which SQLite, which layout, and how large the file is."""
        with self._connections.reading() as db:
            [layout] = db.execute("PRAGMA user_version").fetchone()
            [pages] = db.execute("PRAGMA page_count").fetchone()
            [size] = db.execute("PRAGMA page_size").fetchone()
        return {
            "layout": str(layout),
            "SQLite": sqlite3.sqlite_version,
            "size": f"{pages * size:,} bytes",
        }

    def close(self) -> None:
        """Let go of the file."""
        self._wakeups.close()
        self._checkpointer.close()
        self._connections.close()


@lru_cache(maxsize=64)
def _heads_of(lanes: tuple[int, ...]) -> str:
    """Return `heads` with *lanes* written out: prepared once, it binds nothing."""
    return SQL["heads"].replace(":lanes", ", ".join(map(str, lanes or (0,))))


def _is_simple(settlement: Settlement) -> bool:
    return (
        isinstance(settlement.outcome, Done | Skip)
        and settlement.successor is None
        and not settlement.lease.task.keep_ms
    )


def _places(leases: Sequence[Lease]) -> tuple[bytes, bytes]:
    return _json([lease.place for lease in leases]), _json([lease.token for lease in leases])


def _renewed(cancelled: int | None) -> RenewResult:
    if cancelled is None:
        return RenewResult.LOST
    return RenewResult.CANCELLED if cancelled else RenewResult.RENEWED


def _reached(instant: int | None, now: int) -> bool:
    return instant is not None and instant <= now


def _by_due(row: rows.Row) -> int:
    due: int = row[2]
    return due
