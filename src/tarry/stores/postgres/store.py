"""The PostgreSQL store: one function of the database per verb, one round trip per call."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.clock import SYSTEM, Clock
from tarry.errors import StoreError
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.joining import Joins, Steps
from tarry.stores.postgres import verbs
from tarry.stores.postgres.claims import Claims
from tarry.stores.postgres.joined import Joined
from tarry.stores.postgres.links import Links
from tarry.stores.postgres.looking import Looking
from tarry.stores.postgres.records import lease_of
from tarry.stores.postgres.server import Survey
from tarry.stores.postgres.url import Place
from tarry.stores.postgres.verbs import Batch
from tarry.stores.postgres.wake import Wakeups
from tarry.stores.postgres.wire import numbers
from tarry.stores.store import Capabilities, Claimed, Counts, Filter, Page, Store, Watcher
from tarry.task import Task, TaskRef, check_namespace

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer

_STEP = 1_000
"""Items of one statement: more would hold their rows for too long."""
_STEP_BYTES = 4 << 20
_WEIGHED = (Request, Task)


class PostgresStore(Store, Joins):
    """Tasks in a schema of a database; the server's clock decides, unless one is handed in."""

    def __init__(
        self, place: Place, *, namespace: str = "default", clock: Clock | None = None
    ) -> None:
        self.namespace = check_namespace(namespace)
        self._place = place
        self._clock = clock
        self._links = Links(place)
        try:
            self._survey = Survey(self._links, place)
            self._migrated = self._survey.prepare()
            survives = self._survey.survives()
        except BaseException:
            self._links.close()
            raise
        pooled = self._links.pooled
        self.capabilities = Capabilities(
            medium="postgresql",
            survives=survives,
            shared=True,
            wakeup="poll 100ms (a pooler stands before the server)" if pooled else "notify",
            joins_transactions=True,
            remembers_calls=True,
            takes_over=self._survey.takes_over,
        )
        self._claims = Claims(always=clock is not None)
        self._looking = Looking(self._links, place.schema, namespace, clock)
        self._wakeups = Wakeups(place, namespace, self._links, self._looking.soonest)
        self._wakeups.heed(self._claims.lower)
        self._joined = Joined(self._links, place)
        self._turns = count()
        self._insist = False
        self._lanes: set[str] = set()
        """Kinds that are known to have a lane."""

    def _now_us(self) -> int | None:
        """Return what stands in for the server's clock, None where nothing does."""
        return None if self._clock is None else self._clock.now_us()

    # ---- the callers' verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot."""
        answers: list[Scheduled] = []
        for number, step in _steps(requests, call):
            given = verbs.batch([request.ref for request in step])
            said = self._ask("schedule", number, verbs.schedule(given, step))
            answers += verbs.scheduled(given, step, said)
        return answers

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due."""
        return self._each("reschedule", verbs.reschedule, moves, call, verbs.moved)

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks."""
        return self._each("cancel", verbs.cancel, cancellations, call, verbs.cancelled)

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""
        return self._each("revive", verbs.letters, refs, call, verbs.revived)

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters."""
        return self._each("purge", verbs.letters, refs, call, verbs.yes_or_no)

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown; an older layout takes no dead letters."""
        if not self.capabilities.takes_over:
            self._survey.refuse_letters(tasks)
            return super().take_over(tasks, replace=replace, call=call)
        return self._each("take_over", verbs.take_over, tasks, call, verbs.yes_or_no, replace)

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Stop or resume claims of *kind*."""
        [before] = self._ask("pause", call, [kind, paused])
        return bool(before)

    def _each(
        self,
        name: str,
        say: Callable[[Batch, Sequence[I]], list[Any]],
        items: Sequence[I],
        call: str,
        read: Callable[[Batch, Sequence[int]], list[A]],
        *told: object,
    ) -> list[A]:
        """Run a verb on a batch, in steps; *told* is said before what is said of the items."""
        answers: list[A] = []
        for number, step in _steps(items, call):
            given = verbs.batch([_ref(item) for item in step])
            answers += read(given, self._ask(name, number, [*told, *say(given, step)]))
        return answers

    def _ask(self, name: str, call: str, said: list[Any]) -> Sequence[int]:
        # Namespaces do not know of each other's calls.
        named = f"{self.namespace} {call}" if call else None
        values = [self.namespace, named, self._now_us(), *said]
        return numbers(self._links.ask(verbs.statement(name, self._place.schema), values))

    # ---- the workers' verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease due tasks; a claim that finds nothing due writes nothing."""
        asked = tuple(dict.fromkeys(kinds))
        claims = self._claims
        back = claims.back(asked)
        values = [
            self.namespace,
            self._now_us(),
            list(asked),
            *claims.marks(asked, back),
            max(0, limit),
            lease_ms,
            holder,
            call,
            _base(),
            next(self._turns),
            back,
            self._insist,
        ]
        before = SYSTEM.elapsed()
        try:
            *rows, last = self._links.run(verbs.statement("claim", self._place.schema), values)
        except StoreError:
            # If that claim comes late it must take nothing: the next one says that it was newer.
            self._insist = True
            raise
        self._insist = False
        _, _, _, next_due, _, now_us, repeated, _, seen, *_, ends = last
        if back is not None:
            claims.looked_back(asked, ends, seen, SYSTEM.elapsed() - before)
        leases = [lease_of(asked[row[1] - 1], row, holder) for row in rows]
        leases.sort(key=_by_due)
        if leases and not repeated:
            highest = {lease.ref.kind: (lease.task.due, lease.ref.key) for lease in leases}
            claims.took(asked, highest, leases[0].expires)
        now = now_us // 1_000
        expiry = claims.ends(asked)
        if expiry is not None and back is None and expiry <= now:
            expiry = now + claims.look_ms()
        sights = [due for due in (next_due, expiry) if due is not None]
        return Claimed(leases, now, now_us % 1_000, min(sights, default=None))

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now."""
        answers: list[RenewResult] = []
        for _, step in _steps(leases, ""):
            given = verbs.batch([lease.ref for lease in step])
            values = [self.namespace, self._now_us(), lease_ms, *verbs.renew(given, step)]
            said = self._links.ask(verbs.statement("renew", self._place.schema), values)
            answers += verbs.renewed(given, step, numbers(said))
        return answers

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases; what a crash of the server forgets runs again."""
        return self._each("settle", verbs.settle, settlements, call, verbs.settled, True)  # noqa: FBT003 - relaxed

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
        """Bring the schema to this version's layout; the first answer tells what opening it did."""
        before, self._migrated = self._migrated, []
        done = before + self._survey.migrate()
        self.capabilities = replace(self.capabilities, takes_over=self._survey.takes_over)
        return done

    def check(self) -> list[str]:
        """Look the server over, and prove that the tables agree."""
        return [*self._survey.findings(), *self._looking.check()]

    def facts(self) -> dict[str, str]:
        """Tell version, layout and size."""
        return self._survey.facts()

    def abandon(self) -> None:
        """Remove every row of the namespace, running attempts too; what is remembered expires."""
        self._looking.abandon()

    def close(self) -> None:
        """Let go of the server."""
        self._wakeups.close()
        self._links.close()

    # ---- in the caller's transaction

    joined_drivers = frozenset({"psycopg"})

    def join_schedule(self, requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests when the caller commits."""
        return self._joined.schedule(self._opening(requests), requests)

    def join_reschedule(self, moves: Sequence[Move]) -> Steps[list[Moved]]:
        """Give waiting tasks a new due when the caller commits."""
        opening = self._opening(moves)
        return self._joined.each("reschedule", opening, moves, verbs.reschedule, verbs.moved)

    def join_cancel(self, cancellations: Sequence[Cancellation]) -> Steps[list[CancelResult]]:
        """Cancel tasks when the caller commits."""
        opening = self._opening(cancellations)
        return self._joined.each("cancel", opening, cancellations, verbs.cancel, verbs.cancelled)

    def join_settle(self, settlements: Sequence[Settlement]) -> Steps[list[SettleResult]]:
        """Record outcomes when the caller commits, as durably as the caller does."""
        return self._joined.settle(self._opening(settlements), settlements)

    def _opening(self, items: Sequence[Any]) -> list[Any]:
        """Return what a joined call begins with.

        A kind that nobody has used gets its lane beforehand, once, by a connection of the store: in
        the caller's transaction all who use the kind would wait for the caller to commit.
        """
        missing = {_ref(item).kind for item in items} - self._lanes
        if missing:
            statement = verbs.statement("lanes_of", self._place.schema)
            self._links.ask(statement, [self.namespace, sorted(missing)])
            self._lanes |= missing
        return [self.namespace, None, self._now_us()]

    def committed(self, due: int) -> None:
        """Do nothing: the server itself wakes the workers when the caller has committed."""


def _ref(item: Any) -> TaskRef:
    return item.lease.ref if isinstance(item, Settlement) else item.ref


def _steps(items: Sequence[I], call: str) -> Iterator[tuple[str, Sequence[I]]]:
    """Cut a batch into what one statement may be given; each step is a call of its own."""
    if len(items) <= _STEP:
        weighs = sum(len(item.payload) for item in items if isinstance(item, _WEIGHED))
        if weighs <= _STEP_BYTES:
            if items:
                yield call, items
            return
    start, size = 0, 0
    for place, item in enumerate(items):
        weight = len(item.payload) if isinstance(item, _WEIGHED) else 0
        if place > start and (place - start == _STEP or size + weight > _STEP_BYTES):
            yield _number(call, start), items[start:place]
            start, size = place, 0
        size += weight
    yield _number(call, start), items[start:]


def _number(call: str, start: int) -> str:
    return f"{call}.{start}" if call and start else call


def _base() -> int:
    """Return a number that no other claim begins its tokens with; drawn anew in a fork, too."""
    return int.from_bytes(os.urandom(8)) >> 2


def _by_due(lease: Lease) -> tuple[int, str]:
    return lease.task.due, lease.ref.key
