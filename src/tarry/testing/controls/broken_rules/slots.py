"""Slots: what may follow a running attempt into the waiting slot, and what may not."""

from collections.abc import Sequence

from tarry import life as lives
from tarry.answers import ReviveResult, SettleResult
from tarry.attempt import Retry, Snooze
from tarry.life import NOTHING, Life
from tarry.request import DeadRef, Settlement
from tarry.testing.controls.broken_rules.setting import calm, mark, on
from tarry.testing.controls.control import Control
from tarry.testing.simulation import situations
from tarry.testing.simulation.medium import ForgetfulStore


class RetryOverrides(ForgetfulStore):
    """Lets a retry take the place of a newer revision that waits behind it."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Throw out what waits before a retry comes back."""
        for settlement in settlements:
            ref = settlement.lease.ref
            running = self.life_of(ref).running
            again = isinstance(settlement.outcome, Retry | Snooze)
            if again and running is not None and running.token == settlement.lease.token:
                self.put_life(ref, Life(None, running))
        return super().settle(settlements, call=call)


class SuccessorDespiteCancel(ForgetfulStore):
    """Places the next occurrence although the series was cancelled while it ran."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Forget the mark where there is a successor."""
        for settlement in settlements:
            if settlement.successor and not isinstance(settlement.outcome, Retry | Snooze):
                mark(self, settlement.lease.ref, cancelled=False)
        return super().settle(settlements, call=call)


class RevivesBehind(ForgetfulStore):
    """Revives a dead letter behind a running attempt."""

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Look at the waiting slot only."""
        del call
        answers = []
        for item in refs:
            old = lives.at(self.life_of(item.ref), self._clock.now()).life
            dead = self._dead_letter(item)
            seen = NOTHING if old.waiting is None else old
            change = lives.revive(seen, dead, self._clock.now(), self._draw)
            if dead is not None and change.answer is ReviveResult.REVIVED:
                self._drop_dead(dead)
                self.put_life(item.ref, Life(change.life.waiting, old.running))
            answers.append(change.answer)
        return answers


SLOTS: tuple[Control, ...] = (
    Control(
        "retry-overrides-newer",
        "A failed attempt comes back as a retry in the place of a newer revision.",
        "The caller scheduled the key anew while the old attempt ran, and was told CREATED. When "
        "the old one fails its retry overwrites the new task, which is lost.",
        ("lost", "stale revision"),
        on(RetryOverrides),
        calm,
    ),
    Control(
        "successor-despite-cancel",
        "The next occurrence of a series is placed although the series was cancelled.",
        "The cancel came while an occurrence ran. Settling it places the next one, and the series "
        "goes on for ever.",
        ("after cancel",),
        on(SuccessorDespiteCancel),
        situations.series,
    ),
    Control(
        "revived-behind-an-attempt",
        "A dead letter is revived while a newer revision of its key runs.",
        "The old payload takes the waiting slot, so that a retry of the newer revision has to "
        "yield to it. Reviving onto a key that waits or runs is skipped, and said.",
        ("false answer",),
        on(RevivesBehind),
        situations.revived_while_running,
    ),
)
