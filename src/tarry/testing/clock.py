"""ManualClock: time that moves only when a test says so."""

START = 1_750_000_000_000
"""Where a ManualClock starts: 2025-06-15T15:06:40Z."""


class ManualClock:
    """A clock that stands still; `advance` moves the instant and the elapsed time together."""

    def __init__(self, now: int = START) -> None:
        self._now_us = now * 1_000
        self._elapsed = 0

    def now_us(self) -> int:
        """Return the instant in microseconds."""
        return self._now_us

    def now(self) -> int:
        """Return the instant in milliseconds."""
        return self._now_us // 1_000

    def elapsed(self) -> int:
        """Return nanoseconds of virtual time since the start."""
        return self._elapsed

    def advance(self, ms: int) -> None:
        """Let *ms* milliseconds pass."""
        self._now_us += ms * 1_000
        self._elapsed += ms * 1_000_000

    def step(self, ms: int) -> None:
        """Set the calendar by *ms* without any time passing, as a corrected clock does."""
        self._now_us += ms * 1_000
