"""StoreTime: what the store's clock says now, learned from the answers to claims (pure)."""

_NS_PER_US = 1_000


class StoreTime:
    """Keeps the difference between the store's clock and the worker's own.

    An answer tells the store's time as it was a little before it arrived, so that each difference
    seen is too small by the way back; the largest one seen is the best, and still never too large.
    It is given up slowly, for clocks that drift, and at once when the store's clock steps back:
    when it is more than the answer allows even if all its time went into the way back.
    """

    def __init__(self) -> None:
        self._ahead_us: int | None = None

    def observe(self, store_us: int, *, sent_ns: int, arrived_ns: int) -> None:
        """Note that what was asked at *sent_ns* was answered with *store_us* at *arrived_ns*."""
        least = store_us - arrived_ns // _NS_PER_US
        most = store_us - sent_ns // _NS_PER_US
        known = self._ahead_us
        if known is None or known > most:
            self._ahead_us = least
        else:
            self._ahead_us = max(least, known - 1)

    def now_us(self, elapsed_ns: int) -> int:
        """Return the store's instant at *elapsed_ns*, in microseconds; never ahead of it."""
        return elapsed_ns // _NS_PER_US + (self._ahead_us or 0)
