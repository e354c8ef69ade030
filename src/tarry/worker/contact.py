"""Contact: whether the store answers, and what its clock says."""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.engine.store_time import StoreTime
from tarry.events import Event, StoreBack, StoreLost
from tarry.stores.store import Claimed

_NS_PER_MS = 1_000_000
_LONGEST_PAUSE_MS = 2_000
_SHORTEST_PAUSE_MS = 50


class Contact:
    """What a worker knows of its store between two answers."""

    def __init__(self, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._clock = clock
        self._emit = emit
        self._time = StoreTime()
        self._down_since: int | None = None

    def lost(self, error: Exception, again: float | None = None) -> None:
        """Note that the store did not answer, and will be asked again after *again* seconds.

        None: after `pause_ns`.
        """
        if self._down_since is None:
            self._down_since = self._clock.elapsed()
        pause_ms = self.pause_ns() // _NS_PER_MS if again is None else int(again * 1_000)
        self._emit(StoreLost(error=error, again_ms=pause_ms))

    def answered(self, claimed: Claimed, sent: int) -> None:
        """Note an answer to a claim that was sent at *sent*."""
        now = self._clock.elapsed()
        self._time.observe(_micros(claimed), sent_ns=sent, arrived_ns=now)
        if self._down_since is not None:
            down = (now - self._down_since) // _NS_PER_MS
            self._down_since = None
            self._emit(StoreBack(after_ms=down))

    @property
    def is_there(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self._down_since is None

    def pause_ns(self) -> int:
        """Return how long to wait for a store that does not answer, longer each time."""
        if self._down_since is None:
            return _LONGEST_PAUSE_MS * _NS_PER_MS
        down_ms = (self._clock.elapsed() - self._down_since) // _NS_PER_MS
        return max(_SHORTEST_PAUSE_MS, min(down_ms, _LONGEST_PAUSE_MS)) * _NS_PER_MS

    def now_us(self, elapsed: int) -> int:
        """Return the store's instant at *elapsed*, in microseconds."""
        return self._time.now_us(elapsed)

    def now(self) -> int:
        """Return the store's instant, in milliseconds."""
        return self._time.now_us(self._clock.elapsed()) // 1_000

    def age_ns(self, claimed: Claimed) -> int:
        """Return how long ago the store said what *claimed* says."""
        return max(0, self._time.now_us(self._clock.elapsed()) - _micros(claimed)) * 1_000


def _micros(claimed: Claimed) -> int:
    return claimed.now * 1_000 + claimed.micros
