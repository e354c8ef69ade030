"""Store and Capabilities: the contract of every medium; read it first."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tarry.answers import (
    CancelResult,
    Moved,
    RenewResult,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.due import At
from tarry.errors import UnsupportedError
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Request, Settlement
from tarry.task import Task, TaskRef, TaskState

WAKE_MS = 2_000
"""Whatever becomes claimable within this time wakes the workers; each looks that often anyway."""

RECLAIM_LIMIT = 500
"""A claim ends at most this many expired leases."""

REMEMBER_MS = 30_000
"""A medium that remembers calls does so for at least this time."""

CHUNK = 500
"""The client sends at most this many items in one call, unless a store takes more."""

CHUNK_BYTES = 1 << 20
"""The client sends at most this many bytes of payload in one call."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a medium can do, declared once and shown by `tarry doctor` and the docs."""

    medium: str
    survives: str
    """What an acknowledged task survives: nothing, process kill, power loss, node loss."""
    shared: bool
    """Whether several processes may use it at the same time."""
    wakeup: str
    """How a sleeping worker learns of news: direct, datagram, poll 100ms, …"""
    joins_transactions: bool = False
    remembers_calls: bool = False
    """Whether a repeated call (same `call`) gets the same answers and changes nothing."""
    takes_over: bool = False
    """Whether `take_over` keeps what tasks went through, and takes dead letters."""
    shards: int = 1
    """Parts the tasks are spread over: lanes, order of due and wake-ups are those of each part."""
    chunk: int = CHUNK
    """Items a call may have: more than CHUNK where a store cuts them into steps itself."""


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim, all by the store's clock: `now` in ms plus `micros` (0 to 999).

    `next_due` is the earliest instant at which a further claim of the same kinds may find
    something: a due, or the end of a lease. None: nothing is in sight. `waited` is how many
    nanoseconds the call stood in a queue before it looked; a store that cannot tell says 0.
    """

    leases: list[Lease]
    now: int
    micros: int
    next_due: int | None
    waited: int = 0


class Filter(msgspec.Struct, frozen=True):
    """Which tasks a scan shows; the empty filter shows all that wait or run."""

    state: TaskState | None = None
    kinds: tuple[str, ...] = ()
    key_prefix: str = ""
    due_before: int | None = None
    due_after: int | None = None


def matches(task: Task, where: Filter) -> bool:
    """Say whether a scan with *where* shows *task*."""
    return (
        (where.state is None or task.state is where.state)
        and (not where.kinds or task.ref.kind in where.kinds)
        and task.ref.key.startswith(where.key_prefix)
        and (where.due_before is None or task.due < where.due_before)
        and (where.due_after is None or task.due >= where.due_after)
    )


class Page(msgspec.Struct, frozen=True):
    """Part of a scan; `cursor` None: that was all. A page may be empty and not the last."""

    tasks: list[Task]
    cursor: str | None


class Counts(msgspec.Struct, frozen=True):
    """How many tasks of a kind there are; `overdue` of the scheduled ones are due by now."""

    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    overdue: int = 0
    oldest_due: int | None = None
    paused: bool = False


Watcher = Callable[[int], None]
"""Called, from any thread, with the due of something that became claimable soon."""


class Store(ABC):
    """Where the tasks of one namespace rest.

    Every verb takes a batch, answers item by item in the same order, and is atomic per item; items
    that name the same ref act one after the other. Methods block and may be called from any thread.
    Each item follows `tarry.life`, which says in full what happens.

    The store's clock decides what is due. `call` names a caller's call: a medium that
    `remembers_calls` answers a repeat within 30 s as it did at first and changes nothing.
    """

    namespace: str
    capabilities: Capabilities

    @abstractmethod
    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot; returns when it is durable."""

    @abstractmethod
    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due; the old one is no longer attempted."""

    @abstractmethod
    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks: after CANCELLED no revision of the ref that was scheduled before starts.

        One that is for a running attempt only conflicts with what waits without one.
        """

    @abstractmethod
    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease up to *limit* due tasks of *kinds*, earliest due first within a kind.

        A task is due when its due is not after the store's now and nobody holds an unexpired lease
        on its ref. The limit is shared evenly over the kinds that have due tasks, the rest goes by
        earliest due. Leases of *kinds* that expired end here (at most RECLAIM_LIMIT in one call).
        Paused kinds are left alone. A holder numbers its claims by *call*: where calls are
        remembered a repeat of the newest returns its unexpired leases, an older one takes nothing.
        """

    @abstractmethod
    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now; says which are lost or cancelled."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases; what no longer has its token is LEASE_LOST."""

    @abstractmethod
    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show tasks: the waiting revision, else the running, else the newest dead or kept one."""

    @abstractmethod
    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Show tasks page by page; examines at most ten times *limit* records in one call.

        Nothing that stays unchanged during the scan is left out or shown twice.
        """

    @abstractmethod
    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """Count tasks by kind; None: every kind that has tasks or is paused."""

    @abstractmethod
    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each of the next *buckets* spans; the first holds the overdue."""

    @abstractmethod
    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again, due now, in one step."""

    @abstractmethod
    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters; says which were there."""

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown: waiting tasks, and dead letters with their end.

        Each gets a new revision here, everything else is as it was. Says which were placed: a
        waiting task yields to one that waits, unless *replace*; a dead letter to one of its ref
        with the same end. A medium that does not say `takes_over` takes no dead letters, and lets
        tasks begin with their first attempt.
        """
        if any(task.state is TaskState.DEAD for task in tasks):
            message = (
                f"a {self.capabilities.medium} store takes no dead letters; nothing was written"
            )
            raise UnsupportedError(message)
        mode = OnConflict.REPLACE if replace else OnConflict.KEEP
        requests = [
            Request(
                task.ref,
                At(task.due),
                task.payload,
                task.headers,
                mode,
                rule=task.rule,
                nominal=task.nominal,
                declared=task.declared,
                keep_ms=task.keep_ms,
            )
            for task in tasks
        ]
        answers = self.schedule(requests, call=call)
        return [answer.status is not ScheduleStatus.KEPT for answer in answers]

    @abstractmethod
    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - the word of the verb
        """Stop (or resume) claims of *kind*, for good; says whether it was paused before."""

    @abstractmethod
    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* whenever something becomes claimable within WAKE_MS; returns an undo.

        May be late, repeated or missed: it is a hint, and workers look every WAKE_MS anyway.
        """

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the medium to this version's layout; says what was done."""

    @abstractmethod
    def check(self) -> list[str]:
        """Look the medium over for `tarry doctor`; says what is wrong, nothing if all is well."""

    def facts(self) -> dict[str, str]:
        """Tell `tarry doctor` what is worth knowing of the medium: its version, its layout."""
        return {}

    def abandon(self) -> None:
        """Remove a namespace that was made for a while, when nobody uses it any more.

        For `tarry bench`, `demo` and `prove`, which leave a medium as they found it: what waits,
        what is dead, and, where a medium keeps more of a namespace than its tasks, all of that.
        What runs may stay until a claim finds that its lease has ended.
        """
        for state in (TaskState.SCHEDULED, TaskState.LEASED):
            self.cancel([Cancellation(task.ref) for task in self._every(state)])
        # A claim finds the leases that have ended, and with them what was cancelled.
        self.claim(list(self.counts()), limit=1, lease_ms=1, holder="abandon")
        self.purge([DeadRef(task.ref, task.revision) for task in self._every(TaskState.DEAD)])

    def _every(self, state: TaskState) -> Iterator[Task]:
        cursor: str | None = None
        while True:
            page = self.scan(Filter(state), cursor=cursor)
            yield from page.tasks
            cursor = page.cursor
            if cursor is None:
                return

    @abstractmethod
    def close(self) -> None:
        """Let go of the medium; harmless when repeated."""
