"""Lease: the exclusive, expiring right to attempt a task."""

import msgspec

from tarry.task import Task, TaskRef


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right of *holder* to attempt *task* until *expires*, by the store's clock.

    The token is unique to this lease and stays the same when it is renewed: who no longer has the
    newest token of a task can neither settle nor renew. `place` is the store's own note of where
    the record lies; nothing else reads it.
    """

    task: Task
    token: int
    holder: str
    expires: int
    place: int = 0

    @property
    def ref(self) -> TaskRef:
        """The task's name."""
        return self.task.ref

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was cancelled."""
        return self.task.cancelled
