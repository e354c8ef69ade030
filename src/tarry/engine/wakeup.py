"""How long to sleep, and what may cut the sleep short (pure)."""

from tarry.stores.store import WAKE_MS, Claimed

_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000
LOOK_NS = WAKE_MS * _NS_PER_MS
_STANDBY_MS = (1, 20)
_BACKOFF_MS = (5, 250)


class Wakeup:
    """Decides after each claim when to claim again.

    A worker sleeps until the store's next due. One that came too late for a due task, because
    others were faster, stands by: it sleeps a growing moment beyond the next due, so that idle
    workers do not race for every task. An empty claim although something is due (somebody holds it
    for a moment) backs off instead of spinning.
    """

    def __init__(self) -> None:
        self._standby_ms = 0
        self._backoff_ms = 0
        self._aimed: int | None = None
        self.wakes_at: int | None = None
        """The store's instant the present sleep aims at; None: it is not asleep."""

    def after(self, claimed: Claimed, *, full: bool) -> int:
        """Return how many nanoseconds to sleep (0: not at all); *full*: the limit was met."""
        aimed, self._aimed = self._aimed, claimed.next_due
        if claimed.leases:
            self._standby_ms = self._backoff_ms = 0
            if full:
                self.wakes_at = None
                return 0
        elif aimed is not None and aimed <= claimed.now:
            self._standby_ms = _grow(self._standby_ms, _STANDBY_MS)
        if claimed.next_due is None:
            self.wakes_at = claimed.now + WAKE_MS
            return LOOK_NS
        wait_ms = claimed.next_due - claimed.now
        if wait_ms <= 0:
            if claimed.leases:
                self.wakes_at = None
                return 0
            self._backoff_ms = _grow(self._backoff_ms, _BACKOFF_MS)
            self.wakes_at = claimed.now + self._backoff_ms
            return self._backoff_ms * _NS_PER_MS
        self._backoff_ms = 0
        wait_ms = min(wait_ms + self._standby_ms, WAKE_MS)
        self.wakes_at = claimed.now + wait_ms
        return wait_ms * _NS_PER_MS - claimed.micros * _NS_PER_US

    def awake(self) -> None:
        """Note that a claim is under way: any news until the next sleep matters."""
        self.wakes_at = None

    def matters(self, due: int) -> bool:
        """Say whether news of *due* is earlier than what the worker sleeps for anyway."""
        return self.wakes_at is None or due < self.wakes_at

    def news(self) -> None:
        """Stop standing by: there is something new to race for."""
        self._aimed = None


def _grow(present: int, bounds: tuple[int, int]) -> int:
    return min(max(present * 2, bounds[0]), bounds[1])
