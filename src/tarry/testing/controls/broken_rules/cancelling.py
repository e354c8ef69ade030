"""Cancelling: nothing is attempted after it, and the answer says what is under way."""

from collections.abc import Sequence

from tarry.answers import CancelResult, SettleResult
from tarry.attempt import Retry, Snooze
from tarry.request import Cancellation, Settlement
from tarry.testing.controls.broken_rules.setting import calm, mark, on
from tarry.testing.controls.control import Control
from tarry.testing.simulation import situations
from tarry.testing.simulation.medium import ForgetfulStore


class SaysCancelled(ForgetfulStore):
    """Says CANCELLED although an attempt is under way."""

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Give the better answer."""
        answers = super().cancel(cancellations, call=call)
        return [
            CancelResult.CANCELLED if answer is CancelResult.RUNNING else answer
            for answer in answers
        ]


class RetriesCancelled(ForgetfulStore):
    """Retries an attempt that failed although it was cancelled."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Forget the mark where a retry is asked for."""
        for settlement in settlements:
            if isinstance(settlement.outcome, Retry | Snooze):
                mark(self, settlement.lease.ref, cancelled=False)
        return super().settle(settlements, call=call)


class ReclaimsCancelled(ForgetfulStore):
    """Makes a cancelled task claimable again when its worker is gone."""

    def _reclaim(self, kinds: list[str], now: int) -> None:
        for ref, life in self.lives():
            if life.running is not None and life.running.expires <= now:
                mark(self, ref, cancelled=False)
        super()._reclaim(kinds, now)


CANCELLING: tuple[Control, ...] = (
    Control(
        "cancelled-while-running",
        "Cancel says CANCELLED although an attempt is under way.",
        "The worker holds the lease already and starts the handler a millisecond after the caller "
        "was told that nothing would start any more. The honest answer is RUNNING.",
        ("after cancel", "false answer"),
        on(SaysCancelled),
        calm,
    ),
    Control(
        "cancelled-is-retried",
        "An attempt that was cancelled while it ran is retried when it fails.",
        "Cancel answered RUNNING: this attempt could no longer be stopped. But nothing may be "
        "attempted after it, and a retry is an attempt.",
        ("after cancel",),
        on(RetriesCancelled),
        calm,
    ),
    Control(
        "cancelled-is-reclaimed",
        "A cancelled task whose worker died is taken back and attempted again.",
        "The mark of the cancel must outlive the worker: it belongs to the record, not to the "
        "process that was told.",
        ("after cancel",),
        on(ReclaimsCancelled),
        situations.cancelled_and_lost,
    ),
)
