"""Client: schedule, reschedule, cancel, look up; what stands between callers and a store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from tarry.answers import CancelResult, Moved, MoveStatus, ReviveResult, Scheduled, ScheduleStatus
from tarry.due import At
from tarry.errors import (
    ConflictError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from tarry.recurrence import Rule
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Request
from tarry.runtime import Runtime
from tarry.stores.store import CHUNK, CHUNK_BYTES, Store
from tarry.task import Task, TaskRef, TaskState

T = TypeVar("T")
R = TypeVar("R")
_NS = 1_000_000


class Client:
    """Says to a store what callers want, in bounded chunks, repeating what got no reply."""

    def __init__(self, store: Store, runtime: Runtime, *, retry_for_ms: int = 10_000) -> None:
        self.store = store
        self._runtime = runtime
        self._retry_for_ms = retry_for_ms

    def schedule(self, requests: Sequence[Request]) -> list[Scheduled]:
        """Schedule each request; the answers tell of conflicts."""
        return self._send(self.store.schedule, requests)

    def reschedule(self, moves: Sequence[Move]) -> list[Moved]:
        """Move each task."""
        return self._send(self.store.reschedule, moves)

    def cancel(self, cancellations: Sequence[Cancellation]) -> list[CancelResult]:
        """Cancel each task."""
        return self._send(self.store.cancel, cancellations)

    def revive(self, refs: Sequence[DeadRef]) -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""
        return self._send(self.store.revive, refs)

    def purge(self, refs: Sequence[DeadRef]) -> list[bool]:
        """Delete dead letters; says which were there."""
        return self._send(self.store.purge, refs)

    def take_over(self, tasks: Sequence[Task], *, replace: bool = False) -> list[bool]:
        """Place what another store has shown; says which were placed."""
        return self._send(partial(self.store.take_over, replace=replace), tasks)

    def pause(self, kind: str, *, paused: bool) -> bool:
        """Stop (or resume) claims of *kind*; says whether it was paused before."""
        pause: Callable[..., bool] = self.store.pause
        return self._once(partial(pause, kind, paused))

    def get(self, ref: TaskRef) -> Task | None:
        """Return the task as it is now."""
        if self.store.capabilities.remembers_calls:
            return self._repeat(lambda: self.store.get([ref]))[0]
        return self.store.get([ref])[0]

    def skip(self, cancellation: Cancellation) -> CancelResult:
        """Cancel one task; of a series that belongs to the code only the next occurrence.

        Between the look and the deed the attempt may end and the next occurrence take its place:
        what is done is done to the revision that was seen, or there is another look.
        """
        task = self.get(cancellation.ref)
        if task is None or task.ended:
            return CancelResult.ABSENT
        wanted = cancellation.if_revision
        if wanted is not None and wanted != task.revision:
            return CancelResult.CONFLICT
        # First what runs, of which a look shows nothing where something waits behind it.
        seen = Cancellation(cancellation.ref, task.revision, only_running=task.declared)
        [answer] = self.cancel([seen])
        if task.declared and task.state is TaskState.SCHEDULED:
            if answer is CancelResult.RUNNING:
                self._go_on(task)
            elif answer is CancelResult.CONFLICT:
                return self._move_on(cancellation, task)
        return self.skip(cancellation) if answer is CancelResult.CONFLICT else answer

    def _move_on(self, cancellation: Cancellation, task: Task) -> CancelResult:
        """Skip an occurrence that waits while none runs: it becomes the one after it."""
        following = self._following(task)
        if following is None:
            return self.cancel([cancellation])[0]
        move = Move(task.ref, At(following), if_revision=task.revision, nominal=following)
        [moved] = self.reschedule([move])
        if moved.status is MoveStatus.MOVED:
            return CancelResult.CANCELLED
        return self.skip(cancellation)

    def _go_on(self, task: Task) -> None:
        """Place the occurrence after one that was cancelled behind a running attempt.

        If that is an occurrence itself, its end will.
        """
        left = self.get(task.ref)
        if left is not None and left.declared and not left.ended:
            return
        following = self._following(task)
        if following is not None:
            request = Request(
                task.ref,
                At(following),
                task.payload,
                task.headers,
                OnConflict.KEEP,
                rule=task.rule,
                nominal=following,
                declared=True,
                keep_ms=task.keep_ms,
            )
            self.schedule([request])

    def _following(self, task: Task) -> int | None:
        """Return the occurrence after the one that a task is."""
        return Rule.parse(task.rule).next(task.nominal, max(task.nominal, self._now()))

    def _now(self) -> int:
        """Ask for the store's time: by a claim of nothing."""
        claim = partial(self.store.claim, [], limit=0, lease_ms=1, holder="")
        answer = self._repeat(claim) if self.store.capabilities.remembers_calls else claim()
        return answer.now

    def run_now(self, ref: TaskRef) -> Moved:
        """Make a waiting task due now, or revive a dead one."""
        [moved] = self.reschedule([Move(ref, At(0))])
        if moved.status is not MoveStatus.ABSENT:
            return moved
        [revived] = self.revive([DeadRef(ref)])
        if not revived:
            return moved
        task = self.get(ref)
        due, revision = (task.due, task.revision) if task else (0, 0)
        return Moved(ref, due, revision, MoveStatus.MOVED)

    def _send(self, write: Callable[..., list[T]], items: Sequence[object]) -> list[T]:
        """Send *items* chunk by chunk; an error carries the answers so far."""
        if len(items) == 1:
            return self._persist(write, items)
        answers: list[T] = []
        for chunk in chunks(items, self.store.capabilities.chunk):
            try:
                answers += self._persist(write, chunk)
            except StoreError as error:
                error.answers = [*answers, *error.answers]
                raise
        return answers

    def _persist(self, write: Callable[..., list[T]], items: Sequence[object]) -> list[T]:
        return self._once(partial(write, items))

    def _once(self, write: Callable[..., R]) -> R:
        """Write; a repeat has the same id, so that it changes nothing."""
        if not self.store.capabilities.remembers_calls:
            return write()
        # Drawn anew each time: a forked process must not repeat the calls of its parent.
        call = f"{self._runtime.unique(96):024x}"
        try:
            return self._repeat(lambda: write(call=call))
        except StoreBusyError:
            raise
        except StoreUnavailableError as error:
            message = f"no answer for {self._retry_for_ms / 1_000:g} s: {error}"
            raise UnknownOutcomeError(message, answers=error.answers) from error

    def _repeat(self, ask: Callable[[], R]) -> R:
        """Repeat what got no reply for as long as that is allowed.

        What one of the tries was answered stands, however the last of them ends.
        """
        clock = self._runtime.clock
        deadline = clock.elapsed() + self._retry_for_ms * _NS
        pause = 0.01
        known: list[object] = []
        while True:
            try:
                return ask()
            except StoreUnavailableError as error:
                known = error.answers = max(known, error.answers, key=len)
                if clock.elapsed() + pause * 1e9 > deadline:
                    raise
            self._runtime.nap(pause)
            pause = min(pause * 2, 1.0)


def chunks(items: Sequence[T], most: int = CHUNK) -> Iterator[Sequence[T]]:
    """Cut a batch into parts that no medium is blocked by."""
    start, size = 0, 0
    for place, item in enumerate(items):
        weight = len(item.payload) if isinstance(item, Request | Task) else 0
        if place > start and (place - start == most or size + weight > CHUNK_BYTES):
            yield items[start:place]
            start, size = place, 0
        size += weight
    if start < len(items):
        yield items[start:]


def accepted(answers: Iterable[Scheduled]) -> list[Scheduled]:
    """Return the answers, or raise if one of them is a conflict."""
    answers = list(answers)
    for answer in answers:
        if answer.status is ScheduleStatus.CONFLICT:
            there = f"revision {answer.revision} waits" if answer.revision else "nothing waits"
            message = f"{answer.ref} was not scheduled: {there}; what was there is unchanged"
            raise ConflictError(message, answers=answers)
    return answers
