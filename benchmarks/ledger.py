"""A ledger that handlers of several processes write to: when a task first ran, last ran, how often.

It is a memory-mapped file, so that a mark costs about a microsecond and outlives a `kill -9`.
Needs nothing but Python: peers run it in their own environment.
"""

import mmap
import time
from pathlib import Path

_FIELDS = 3
_BYTES = 8


class Ledger:
    """Three columns of 64-bit numbers: nanoseconds UTC of the first and the last run, and runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self.size = size = len(view) // _FIELDS
        self._first, self._last, self._runs = view[:size], view[size : 2 * size], view[2 * size :]

    @classmethod
    def create(cls, path: Path, size: int) -> "Ledger":
        """Return an empty ledger for tasks 0 to *size* - 1."""
        path.write_bytes(bytes(size * _FIELDS * _BYTES))
        return cls(path)

    def mark(self, n: int) -> None:
        """Write down that task *n* runs now."""
        now = time.time_ns()
        if not self._first[n]:
            self._first[n] = now
        self._last[n] = now
        self._runs[n] += 1

    def first(self) -> list[int]:
        """Return when each task first ran; 0: it did not."""
        return self._first.tolist()

    def last(self) -> list[int]:
        """Return when each task last ran; 0: it did not."""
        return self._last.tolist()

    def runs(self) -> list[int]:
        """Return how often each task ran."""
        return self._runs.tolist()

    def ran(self) -> int:
        """Return how many tasks ran at least once."""
        return self.size - self.first().count(0)

    def wait(self, count: int, *, seconds: float, every: float = 0.1) -> bool:
        """Wait until *count* tasks ran, no longer than *seconds*; says whether they did."""
        deadline = time.monotonic() + seconds
        while self.ran() < count:
            if time.monotonic() > deadline:
                return False
            time.sleep(every)
        return True
