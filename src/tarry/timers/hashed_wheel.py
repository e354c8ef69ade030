"""HashedWheel: one ring of slots and a rounds counter: the way of Netty and the ring queues.

A hand goes round a ring of slots, one slot per tick. A timer that is due 70 ticks ahead on a ring
of 60 slots lies 10 slots ahead of the hand with 1 round to go: whenever the hand leaves its slot,
a round is over, and it fires when the hand comes by with none left.

    a ring of 4 slots, tick 10, now 25: the hand is at tick 2, in slot 2
    arm(47)       tick 4 is 2 ahead of the hand: slot 0, 0 rounds
    arm(75)       tick 7 is 5 ahead: slot 3, 1 round
    advance(72)   the hand goes to tick 7; it left slot 0 once: 47 fires; it left slot 3 once: the
                  round of 75 is over, and it waits in the slot of the hand until it is 75

What goes wrong in many of its kind is left to arithmetic here: after a late tick or a long pause
the hand moves by any number of ticks at once and counts the rounds that went by; a timer of the
hand's own tick is compared with *now* itself, so that nothing is early, and nothing waits for the
next tick or for a whole round.

Arm and disarm are O(1). The price: the hand looks at every timer of a slot, those of later rounds
too, and nobody knows the next due without looking at all of them.
"""

from collections.abc import Callable
from typing import cast

from tarry.timers.running import Running
from tarry.timers.stepwise import StepwiseTimer, StepwiseTimers, turn_of
from tarry.timers.timers import V


class RoundsTimer(StepwiseTimer[V]):
    """A timer that counts how often the hand has to come by."""

    __slots__ = ("_rounds",)

    _rounds: int


class HashedWheel(StepwiseTimers[V]):
    """Timers in a ring of slots; arm and disarm in O(1), `next_due` in O(n)."""

    __slots__ = ("_hand", "_late", "_late_until", "_ring", "_stirred", "_tick")

    def __init__(
        self,
        now: int = 0,
        *,
        tick: int = 10_000_000,
        slots: int = 512,
        clock: Callable[[], int] | None = None,
        timer: type[RoundsTimer[V]] = RoundsTimer,
    ) -> None:
        if tick < 1 or slots < 1:
            raise ValueError("a wheel has at least one slot, and a tick of at least 1 ns")
        super().__init__(clock=clock, timer=timer)
        self._tick = tick
        self._hand = now // tick
        self._ring: list[dict[int, RoundsTimer[V]]] = [{} for _ in range(slots)]
        self._late: Running[V] = Running()
        self._late_until = now
        self._stirred = False

    def _put(self, timer: StepwiseTimer[V]) -> None:
        mine = cast("RoundsTimer[V]", timer)
        ahead = max(mine._due // self._tick - self._hand, 0)
        mine._rounds, away = divmod(ahead, len(self._ring))
        slot = self._ring[(self._hand + away) % len(self._ring)]
        slot[mine._order] = mine
        mine._home = slot
        self._stirred = self._stirred or not ahead

    def _take_out(self, timer: StepwiseTimer[V]) -> None:
        del timer._home[timer._order]

    def _pop(self, now: int) -> StepwiseTimer[V] | None:
        if self._stirred or now != self._late_until:
            self._turn(now)
        first = self._late.head()
        if first is None or first._due > now:
            return None
        self._late.pop()
        return first

    def _first(self) -> StepwiseTimer[V]:
        late = self._late.head()
        found = [timer for slot in self._ring for timer in slot.values()]
        return min(found if late is None else [late, *found], key=turn_of)

    def _turn(self, now: int) -> None:
        """Move the hand to the tick of *now*, and gather what became due on the way."""
        ring, size = self._ring, len(self._ring)
        passed = max(now // self._tick - self._hand, 0)
        for offset in range(min(passed, size)):
            # The hand left this slot so often on its way.
            self._leave((self._hand + offset) % size, times=-(-(passed - offset) // size))
        self._hand += passed
        hand = ring[self._hand % size]
        for timer in list(hand.values()):
            if timer._due <= now and timer._rounds == 0:
                del hand[timer._order]
                self._late.put(timer)
        self._late_until, self._stirred = now, False

    def _leave(self, index: int, times: int) -> None:
        stays: dict[int, RoundsTimer[V]] = {}
        for order, timer in self._ring[index].items():
            if timer._rounds < times:
                self._late.put(timer)
            else:
                timer._rounds -= times
                timer._home = stays
                stays[order] = timer
        self._ring[index] = stays
