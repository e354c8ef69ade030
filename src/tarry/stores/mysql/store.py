"""The MySQL store: MySQL 8 or MariaDB from 10.6 on, one database, the caller's transactions too.

What a schedule meets is decided by the statement itself; whatever is not that simple is read under
its locks, changed by `tarry.life` and written back, in one transaction of two exchanges.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import msgspec

from tarry.answers import (
    CancelResult,
    Moved,
    MoveStatus,
    RenewResult,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.clock import Clock
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.mysql import verbs
from tarry.stores.mysql.claiming import Claiming, looks, sight
from tarry.stores.mysql.exchange import Codec, Exchange
from tarry.stores.mysql.joining import Joining
from tarry.stores.mysql.lanes import Lanes
from tarry.stores.mysql.layout import Layout
from tarry.stores.mysql.links import Links
from tarry.stores.mysql.looking import Looking
from tarry.stores.mysql.plan import Plan
from tarry.stores.mysql.server import Survey
from tarry.stores.mysql.url import Place
from tarry.stores.mysql.wake import Wakeups
from tarry.stores.store import (
    CHUNK,
    CHUNK_BYTES,
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
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer

_GONE = 1_000
"""Rows that are removed in one transaction when a namespace is abandoned."""
_json = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode


class MysqlStore(Joining, Store):
    """Tasks in a database; the server's clock decides, unless one is handed in."""

    def __init__(
        self,
        place: Place,
        *,
        namespace: str = "default",
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.namespace = check_namespace(namespace)
        self._links = Links(place)
        self._exchange = Exchange(place, namespace, self._links, clock)
        try:
            self._survey = Survey(self._exchange, place)
            self._layout = Layout(self._exchange, place)
            self._migrated = self._layout.migrate()
        except BaseException:
            self._links.close()
            raise
        self._exchange.returns = self._survey.is_mariadb
        self.capabilities = Capabilities(
            medium="mariadb" if self._survey.is_mariadb else "mysql",
            survives=self._survey.survives(),
            shared=True,
            wakeup="poll 100ms",
            joins_transactions=True,
            remembers_calls=True,
            takes_over=True,
        )
        self._lanes = Lanes(self._exchange, namespace)
        self._claiming = Claiming(self._exchange, self._lanes, rng or random.SystemRandom())
        self._looking = Looking(self._exchange, self._lanes)
        self._wakeups = Wakeups(self._exchange, namespace)
        self._database = place.database
        self._checked = WeakSet()

    # ---- the caller's verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot."""
        return self._each("schedule", verbs.schedule, requests, call, _scheduled)

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due."""
        return self._each("reschedule", verbs.reschedule, moves, call, _moved)

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks."""
        return self._each(
            "cancel", verbs.cancel, cancellations, call, lambda _: _values(CancelResult)
        )

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""
        return self._each("revive", verbs.revive, refs, call, lambda _: _values(ReviveResult))

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters."""
        return self._each("purge", verbs.purge, refs, call, lambda _: _values(bool))

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown; see `verbs.take_over` for what runs here."""
        make = partial(verbs.take_over, over=replace)
        return self._each("take_over", make, tasks, call, lambda _: _values(bool))

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases."""
        answers = self._each(
            "settle",
            verbs.settle,
            settlements,
            call,
            lambda _: _values(SettleResult),
            ref=lambda item: item.lease.ref,
        )
        if not all(map(verbs.is_simple, settlements)):
            self._forget()
        return answers

    def _forget(self) -> None:
        """Drop history that was kept long enough, a few records at a time."""
        now = self._exchange.now
        stale = f"FROM tarry_ended WHERE until <= {now}"
        [found] = self._exchange.ask(f"SELECT 1 {stale} LIMIT 1")
        if found.rows:
            self._exchange.ask(f"DELETE {stale} ORDER BY until LIMIT 10")

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Stop or resume claims of *kind*."""
        lane = self._lanes.of([kind], make=True)[kind]
        name = self._exchange.name("pause", call) if call else None
        [before], _ = self._exchange.run(
            "pause", lambda setting: verbs.pause(lane, setting, paused=paused), _values(bool), name
        )
        if not paused:
            seen = sight(self._exchange.ask(*looks(self._exchange, {lane: kind})))
            dues = (*seen.heads.values(), *seen.ends.values())
            self._wakeups.notify([(lane, due) for due in dues if due <= seen.now + WAKE_MS])
        return bool(before)

    def _each(
        self,
        verb: str,
        make: Callable[[Sequence[I], verbs.Lanes, verbs.Setting], Plan[A]],
        items: Sequence[I],
        call: str,
        codec: Callable[[Sequence[I]], Codec],
        ref: Callable[[I], TaskRef] = lambda item: item.ref,  # type: ignore[attr-defined]
    ) -> list[A]:
        """Run a verb on a batch, cut into transactions that keep others waiting only shortly."""
        if not items:
            return []
        lanes = self._lanes.of([ref(item).kind for item in items], make=True)
        answers: list[A] = []
        for start, step in _steps(items):
            # Each step is a call of its own, and a repeat finds each of them.
            name = self._exchange.name(verb, call, str(start)) if call else None
            told, news = self._exchange.run(
                verb,
                partial(make, step, lanes),
                codec(step),
                name,
            )
            self._wakeups.notify(news)
            answers += told
        return answers

    # ---- the worker's verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease due tasks; looks before it locks, and past what others have locked."""
        return self._claiming.claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now."""
        answers: list[RenewResult] = []
        for start in range(0, len(leases), CHUNK):
            answers += self._renew(leases[start : start + CHUNK], lease_ms)
        return answers

    def _renew(self, leases: Sequence[Lease], lease_ms: int) -> list[RenewResult]:
        # Tokens are unique: a row that has one of the ids and one of the tokens has its own.
        ids = ", ".join(str(lease.place) for lease in leases)
        tokens = ", ".join(str(lease.token) for lease in leases)
        held = f"id IN ({ids}) AND token IN ({tokens})"
        results = self._exchange.ask(
            "BEGIN",
            "SELECT token, cancelled FROM tarry_task FORCE INDEX (PRIMARY) "
            f"WHERE {held} FOR UPDATE",
            f"UPDATE tarry_task FORCE INDEX (PRIMARY) "
            f"SET at = {self._exchange.now} + {lease_ms} WHERE {held}",
            "COMMIT",
            verb="renew",
            reserved=True,
        )
        found = dict(results[1].rows)
        return [_renewed(found.get(lease.token)) for lease in leases]

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

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* on news."""
        return self._wakeups.watch(callback)

    def migrate(self) -> list[str]:
        """Bring the tables to this version's layout; the first answer tells what opening did."""
        before, self._migrated = self._migrated, []
        return before + self._layout.migrate()

    def check(self) -> list[str]:
        """Look the server over, and prove that orders and records agree."""
        return [*self._survey.findings(), *self._looking.check()]

    def facts(self) -> dict[str, str]:
        """Tell version, layout and settings."""
        return {"layout": str(self._layout.present()), **self._survey.facts()}

    def abandon(self) -> None:
        """Remove every row of the namespace, running attempts too; what is remembered expires."""
        lanes = ", ".join(str(lane) for lane, _ in self._lanes.all().values())
        if not lanes:
            return
        for table in ("tarry_task", "tarry_ended"):
            gone = _GONE
            while gone == _GONE:
                [result] = self._exchange.ask(
                    f"DELETE FROM {table} WHERE lane IN ({lanes}) LIMIT {_GONE}"
                )
                gone = result.count
        self._exchange.ask(f"DELETE FROM tarry_lane WHERE id IN ({lanes})")
        self._lanes.forget()

    def close(self) -> None:
        """Let go of the server."""
        self._wakeups.close()
        self._links.close()


def _renewed(cancelled: int | None) -> RenewResult:
    if cancelled is None:
        return RenewResult.LOST
    return RenewResult.CANCELLED if cancelled else RenewResult.RENEWED


# ---- how answers are remembered


def _values(make: Any) -> Codec:
    def write(answers: Sequence[Any]) -> bytes:
        return _json([getattr(answer, "value", answer) for answer in answers])

    return Codec(write, lambda kept: [make(value) for value in _read(kept)])


def _scheduled(requests: Sequence[Request]) -> Codec:
    def read(kept: bytes) -> list[Scheduled]:
        return [
            Scheduled(request.ref, due, revision, ScheduleStatus(status))
            for request, (due, revision, status) in zip(requests, _read(kept), strict=True)
        ]

    return Codec(_with_status, read)


def _moved(moves: Sequence[Move]) -> Codec:
    def read(kept: bytes) -> list[Moved]:
        return [
            Moved(move.ref, due, revision, MoveStatus(status))
            for move, (due, revision, status) in zip(moves, _read(kept), strict=True)
        ]

    return Codec(_with_status, read)


def _with_status(answers: Sequence[Scheduled | Moved]) -> bytes:
    return _json([(answer.due, answer.revision, answer.status.value) for answer in answers])


def _steps(items: Sequence[I]) -> Iterator[tuple[int, Sequence[I]]]:
    """Cut a batch into what one transaction may be given, with the place of each part."""
    start, size = 0, 0
    for place, item in enumerate(items):
        weight = len(item.payload) if isinstance(item, Request | Task) else 0
        if place > start and (place - start == CHUNK or size + weight > CHUNK_BYTES):
            yield start, items[start:place]
            start, size = place, 0
        size += weight
    if start < len(items):
        yield start, items[start:]
