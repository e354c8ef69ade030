"""Order: what a store in memory keeps by time: a wheel for what is ahead, a heap for the rest."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from tarry.task import TaskRef
from tarry.timers.native import HierarchicalWheel
from tarry.timers.timers import Timer

Entry = tuple[int, int, TaskRef]
"""When, which revision or token, of whom."""

_UNIT = 1_000
"""The wheel counts microseconds: in nanoseconds it does not reach the year 9999."""


class Order:
    """Entries by time, equal times by revision or token.

    What is ahead lies in a wheel: most of it is moved, cancelled or renewed before its time, which
    costs O(1) there and leaves nothing behind. What has come is brought over to a heap, a batch at
    a time; the heap holds all that is not after `_frontier`, and forgets what was discarded lazily.
    """

    def __init__(self) -> None:
        self._wheel: HierarchicalWheel[Entry] = HierarchicalWheel()
        self._live: dict[Entry, Timer[Entry] | None] = {}
        self._heap: list[Entry] = []
        self._frontier = -1

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._live)

    def change(self, old: Entry | None, new: Entry | None) -> None:
        """Put *new* in the place of *old*."""
        if old is not None:
            timer = self._live.pop(old, None)
            if timer is not None:
                timer.disarm()
        if new is None or new in self._live:
            return
        if new[0] > self._frontier:
            self._live[new] = self._wheel.arm(new[0] * _UNIT, new)
            return
        self._live[new] = None
        heappush(self._heap, new)
        if len(self._heap) > 2 * (len(self._live) - len(self._wheel)) + 64:
            self._heap = [entry for entry, timer in self._live.items() if timer is None]
            heapify(self._heap)

    def first(self) -> int | None:
        """Return when the earliest entry is."""
        head = self._head()
        if head is not None:
            return head[0]
        due = self._wheel.next_due
        return None if due is None else due // _UNIT

    def reached(self, now: int) -> bool:
        """Say whether an entry is not after *now*."""
        first = self.first()
        return first is not None and first <= now

    def until(self, now: int, limit: int) -> list[Entry]:
        """Return the first *limit* entries that are not after *now*, earliest first."""
        found: list[Entry] = []
        while len(found) < limit:
            entry = self._head()
            if entry is None:
                if not self._bring(now, limit):
                    break
                continue
            if entry[0] > now:
                break
            heappop(self._heap)
            # What was discarded and came back stands in the heap twice, side by side.
            if not found or found[-1] != entry:
                found.append(entry)
        for entry in found:
            heappush(self._heap, entry)
        return found

    def _head(self) -> Entry | None:
        heap, live = self._heap, self._live
        while heap and heap[0] not in live:
            heappop(heap)
        return heap[0] if heap else None

    def _bring(self, now: int, limit: int) -> bool:
        """Bring over what is not after *now*, about *limit* entries; says whether any were."""
        entries = self._wheel.advance(now * _UNIT, limit)
        if not entries:
            return False
        # All of one instant: among them the revision decides.
        self._frontier = entries[-1][0]
        entries += self._wheel.advance(self._frontier * _UNIT)
        for entry in entries:
            self._live[entry] = None
            heappush(self._heap, entry)
        return True
