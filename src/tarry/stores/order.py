"""Order: what a store in memory keeps by time, a heap that forgets lazily (pure)."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from tarry.task import TaskRef

Entry = tuple[int, int, TaskRef]
"""When, which revision or token, of whom."""


class Order:
    """Entries by time: a heap that skips what was discarded, rebuilt when most of it was."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._live: set[Entry] = set()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._live)

    def change(self, old: Entry | None, new: Entry | None) -> None:
        """Put *new* in the place of *old*."""
        if old is not None:
            self._live.discard(old)
        if new is not None:
            self._live.add(new)
            heappush(self._heap, new)
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = list(self._live)
            heapify(self._heap)

    def head(self) -> Entry | None:
        """Return the earliest entry."""
        heap, live = self._heap, self._live
        while heap and heap[0] not in live:
            heappop(heap)
        return heap[0] if heap else None

    def reached(self, now: int) -> bool:
        """Say whether an entry is not after *now*."""
        if not self._live or self._heap[0][0] > now:
            return False
        head = self.head()
        return head is not None and head[0] <= now

    def until(self, now: int, limit: int) -> list[Entry]:
        """Return the first *limit* entries that are not after *now*, earliest first."""
        found: list[Entry] = []
        while len(found) < limit:
            entry = self.head()
            if entry is None or entry[0] > now:
                break
            heappop(self._heap)
            # What was discarded and came back stands in the heap twice, side by side.
            if not found or found[-1] != entry:
                found.append(entry)
        for entry in found:
            heappush(self._heap, entry)
        return found
