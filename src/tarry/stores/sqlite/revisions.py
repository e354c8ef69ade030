"""Revisions: numbers that grow with every accepted change, over all processes and for ever.

A store draws a block of numbers and uses it up while nobody else draws one, so that most
transactions write no counter. Whoever finds another owner on the counter starts a new block above
it: numbers handed out in order of commits never fall back.
"""

import os
import sqlite3
from collections.abc import Callable

from tarry.stores.sqlite.record import SQL

_BLOCK = 1_000


class Revisions:
    """Draws revisions inside write transactions; its callers hold the write lock.

    Each process owns blocks of its own: a forked child must not use up its parent's.
    """

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._pid = os.getpid()
        self._stale = True
        self._next = 1
        self._last = 0

    def draw(self, db: sqlite3.Connection, count: int) -> range:
        """Return *count* new revisions."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._owner = int.from_bytes(os.urandom(8)) >> 2
        upto, owner = db.execute(SQL["block"]).fetchone()
        stale, self._stale = self._stale, False
        if (
            stale
            or owner != self._owner
            or upto != self._last
            or self._next + count > self._last + 1
        ):
            size = count + _BLOCK
            [self._last] = db.execute(SQL["draw_block"], (size, self._owner)).fetchone()
            self._next = self._last - size + 1
        drawn = range(self._next, self._next + count)
        self._next += count
        return drawn

    def drawer(self, db: sqlite3.Connection) -> Callable[[], int]:
        """Return a function that draws one at a time; looks at the counter only once."""
        looked = False

        def draw() -> int:
            nonlocal looked
            if not looked or self._next > self._last:
                looked = True
                return self.draw(db, 1)[0]
            self._next += 1
            return self._next - 1

        return draw

    def ahead(self) -> tuple[int, int, int] | None:
        """Return the next revision, with owner and mark under which it is valid; None: no block."""
        return (self._next, self._owner, self._last) if self._next <= self._last else None

    def used(self) -> None:
        """Count the revision that `ahead` told as given out."""
        self._next += 1

    def forget(self) -> None:
        """Drop the block: the transaction that drew it may not have happened.

        Only marks it, since another thread may be drawing by now.
        """
        self._stale = True
