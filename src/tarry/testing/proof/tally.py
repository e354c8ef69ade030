"""Tally: what a campaign tried and what it found; tallies add up."""

from collections.abc import Iterable

import msgspec


class Broken(msgspec.Struct, frozen=True):
    """A promise that was not kept, and how to see it again."""

    rule: str
    """The rule of the ledger that fired: lost, early, …"""
    said: str
    """What happened, in one line."""
    replay: str = ""
    """The one command that shows it again; empty where chance cannot be repeated."""


class Tally(msgspec.Struct):
    """What one campaign, or one slice of it, did."""

    tried: int = 0
    """How many of its units (histories, kills, cuts …) were done."""
    counts: dict[str, int] = {}
    """Everything else worth counting: tasks acknowledged, attempts started, faults by kind …"""
    broken: list[Broken] = []

    def add(self, other: "Tally") -> None:
        """Take in what another slice found."""
        self.tried += other.tried
        self.count(other.counts.items())
        self.broken += other.broken

    def count(self, pairs: Iterable[tuple[str, int]]) -> None:
        """Add to the counts."""
        for name, number in pairs:
            self.counts[name] = self.counts.get(name, 0) + number
