"""Calls: what got no answer is repeated, and acts once."""

from collections.abc import Sequence

from tarry.answers import CancelResult, Moved, Scheduled
from tarry.request import Cancellation, Move, Request
from tarry.testing.controls.broken_rules.setting import network, on
from tarry.testing.controls.control import Control
from tarry.testing.simulation import situations
from tarry.testing.simulation.medium import ForgetfulStore

_SHORT_MS = 100


class ForgottenSchedules(ForgetfulStore):
    """Applies a repeated schedule again."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule without an id."""
        del call
        return super().schedule(requests)


class ForgottenMoves(ForgetfulStore):
    """Applies a repeated move again."""

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move without an id."""
        del call
        return super().reschedule(moves)


class ForgottenCancels(ForgetfulStore):
    """Applies a repeated cancel again."""

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel without an id."""
        del call
        return super().cancel(cancellations)


class ShortMemory(ForgetfulStore):
    """Remembers a call only as long as its caller usually waits: a late first try acts again."""

    def _forget_calls(self, now: int) -> None:
        self._calls = {k: v for k, v in self._calls.items() if v[0] > now - _SHORT_MS}


CALLS: tuple[Control, ...] = (
    Control(
        "schedule-applied-twice",
        "The medium does not remember schedules, so a repeat places the task again.",
        "The reply to a schedule is lost, the task runs, the caller repeats: it runs once more, or "
        "comes back after a cancel that had said yes.",
        ("after cancel", "unasked", "stale revision", "lost"),
        on(ForgottenSchedules),
        network,
    ),
    Control(
        "move-applied-twice",
        "The medium does not remember moves, so a repeat moves the task again.",
        "A move that arrives twice draws two revisions, and the second one undoes what was "
        "accepted in between.",
        ("unasked", "stale revision", "after cancel"),
        on(ForgottenMoves),
        network,
    ),
    Control(
        "cancel-applied-twice",
        "The medium does not remember cancels, so a repeat cancels again.",
        "Between the two tries somebody schedules the key anew and is told that it was accepted; "
        "the second try takes the new task away.",
        ("lost",),
        on(ForgottenCancels),
        situations.unheard_cancel,
    ),
    Control(
        "late-first-try",
        "Calls are remembered, but not for long enough: a first try that was held up acts again.",
        "The network may deliver the first try after its repeat was answered. If the medium has "
        "forgotten the call by then, it acts a second time, long after the caller went on.",
        ("lost", "after cancel", "unasked", "stale revision"),
        on(ShortMemory),
        network,
    ),
)
