"""The ledger: what really happened, entry by entry, outside of the store; and its checker (pure).

The order of entries is the order of events: an operation is entered when it is asked, before it
leaves the caller, and again when its answer is in the caller's hands. One without an answer may
have happened or not, and at any later time. Two operations whose spans overlap were concurrent:
whatever either order of them explains is legal.
"""

from tarry.testing.ledger.book import Book
from tarry.testing.ledger.check import RULES, check
from tarry.testing.ledger.earliest import Asking, earliest
from tarry.testing.ledger.entries import (
    Answered,
    Asked,
    Drained,
    Entry,
    Failed,
    Finished,
    Left,
    Settled,
    Started,
    Violation,
)
from tarry.testing.ledger.notes import Notes

__all__ = [
    "RULES",
    "Answered",
    "Asked",
    "Asking",
    "Book",
    "Drained",
    "Entry",
    "Failed",
    "Finished",
    "Left",
    "Notes",
    "Settled",
    "Started",
    "Violation",
    "check",
    "earliest",
]
