"""Waking up: in time, and not for nothing."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tarry.engine.wakeup import Wakeup
from tarry.stores.store import Claimed
from tarry.testing.controls.broken_rules.setting import on
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, situations
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.worker.worker import Worker


class PausedIsDue(ForgetfulStore):
    """Counts a paused kind in the next due."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Tell of what cannot be had."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        return replace(claimed, next_due=self._next_due(list(kinds)))


class MutedByAnotherKind(ForgetfulStore):
    """Wakes nobody while something of whatever kind is due earlier."""

    def _wake(self, due: int | None, now: int) -> None:
        firsts = [lane.first() for lane in self._lanes.values()]
        if due is None or not any(first is not None and first < due for first in firsts):
            super()._wake(due, now)


class NeverBacksOff(Wakeup):
    """Claims again at once when a claim came back empty although something is due."""

    def after(self, claimed: Claimed, *, full: bool) -> int:
        """Never wait for what is due."""
        pause = super().after(claimed, full=full)
        due = claimed.next_due is not None and claimed.next_due <= claimed.now
        return 0 if due else pause


class DeafWhileClaiming(Wakeup):
    """Hears no wake-up while a claim is under way."""

    def matters(self, due: int) -> bool:
        """Listen only in one's sleep."""
        return self.wakes_at is not None and super().matters(due)


class SpinningWorker(Worker):
    """A worker that never backs off."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._wakeup = NeverBacksOff()


class DeafWorker(Worker):
    """A worker that is deaf while it claims."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._wakeup = DeafWhileClaiming()


WAKING: tuple[Control, ...] = (
    Control(
        "paused-kind-is-due",
        "The next due of a claim counts kinds that are paused.",
        "Something is due and cannot be had: the worker asks again and again for as long as the "
        "kind is paused.",
        ("spin",),
        on(PausedIsDue),
        situations.paused,
    ),
    Control(
        "no-backoff",
        "A claim that came back empty although something is due is made again at once.",
        "Another worker holds the row for a moment. Until it lets go the others spin, and load the "
        "medium so that it lets go later.",
        ("spin",),
        Bench(worker=SpinningWorker),
        situations.contended,
    ),
    Control(
        "muted-by-another-kind",
        "A wake-up is left out because something else is due earlier: of another kind.",
        "The worker that would wake up for the other kind is not the one that this kind needs. "
        "Until it looks by itself, the task is late.",
        ("late",),
        on(MutedByAnotherKind),
        situations.two_crews,
    ),
    Control(
        "wake-up-lost-in-a-claim",
        "A wake-up that arrives while a claim is under way is dropped.",
        "The claim had looked just before the task was placed. It comes back empty, the worker "
        "goes to sleep, and the wake-up is gone.",
        ("late",),
        Bench(worker=DeafWorker),
        situations.pairs,
    ),
)
