"""Campaign: one way to try to break tarry's promises, done slice by slice."""

from collections.abc import Callable

import msgspec

from tarry.testing.proof.tally import Tally


class Caught(msgspec.Struct, frozen=True):
    """What caught a negative control."""

    seed: int
    rule: str
    """The rule of the ledger that fired."""


class Slice(Tally):
    """What a part of a campaign did; slices add up."""

    caught: dict[str, Caught | None] = msgspec.field(default_factory=dict)
    """The negative controls that were hunted for, by name; None got away."""

    def add(self, other: Tally) -> None:
        """Take in what another slice found."""
        super().add(other)
        if isinstance(other, Slice):
            self.caught |= other.caught


FILE = "sqlite:///tarry.db"
"""Stands for a file in a temporary folder."""

Work = Callable[[int, int, str], Tally]
"""Does so many units from a seed on, on the store at a URL."""


class Campaign(msgspec.Struct, frozen=True):
    """One way to try to break tarry's promises."""

    name: str
    """Its name on the command line."""
    unit: str
    """What it counts: histories, kills …"""
    about: str
    """What it does, in one line."""
    work: str
    """The function that does a slice, as module:name, for processes of their own to find."""
    unavailable: Callable[[str], str] = lambda _url: ""
    """Says why it cannot be run on the store at a URL, and what to install; empty if it can."""
    url: str = FILE
    """The store it is run on if none is named."""
    share: int = 1
    """How much of the time it gets, in relation to the others."""
    least: int = 1
    """The smallest slice worth its beginning and its end: the first one."""
    most: int = 1
    """The largest slice."""
    finite: bool = False
    """It has so many units and no more, numbered from 0: it runs to its end whatever the time.

    A slice that does less than it was asked for says that the end was reached.
    """
