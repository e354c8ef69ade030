"""The words the promises are written in: one task, one verb, one answer at a time."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.attempt import DONE, AnyOutcome, Dead, Done, Release, Retry, Skip, Snooze
from tarry.due import By, Due, In
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement, Successor
from tarry.stores.store import Filter, Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock

LEASE_MS = 10_000
RECLAIM_MS = 1_000
"""A store may take this long to notice that a lease has ended."""

KIND = "order.cancel"
ANOTHER_KIND = "order.remind"
REF = TaskRef(KIND, "42")
NOW = In(0)
LIMIT_S = 5.0
"""How long a test waits for what another thread or process is to do."""

ENDINGS: tuple[AnyOutcome, ...] = (Done(), Skip("nothing to do"), Dead("broken"))
AGAINS: tuple[AnyOutcome, ...] = (Retry(In(500), "failed"), Snooze(In(500), "not yet"), Release())
OUTCOMES: tuple[AnyOutcome, ...] = ENDINGS + AGAINS


def one_order(store: Store) -> Store:
    """Return the store if its tasks lie in one order, not spread over shards."""
    if store.capabilities.shards > 1:
        pytest.skip(
            f"{store.capabilities.medium} spreads tasks over shards with orders of their own"
        )
    return store


def named(value: object) -> str:
    """Return how a case is called in the names of tests."""
    return str(getattr(value, "value", type(value).__name__)).lower()


def schedule(store: Store, ref: TaskRef = REF, due: Due = NOW, **options: Any) -> Scheduled:
    """Schedule one task."""
    [answer] = store.schedule([Request(ref, due, **options)])
    return answer


def move(store: Store, due: Due | By, ref: TaskRef = REF, **options: Any) -> Moved:
    """Reschedule one task."""
    [answer] = store.reschedule([Move(ref, due, **options)])
    return answer


def cancel(store: Store, ref: TaskRef = REF, if_revision: int | None = None) -> CancelResult:
    """Cancel one task."""
    [answer] = store.cancel([Cancellation(ref, if_revision)])
    return answer


def claim(
    store: Store, *kinds: str, limit: int = 100, holder: str = "w1", lease_ms: int = LEASE_MS
) -> list[Lease]:
    """Claim what is due of *kinds*."""
    return store.claim(kinds or (KIND,), limit=limit, lease_ms=lease_ms, holder=holder).leases


def claim_one(store: Store, kind: str = KIND, holder: str = "w1") -> Lease:
    """Claim the one task of *kind* that is due."""
    [lease] = claim(store, kind, holder=holder)
    return lease


def start(store: Store, ref: TaskRef = REF, **options: Any) -> Lease:
    """Schedule a task that is due now, and claim it."""
    schedule(store, ref, **options)
    return claim_one(store, ref.kind)


def settle(
    store: Store, lease: Lease, outcome: AnyOutcome = DONE, successor: Successor | None = None
) -> SettleResult:
    """Settle one attempt."""
    [answer] = store.settle([Settlement(lease, outcome, successor)])
    return answer


def renew(store: Store, lease: Lease, lease_ms: int = LEASE_MS) -> RenewResult:
    """Renew one lease."""
    [answer] = store.renew([lease], lease_ms=lease_ms)
    return answer


def kill(store: Store, ref: TaskRef = REF, reason: str = "broken", **options: Any) -> int:
    """Make a dead letter; returns its revision."""
    lease = start(store, ref, **options)
    assert settle(store, lease, Dead(reason))
    return lease.task.revision


def revive(store: Store, ref: TaskRef = REF, revision: int = 0) -> ReviveResult:
    """Revive one dead letter."""
    [answer] = store.revive([DeadRef(ref, revision)])
    return answer


def purge(store: Store, ref: TaskRef = REF, revision: int = 0) -> bool:
    """Purge one dead letter."""
    [answer] = store.purge([DeadRef(ref, revision)])
    return answer


def get(store: Store, ref: TaskRef = REF) -> Task | None:
    """Show one task, if it is there."""
    [task] = store.get([ref])
    return task


def shown(store: Store, ref: TaskRef = REF) -> Task:
    """Show one task that is there."""
    task = get(store, ref)
    assert task is not None
    return task


def expire(clock: ManualClock) -> None:
    """Let every lease end, and give the store its time to notice."""
    clock.advance(LEASE_MS + RECLAIM_MS)


def pages(store: Store, where: Filter, limit: int = 100) -> Iterator[list[Task]]:
    """Scan page by page to the end."""
    cursor = None
    while True:
        page = store.scan(where, cursor=cursor, limit=limit)
        yield page.tasks
        cursor = page.cursor
        if cursor is None:
            return


def scanned(store: Store, where: Filter | None = None, limit: int = 100) -> list[Task]:
    """Scan to the end."""
    return [task for page in pages(store, where or Filter(), limit) for task in page]


def kept(store: Store, state: TaskState, ref: TaskRef = REF) -> list[Task]:
    """Return what is kept of *ref* in *state*, by revision."""
    found = [task for task in scanned(store, Filter(state=state)) if task.ref == ref]
    return sorted(found, key=lambda task: task.revision)


class Ear:
    """Hears the wake-ups of a store, whichever thread they come from."""

    def __init__(self, store: Store) -> None:
        self._dues: list[int] = []
        self._news = threading.Condition()
        self.undo = store.watch(self._hear)

    def _hear(self, due: int) -> None:
        with self._news:
            self._dues.append(due)
            self._news.notify_all()

    def heard(self, count: int) -> list[int]:
        """Wait until *count* wake-ups have come; returns the dues of all that came."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._dues) >= count, LIMIT_S), (
                f"{count} wake-ups were to come, but only {self._dues} came"
            )
            return list(self._dues)
