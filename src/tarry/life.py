"""The two-slot life of a ref: pure transitions that every store agrees with.

A ref has room for one waiting revision and one running attempt. Each function takes the life as it
is and answers with a `Change`: what the caller is told, the life afterwards, and the record that
ended on the way, if one did (a dead letter, or history where the task keeps it).

A lease that has expired has ended for every verb but `settle` and `renew`, which hold as long as
the token is still on the record: `at` is that rule, and each verb begins with it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

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
from tarry.attempt import Dead, Done, Release, Retry, Skip, Snooze
from tarry.clock import MS_PER_YEAR_9999
from tarry.due import By, resolve
from tarry.lease import Lease
from tarry.request import Cancellation, Move, OnConflict, Only, Request, Settlement
from tarry.task import Task, TaskState

A = TypeVar("A")
Draw = Callable[[], int]
"""Draws the store's next revision; called only by what is accepted."""


class Life(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of one ref, its dead letters and history aside."""

    waiting: Task | None = None
    running: Lease | None = None


class Change(msgspec.Struct, Generic[A], frozen=True):
    """The outcome of one transition."""

    answer: A
    life: Life
    ended: tuple[Task, ...] = ()


NOTHING = Life()


def ended(task: Task, state: TaskState, now: int, reason: str = "") -> Task:
    """Return *task* as the record of its own end."""
    return replace(task, state=state, ended=now, reason=reason)


def at(life: Life, now: int) -> Change[None]:
    """Return the life as callers and claims see it at *now*: an expired lease has ended.

    A cancelled attempt ends; one with a newer revision behind it yields; else the task waits again
    and counts the loss. The series of declared tasks outlives a cancelled attempt: its record waits
    again, still marked, so that a worker can place the next occurrence instead of running it.
    """
    lease = life.running
    if lease is None or lease.expires > now:
        return Change(None, life)
    if lease.cancelled and (life.waiting is not None or not lease.task.declared):
        return Change(None, Life(life.waiting), (ended(lease.task, TaskState.CANCELLED, now),))
    if life.waiting is not None:
        return Change(None, Life(life.waiting))
    task = replace(lease.task, lost=lease.task.lost + 1, state=TaskState.SCHEDULED)
    return Change(None, Life(task))


def schedule(life: Life, request: Request, now: int, draw: Draw) -> Change[Scheduled]:
    """Place *request* in the waiting slot, as its `on_conflict` and `if_revision` allow."""
    seen = at(life, now)
    life, old = seen.life, seen.life.waiting
    wanted = request.if_revision
    mode = request.on_conflict
    if wanted is not None and (old is None or old.revision != wanted):
        return _scheduled(seen, request, old, ScheduleStatus.CONFLICT)
    if old is not None and mode is OnConflict.FAIL:
        return _scheduled(seen, request, old, ScheduleStatus.CONFLICT)
    if old is not None and mode is OnConflict.KEEP:
        return _scheduled(seen, request, old, ScheduleStatus.KEPT)
    due, created = resolve(request.due, now), now
    if old is not None and mode is OnConflict.EARLIEST:
        due, created = min(old.due, due), old.created
    elif old is not None and mode is OnConflict.LATEST:
        if request.max_wait_ms is not None:
            due = min(due, old.created + request.max_wait_ms)
        due, created = max(old.due, due), old.created
    new = _inherit(_waiting(request, due, created, draw()), request, life)
    status = ScheduleStatus.CREATED if old is None else ScheduleStatus.REPLACED
    answer = Scheduled(request.ref, due, new.revision, status)
    return Change(answer, Life(new, life.running), seen.ended)


def _waiting(request: Request, due: int, created: int, revision: int) -> Task:
    return Task(
        ref=request.ref,
        due=due,
        revision=revision,
        created=created,
        payload=request.payload,
        headers=request.headers,
        rule=request.rule,
        nominal=request.nominal or (due if request.rule else 0),
        declared=request.declared,
        keep_ms=request.keep_ms,
    )


def _inherit(new: Task, request: Request, life: Life) -> Task:
    """Keep a series going: a schedule without a rule of its own takes over the one that was there.

    A caller's series that was cancelled while it ran is over: there is nothing to take over.
    """
    old = life.waiting or (life.running.task if life.running else None)
    if request.rule or old is None or not old.rule or (old.cancelled and not old.declared):
        return new
    return replace(new, rule=old.rule, nominal=old.nominal, declared=old.declared)


def _scheduled(
    seen: Change[None], request: Request, old: Task | None, status: ScheduleStatus
) -> Change[Scheduled]:
    due, revision = (old.due, old.revision) if old else (0, 0)
    return Change(Scheduled(request.ref, due, revision, status), seen.life, seen.ended)


def reschedule(life: Life, move: Move, now: int, draw: Draw) -> Change[Moved]:
    """Give the waiting revision a new due."""
    seen = at(life, now)
    old = seen.life.waiting
    if old is None:
        status = MoveStatus.ABSENT if seen.life.running is None else MoveStatus.RUNNING
        return Change(Moved(move.ref, 0, 0, status), seen.life, seen.ended)
    if move.if_revision is not None and move.if_revision != old.revision:
        return _moved(seen, old, MoveStatus.CONFLICT)
    due = _moved_due(old.due, move, now)
    if (move.only is Only.EARLIER and due >= old.due) or (
        move.only is Only.LATER and due <= old.due
    ):
        return _moved(seen, old, MoveStatus.UNCHANGED)
    nominal = old.nominal if move.nominal is None else move.nominal
    new = replace(old, due=due, revision=draw(), nominal=nominal, cancelled=False)
    life = Life(new, seen.life.running)
    return Change(Moved(move.ref, due, new.revision, MoveStatus.MOVED), life, seen.ended)


def _moved_due(old: int, move: Move, now: int) -> int:
    if isinstance(move.due, By):
        return min(max(old + move.due.shift_ms, now), MS_PER_YEAR_9999)
    return resolve(move.due, now)


def _moved(seen: Change[None], old: Task, status: MoveStatus) -> Change[Moved]:
    return Change(Moved(old.ref, old.due, old.revision, status), seen.life, seen.ended)


def cancel(life: Life, cancellation: Cancellation, now: int) -> Change[CancelResult]:
    """Empty the waiting slot and mark the attempt in flight, if there is one."""
    seen = at(life, now)
    waiting, running = seen.life.waiting, seen.life.running
    newest = waiting or (running.task if running else None)
    if newest is None:
        return Change(CancelResult.ABSENT, seen.life, seen.ended)
    if cancellation.if_revision is not None and cancellation.if_revision != newest.revision:
        return Change(CancelResult.CONFLICT, seen.life, seen.ended)
    if cancellation.only_running and running is None:
        return Change(CancelResult.CONFLICT, seen.life, seen.ended)
    gone = seen.ended
    if waiting is not None:
        gone = (*gone, ended(waiting, TaskState.CANCELLED, now))
    if running is None:
        return Change(CancelResult.CANCELLED, NOTHING, gone)
    marked = replace(running, task=replace(running.task, cancelled=True))
    return Change(CancelResult.RUNNING, Life(None, marked), gone)


def claim(waiting: Task, *, token: int, holder: str, expires: int, place: int = 0) -> Lease:
    """Turn a due waiting revision into a running attempt."""
    return Lease(
        task=replace(waiting, attempt=waiting.attempt + 1, state=TaskState.LEASED),
        token=token,
        holder=holder,
        expires=expires,
        place=place,
    )


def renew(life: Life, token: int, expires: int) -> Change[RenewResult]:
    """Extend the lease that has *token*, also past its end while nobody took it."""
    lease = life.running
    if lease is None or lease.token != token:
        return Change(RenewResult.LOST, life)
    answer = RenewResult.CANCELLED if lease.cancelled else RenewResult.RENEWED
    return Change(answer, Life(life.waiting, replace(lease, expires=expires)))


def settle(life: Life, settlement: Settlement, now: int, draw: Draw) -> Change[SettleResult]:
    """End the attempt that has the settlement's token, and record what became of it."""
    lease = life.running
    if lease is None or lease.token != settlement.lease.token:
        return Change(SettleResult.LEASE_LOST, life)
    record = _record(lease, settlement, now)
    if life.waiting is not None:
        return Change(SettleResult.SUPERSEDED, Life(life.waiting), record)
    again = None if lease.cancelled else _again(lease.task, settlement, now)
    if again is None:
        again = _successor(lease, settlement, now, draw)
    return Change(SettleResult.SETTLED, Life(again), record)


def _record(lease: Lease, settlement: Settlement, now: int) -> tuple[Task, ...]:
    """Return what is kept of an attempt that is the task's last."""
    outcome = settlement.outcome
    match outcome:
        case Done() | Skip():
            return (ended(lease.task, TaskState.DONE, now, outcome.reason),)
        case Dead():
            return (ended(lease.task, TaskState.DEAD, now, outcome.reason),)
        case Retry() | Snooze() | Release():
            if lease.cancelled:
                return (ended(lease.task, TaskState.CANCELLED, now, outcome.reason),)
            return ()
        case _:  # pragma: no cover - the type checker proves it
            assert_never(outcome)


def _again(task: Task, settlement: Settlement, now: int) -> Task | None:
    """Return the record as it waits again after *settlement*, None where it ended."""
    outcome = settlement.outcome
    task = replace(task, state=TaskState.SCHEDULED)
    match outcome:
        case Retry():
            return replace(task, due=resolve(outcome.due, now), reason=outcome.reason)
        case Snooze():
            return replace(
                task,
                due=resolve(outcome.due, now),
                attempt=task.attempt - 1,
                snoozes=task.snoozes + 1,
                reason=outcome.reason,
            )
        case Release():
            return replace(task, attempt=task.attempt - 1)
        case Done() | Skip() | Dead():
            return None
        case _:  # pragma: no cover - the type checker proves it
            assert_never(outcome)


def _successor(lease: Lease, settlement: Settlement, now: int, draw: Draw) -> Task | None:
    successor = settlement.successor
    if successor is None or (lease.cancelled and not lease.task.declared):
        return None
    return replace(
        lease.task,
        state=TaskState.SCHEDULED,
        due=max(successor.due, now),
        nominal=successor.nominal,
        created=now,
        revision=draw(),
        attempt=0,
        snoozes=0,
        lost=0,
        reason="",
        cancelled=False,
    )


def revive(life: Life, dead: Task | None, now: int, draw: Draw) -> Change[ReviveResult]:
    """Schedule a dead letter anew, due now, unless its ref waits or runs."""
    seen = at(life, now)
    if dead is None:
        return Change(ReviveResult.ABSENT, seen.life, seen.ended)
    if seen.life != NOTHING:
        return Change(ReviveResult.SKIPPED, seen.life, seen.ended)
    fresh = replace(
        dead,
        state=TaskState.SCHEDULED,
        due=now,
        created=now,
        revision=draw(),
        attempt=0,
        snoozes=0,
        lost=0,
        reason="",
        rule="",
        nominal=0,
        declared=False,
        cancelled=False,
        ended=0,
    )
    return Change(ReviveResult.REVIVED, Life(fresh), seen.ended)


def take_over(life: Life, task: Task, now: int, draw: Draw, *, over: bool) -> Change[bool]:
    """Place a waiting task as another store had it, unless one waits here and *over* is false."""
    seen = at(life, now)
    if seen.life.waiting is not None and not over:
        return Change(False, seen.life, seen.ended)  # noqa: FBT003 - the answer
    new = replace(task, revision=draw(), state=TaskState.SCHEDULED, cancelled=False, ended=0)
    return Change(True, Life(new, seen.life.running), seen.ended)  # noqa: FBT003 - the answer


def view(life: Life, now: int) -> Task | None:
    """Return what `get` shows of a life: the waiting revision, else the running one."""
    life = at(life, now).life
    if life.waiting is not None:
        return life.waiting
    return life.running.task if life.running else None
