"""Orchestra: campaigns share a budget of time and a crew of processes; slice by slice."""

import select
from collections.abc import Callable, Sequence
from pathlib import Path

from tarry.clock import SYSTEM
from tarry.testing.proof.campaign import Campaign, Slice
from tarry.testing.proof.crew import Hand, Order
from tarry.testing.proof.tally import Broken

_TICK_SECONDS = 0.1
_SLICE_NS = 2_000_000_000
"""How long a slice should take: short enough to end with the budget, long enough to be worth it."""
PATIENCE_NS = 300_000_000_000
"""A slice that takes longer hangs."""


class Part:
    """What one campaign plays: how far it is, and what it found."""

    def __init__(self, campaign: Campaign, first: int, url: str) -> None:
        self.campaign = campaign
        self.url = url
        self.done = Slice()
        self.spent = 0
        """Nanoseconds that its slices took, all processes together."""
        self._next = 0 if campaign.finite else first
        self._given = 0
        self._over = False

    def goes_on(self, *, time_left: bool) -> bool:
        """Say whether there is a slice to be given out: one at least, if time is up."""
        return not self._over and (time_left or self.campaign.finite or not self._given)

    def order(self) -> Order:
        """Return the next slice to be done."""
        campaign, spent = self.campaign, self.spent
        rate = self.done.tried / spent if spent else 0
        count = min(campaign.most, max(campaign.least, int(rate * _SLICE_NS)))
        order = Order(campaign.work, self._next, count, self.url)
        self._next += count
        self._given += 1
        return order

    def take(self, order: Order, found: Slice, took: int) -> None:
        """Take in what a slice did."""
        self.done.add(found)
        self.spent += took
        self._over |= self.campaign.finite and found.tried < order.count

    def busy(self, under_way: int) -> float:
        """Return how much of its share it had, with what is *under_way*."""
        return (self.spent + under_way) / self.campaign.share


class Orchestra:
    """Plays campaigns until the budget is spent, and every one of them at least once."""

    def __init__(
        self, parts: Sequence[Part], *, budget_ms: int, processes: int, folder: Path
    ) -> None:
        self.parts = parts
        self._budget = budget_ms * 1_000_000
        self._folder = folder
        self._processes = processes
        self._crew: list[Hand] = []
        self._idle: list[Hand] = []
        self._at_work: dict[Hand, tuple[Part, Order]] = {}
        self._began = SYSTEM.elapsed()

    def elapsed(self) -> int:
        """Return for how many nanoseconds it has played."""
        return SYSTEM.elapsed() - self._began

    def play(self, tick: Callable[[], None]) -> None:
        """Play to the end; calls *tick* about ten times a second. No process outlives it."""
        try:
            self._idle = [self._hire() for _ in range(self._processes)]
            while self._hand_out() or self._at_work:
                ready, _, _ = select.select(list(self._at_work), [], [], _TICK_SECONDS)
                for hand in ready:
                    self._take(hand)
                self._give_up_on_the_hung()
                tick()
        finally:
            for hand in self._crew:
                hand.end()

    def _hand_out(self) -> bool:
        """Give every idle process a slice; says whether there was one to be given."""
        time_left = self.elapsed() < self._budget
        while self._idle:
            waiting = [part for part in self.parts if part.goes_on(time_left=time_left)]
            if not waiting:
                return False
            part = min(waiting, key=self._had)
            hand = self._idle.pop()
            order = part.order()
            self._at_work[hand] = part, order
            hand.give(order)
        return True

    def _had(self, part: Part) -> float:
        now = SYSTEM.elapsed()
        under_way = sum(now - hand.began for hand, (of, _) in self._at_work.items() if of is part)
        return part.busy(under_way)

    def _take(self, hand: Hand) -> None:
        """Take what a process has done; a dead one is replaced."""
        part, order = self._at_work.pop(hand)
        took = SYSTEM.elapsed() - hand.began
        found = hand.take()
        if found is None:
            found = _lost("crashed", order, f"its process ended with {hand.end()}")
            hand = self._hire()
        part.take(order, found, took)
        self._idle.append(hand)

    def _hire(self) -> Hand:
        hand = Hand(self._folder)
        self._crew.append(hand)
        return hand

    def _give_up_on_the_hung(self) -> None:
        now = SYSTEM.elapsed()
        for hand in [hand for hand in self._at_work if now - hand.began > PATIENCE_NS]:
            part, order = self._at_work.pop(hand)
            hand.end()
            part.take(order, _lost("hung", order, "it does not come to an end"), now - hand.began)
            self._idle.append(self._hire())


def _lost(rule: str, order: Order, said: str) -> Slice:
    return Slice(broken=[Broken(rule, f"{order.count} from {order.first} on: {said}")])
