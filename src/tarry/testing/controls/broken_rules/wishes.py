"""Wishes: what was asked for is what is done, and what is given up is kept."""

from collections.abc import Sequence

from msgspec.structs import replace

from tarry.answers import Moved, Scheduled, SettleResult
from tarry.attempt import Dead, Done, Retry, Snooze
from tarry.due import In
from tarry.request import Move, Request, Settlement
from tarry.testing.controls.broken_rules.setting import calm, on
from tarry.testing.controls.control import Control
from tarry.testing.simulation.medium import ForgetfulStore


class IgnoresDelays(ForgetfulStore):
    """Lets everything be due at once, and says so."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule for now."""
        return super().schedule([replace(one, due=In(0)) for one in requests], call=call)

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move to now."""
        return super().reschedule([replace(one, due=In(0)) for one in moves], call=call)


class IgnoresBackoff(ForgetfulStore):
    """Attempts what failed or was snoozed again at once."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take the delay out of every retry."""
        return super().settle([self._at_once(one) for one in settlements], call=call)

    def _at_once(self, settlement: Settlement) -> Settlement:
        outcome = settlement.outcome
        if not isinstance(outcome, Retry | Snooze):
            return settlement
        return replace(settlement, outcome=type(outcome)(In(0), outcome.reason))


class KeepsOldPayload(ForgetfulStore):
    """Gives a task that is replaced its new due and a new revision, and leaves its payload."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule with the payload that waits already."""
        return super().schedule([self._as_before(one) for one in requests], call=call)

    def _as_before(self, request: Request) -> Request:
        old = self.life_of(request.ref).waiting
        return request if old is None else replace(request, payload=old.payload)


class DropsDeadLetters(ForgetfulStore):
    """Deletes what is given up."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take a dead letter for something that is done."""
        return super().settle(
            [
                replace(one, outcome=Done()) if isinstance(one.outcome, Dead) else one
                for one in settlements
            ],
            call=call,
        )


class ExpiresAnything(ForgetfulStore):
    """Gives up what is done as if it had come too late."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take what is done for a dead letter."""
        return super().settle(
            [
                replace(one, outcome=Dead("expired: late"))
                if isinstance(one.outcome, Done)
                else one
                for one in settlements
            ],
            call=call,
        )


WISHES: tuple[Control, ...] = (
    Control(
        "delay-ignored",
        "The medium takes every task for due now, and says so in its answer.",
        "Whoever believes the medium's own word finds nothing wrong: it acts as it says. It is "
        "early by what was asked for. A delay is judged by the caller's wish, not by the answer.",
        ("early",),
        on(IgnoresDelays),
        calm,
    ),
    Control(
        "backoff-ignored",
        "A retry comes back at once, whatever delay it was to have.",
        "The service that failed is called again within a millisecond, by everybody: the backoff "
        "was there to give it time.",
        ("early",),
        on(IgnoresBackoff),
        calm,
    ),
    Control(
        "old-payload-kept",
        "A replace moves the task and keeps the old payload.",
        "The due is right, the revision is new, and the handler acts on what the caller had "
        "taken back. The last accepted schedule is the one that runs: all of it.",
        ("stale revision",),
        on(KeepsOldPayload),
        calm,
    ),
    Control(
        "dead-letter-dropped",
        "What is given up is deleted.",
        "The attempt ended, the worker was told that this was recorded, and nobody can ever find "
        "out what was not done. What is given up becomes a dead letter, with its reason.",
        ("lost",),
        on(DropsDeadLetters),
        calm,
    ),
    Control(
        "expired-for-no-reason",
        "What is done becomes a dead letter that says it came too late.",
        "The task was on time, and would have been attempted however late it was: nobody had "
        "asked that it expire. A dead letter has the reason for which it was given up.",
        ("dead without cause",),
        on(ExpiresAnything),
        calm,
    ),
)
