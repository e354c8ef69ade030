"""Answers: what each verb says it did."""

from enum import Enum

import msgspec

from tarry.task import TaskRef


class ScheduleStatus(Enum):
    """What a schedule did."""

    CREATED = "created"
    REPLACED = "replaced"
    KEPT = "kept"
    CONFLICT = "conflict"


class MoveStatus(Enum):
    """What a reschedule did."""

    ABSENT = "absent"
    RUNNING = "running"
    CONFLICT = "conflict"
    UNCHANGED = "unchanged"
    MOVED = "moved"


class CancelResult(Enum):
    """What a cancel did; true when no revision starts any more."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    ABSENT = "absent"
    CONFLICT = "conflict"
    ACCEPTED = "accepted"

    def __bool__(self) -> bool:
        return self in (CancelResult.CANCELLED, CancelResult.ACCEPTED)


class SettleResult(Enum):
    """What a settlement did; LEASE_LOST wrote nothing."""

    SETTLED = "settled"
    SUPERSEDED = "superseded"
    LEASE_LOST = "lease_lost"

    def __bool__(self) -> bool:
        return self is SettleResult.SETTLED


class RenewResult(Enum):
    """What a renewal found; CANCELLED leases are renewed too, so that their attempt can end."""

    RENEWED = "renewed"
    CANCELLED = "cancelled"
    LOST = "lost"

    def __bool__(self) -> bool:
        return self is not RenewResult.LOST


class ReviveResult(Enum):
    """What a revive did; SKIPPED: the ref waits or runs, the dead letter stays."""

    REVIVED = "revived"
    SKIPPED = "skipped"
    ABSENT = "absent"

    def __bool__(self) -> bool:
        return self is ReviveResult.REVIVED


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a schedule: the due and revision that now wait (KEPT: the old ones)."""

    ref: TaskRef
    due: int
    revision: int
    status: ScheduleStatus


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The answer to a reschedule; true when the task was moved. 0 where nothing waits."""

    ref: TaskRef
    due: int
    revision: int
    status: MoveStatus

    def __bool__(self) -> bool:
        return self.status is MoveStatus.MOVED
