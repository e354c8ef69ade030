"""Claims: from where a claim looks for due tasks, and how often it looks back.

Rows that are leased keep their place in the order of dues, so that a lease costs no index an entry.
A claim must not walk over them each time: it begins where the claim before it ended, per kind (the
low-water mark). What came to lie below that is found by looking back: leases that ended, what was
committed late, what somebody held locked. That costs a walk over the leased rows, so it is done as
often as it is cheap, and at least nearly every second; a wake-up lowers the marks by itself.
"""

import threading
from collections.abc import Sequence

from tarry.clock import SYSTEM

Mark = tuple[int, str]
"""A place in the order of a kind: the due and key of a row."""
_LOWEST: Mark = (-1, "")
_SHARE = 20
"""Looking back takes at most one part in so many of the time."""
_RARELY_NS = 800_000_000
_FULL_NS = 30_000_000_000
_SOME_ROWS = 2_000
"""Leased rows stand at the front: so many others among them are looked at, too."""
_EVERY_ROW = 2_000_000_000


class Claims:
    """What one process knows of the rows before its next claim."""

    def __init__(self, *, always: bool) -> None:
        self._always = always
        """Whether every claim looks back at every row: where time is virtual."""
        self._lock = threading.Lock()
        self._lows: dict[str, Mark] = {}
        self._ends: dict[tuple[str, ...], int | None] = {}
        self._next_look = 0
        self._next_full = 0
        self._leases = 0

    def marks(self, kinds: Sequence[str], back: int | None) -> tuple[list[int], list[str]]:
        """Return behind which dues and keys each kind is looked at."""
        if back is not None:
            return [_LOWEST[0]] * len(kinds), [_LOWEST[1]] * len(kinds)
        with self._lock:
            marks = [self._lows.get(kind, _LOWEST) for kind in kinds]
        return [due for due, _ in marks], [key for _, key in marks]

    def back(self, kinds: tuple[str, ...]) -> int | None:
        """Return how many rows of each kind to look back at; None: it is not time for that."""
        if self._always:
            return _EVERY_ROW
        now = SYSTEM.elapsed()
        with self._lock:
            if now < self._next_look and kinds in self._ends:
                return None
            if now >= self._next_full:
                self._next_full = now + _FULL_NS
                return _EVERY_ROW
            return _SOME_ROWS + 2 * self._leases

    def looked_back(
        self, kinds: tuple[str, ...], ends: int | None, leases: int, took_ns: int
    ) -> None:
        """Note what a look back found: the earliest end of a lease, and how many there are."""
        with self._lock:
            self._ends[kinds] = ends
            self._leases = leases
            pause = min(took_ns * _SHARE, _RARELY_NS)
            self._next_look = SYSTEM.elapsed() + pause

    def took(self, kinds: tuple[str, ...], highest: dict[str, Mark], expires: int) -> None:
        """Note the last row that was taken of each kind, and when the leases will end."""
        with self._lock:
            for kind, mark in highest.items():
                self._lows[kind] = max(self._lows.get(kind, _LOWEST), mark)
            known = self._ends.get(kinds)
            self._ends[kinds] = expires if known is None else min(known, expires)

    def ends(self, kinds: tuple[str, ...]) -> int | None:
        """Return when the first lease ends, as far as that is known here."""
        with self._lock:
            return self._ends.get(kinds)

    def look_ms(self) -> int:
        """Return how many milliseconds there are until it is time to look back."""
        return max(0, self._next_look - SYSTEM.elapsed()) // 1_000_000 + 1

    def lower(self, due: int) -> None:
        """Note that something became claimable at *due*: no mark may be above it."""
        with self._lock:
            for kind, low in self._lows.items():
                if low > (due, ""):
                    self._lows[kind] = (due, "")
