"""What callers and handlers may ask for besides a due, ignored: one thing at a time."""

import random
from collections.abc import Sequence

from msgspec.structs import replace

from tarry.answers import Moved, Scheduled, SettleResult
from tarry.attempt import AnyOutcome, Dead
from tarry.clock import Clock
from tarry.request import DeadRef, Move, Request, Settlement
from tarry.stores.store import Capabilities
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, situations
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.worker.run import Attempt
from tarry.worker.worker import Worker


def _on(store: type[ForgetfulStore]) -> Bench:
    """Return a bench whose medium is a *store*."""

    def make(clock: Clock, dice: random.Random, able: Capabilities) -> ForgetfulStore:
        return store(clock=clock, rng=dice, capabilities=able)

    return Bench(store=make)


class EndsDeclared(ForgetfulStore):
    """Lets a declared series end with the occurrence that was cancelled while it ran."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Place no next occurrence after one that was cancelled."""
        return super().settle([self._without_next(one) for one in settlements], call=call)

    def _without_next(self, settlement: Settlement) -> Settlement:
        running = self.life_of(settlement.lease.ref).running
        marked = running is not None and running.cancelled
        return replace(settlement, successor=None) if marked else settlement


class NeverAbandons(Worker):
    """Waits for plain handlers for as long as they take."""

    def _limit(self, attempt: Attempt, seconds: float) -> None:
        """Set no limit."""


class RunsExpired(Worker):
    """Attempts what should have been dropped."""

    def _gate(self, attempt: Attempt, now: int) -> AnyOutcome | None:
        refused = super()._gate(attempt, now)
        if isinstance(refused, Dead) and refused.reason.startswith("expired"):
            attempt.started = True
            attempt.began = now
            return None
        return refused


class MovesAnyRevision(ForgetfulStore):
    """Moves what waits, whichever revision the caller had in mind."""

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move without comparing."""
        return super().reschedule([replace(move, if_revision=None) for move in moves], call=call)


class PurgesInSilence(ForgetfulStore):
    """Says that there was nothing to purge."""

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Purge, and deny it."""
        return [False for _ in super().purge(refs, call=call)]


class PutsOffForEver(ForgetfulStore):
    """Puts a task off as often as it is asked to."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule without a limit to the wait."""
        return super().schedule([replace(one, max_wait_ms=None) for one in requests], call=call)


BROKEN_TERMS = (
    Control(
        "cancel-ends-a-declared-series",
        "A cancel while an occurrence runs ends the series that the code declares.",
        "Nobody places it again before the next start of a worker: the nightly report is gone for "
        "weeks because somebody stopped it once. What the code declares goes on: a cancel takes "
        "one occurrence away.",
        ("lost",),
        _on(EndsDeclared),
        situations.declared_series,
    ),
    Control(
        "time-out-ignored",
        "A handler that takes longer than its time-out is waited for.",
        "One call that hangs holds its slot for good, and its task is neither done nor retried. An "
        "attempt that has used up its time has failed.",
        ("overtime",),
        Bench(worker=NeverAbandons),
        situations.overtime,
    ),
    Control(
        "revision-not-compared",
        "A move acts on whatever waits, also if the caller named a revision.",
        "The caller had looked at one task and decided to move that one; meanwhile somebody put "
        "another in its place, which is moved instead, and nobody is told of a conflict.",
        ("false answer",),
        _on(MovesAnyRevision),
        situations.named_revisions,
    ),
    Control(
        "purge-denied",
        "A purge deletes a dead letter and says that there was none.",
        "Who asked goes on looking for what is gone for good. What cannot be undone must not be "
        "answered with a guess.",
        ("false answer", "lost"),
        _on(PurgesInSilence),
        situations.purged,
    ),
    Control(
        "put-off-for-ever",
        "Each new event puts the task off once more, however long it has waited.",
        "While events keep coming the task never runs, and they come fastest when it matters most. "
        "A debounce has a longest wait, counted from when the task was made.",
        ("false answer",),
        _on(PutsOffForEver),
        situations.debounced,
    ),
    Control(
        "expired-and-attempted",
        "What is later than it may be is attempted all the same.",
        "The offer has ended, the courier has left: what came too late to be of use was to be "
        "dropped, with its reason, and not to be done.",
        ("after expiry",),
        Bench(worker=RunsExpired),
        situations.expired,
    ),
)
