"""The caller's verbs inside the caller's own database transaction."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from tarry.answers import CancelResult, Moved, Scheduled, ScheduleStatus
from tarry.request import Cancellation, Move, Request
from tarry.runtime import Runtime
from tarry.stores.joining import Joins, Steps
from tarry.stores.store import WAKE_MS, Store
from tarry.transactions.joining import Joined

T = TypeVar("T")
_NS = 1_000_000_000
_WATCH_NS = 60 * _NS
_PAUSES = (0.002, 0.05)


class Transactions:
    """Says what callers want in their transactions: no chunks, no repeats, no batches.

    What is said there happens when the caller commits. After that the workers are woken, where the
    medium does not do so by itself; where nobody tells of a commit they see it at their next look.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._commits = Commits(runtime)

    def schedule(self, request: Request, tx: object) -> Scheduled:
        """Schedule one request when the caller commits."""
        joined = Joined(self._store, tx)
        [answer] = joined.run(_schedule(request))
        return self._scheduled(joined, answer)

    async def aschedule(self, request: Request, tx: object) -> Scheduled:
        """Schedule one request when the caller commits; for coroutines."""
        joined = Joined(self._store, tx)
        [answer] = await joined.arun(_schedule(request))
        return self._scheduled(joined, answer)

    def move(self, move: Move, tx: object) -> Moved:
        """Move one task when the caller commits."""
        joined = Joined(self._store, tx)
        [answer] = joined.run(_move(move))
        return self._moved(joined, answer)

    async def amove(self, move: Move, tx: object) -> Moved:
        """Move one task when the caller commits; for coroutines."""
        joined = Joined(self._store, tx)
        [answer] = await joined.arun(_move(move))
        return self._moved(joined, answer)

    def cancel(self, cancellation: Cancellation, tx: object) -> CancelResult:
        """Cancel one task when the caller commits."""
        [answer] = Joined(self._store, tx).run(_cancel(cancellation))
        return answer

    async def acancel(self, cancellation: Cancellation, tx: object) -> CancelResult:
        """Cancel one task when the caller commits; for coroutines."""
        [answer] = await Joined(self._store, tx).arun(_cancel(cancellation))
        return answer

    def _scheduled(self, joined: Joined, answer: Scheduled) -> Scheduled:
        if answer.status in (ScheduleStatus.CREATED, ScheduleStatus.REPLACED):
            self._wake(joined, answer.due)
        return answer

    def _moved(self, joined: Joined, answer: Moved) -> Moved:
        if answer:
            self._wake(joined, answer.due)
        return answer

    def _wake(self, joined: Joined, due: int) -> None:
        if joined.wake(due) or due > self._runtime.clock.now() + WAKE_MS:
            return
        if joined.transaction.is_open():
            self._commits.watch(
                lambda: bool(joined.transaction.is_open()), lambda: joined.committed(due)
            )


def _schedule(request: Request) -> Callable[[Joins], Steps[list[Scheduled]]]:
    return lambda store: store.join_schedule([request])


def _move(move: Move) -> Callable[[Joins], Steps[list[Moved]]]:
    return lambda store: store.join_reschedule([move])


def _cancel(cancellation: Cancellation) -> Callable[[Joins], Steps[list[CancelResult]]]:
    return lambda store: store.join_cancel([cancellation])


class _Open(msgspec.Struct, frozen=True):
    is_open: Callable[[], bool]
    tell: Callable[[], None]
    until: int


class Commits:
    """Looks after transactions that have no hook behind their commit, until they have ended.

    It only asks the connection's own flag, and only for what is due soon; a thread lives while
    there is something to look after.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._open: list[_Open] = []
        self._pause = _PAUSES[0]
        self._looking = False

    def watch(self, is_open: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Call *tell* soon after *is_open* has become false."""
        with self._lock:
            until = self._runtime.clock.elapsed() + _WATCH_NS
            self._open.append(_Open(is_open, tell, until))
            self._pause = _PAUSES[0]
            looking, self._looking = self._looking, True
        if not looking:
            self._runtime.spawn(self._look, "tarry-joined")

    def _look(self) -> None:
        while True:
            self._runtime.nap(self._pause)
            now = self._runtime.clock.elapsed()
            with self._lock:
                self._pause = min(self._pause * 1.5, _PAUSES[1])
                ended = [one for one in self._open if one.until < now or not one.is_open()]
                self._open = [one for one in self._open if one not in ended]
                self._looking = bool(self._open)
                going_on = self._looking
            for one in ended:
                one.tell()
            if not going_on:
                return
