r"""Heap: a binary heap, exact, with real removal: the way of the JDK's timers.

The earliest timer stands at place 0; below place n are the places 2n + 1 and 2n + 2, and neither is
earlier. Each timer knows its place, so that disarming takes it out at once, in O(log n) (the JDK's
`DelayQueue` looks for it in O(n); most heaps in Python only mark it, and keep it until its due).

    due    3            disarm 7:  the last one (9) takes its    3
          / \                      place and sinks or rises     / \
         5   7                                                 5   9
        / \                                                   /
       8   9                                                 8

Every arm and disarm walks up or down the tree: at a million timers about 20 steps, each at another
place of the memory. The wheels exist to avoid that.
"""

from collections.abc import Callable

from tarry.timers.stepwise import StepwiseTimer, StepwiseTimers
from tarry.timers.timers import V


class Heap(StepwiseTimers[V]):
    """Timers in a binary heap; arm, disarm and fire in O(log n)."""

    __slots__ = ("_heap",)

    def __init__(
        self,
        now: int = 0,
        *,
        clock: Callable[[], int] | None = None,
        timer: type[StepwiseTimer[V]] = StepwiseTimer,
    ) -> None:
        del now  # an exact order needs no beginning
        super().__init__(clock=clock, timer=timer)
        self._heap: list[StepwiseTimer[V]] = []

    def _put(self, timer: StepwiseTimer[V]) -> None:
        self._heap.append(timer)
        self._rise(len(self._heap) - 1, timer)

    def _take_out(self, timer: StepwiseTimer[V]) -> None:
        place: int = timer._home
        last = self._heap.pop()
        if last is not timer:
            self._rise(place, last)
            self._sink(last._home, last)

    def _pop(self, now: int) -> StepwiseTimer[V] | None:
        first = self._heap[0]
        if first._due > now:
            return None
        self._take_out(first)
        return first

    def _first(self) -> StepwiseTimer[V]:
        return self._heap[0]

    def _rise(self, place: int, timer: StepwiseTimer[V]) -> None:
        heap = self._heap
        while place:
            above = (place - 1) // 2
            if not _is_before(timer, heap[above]):
                break
            heap[place] = heap[above]
            heap[place]._home = place
            place = above
        heap[place] = timer
        timer._home = place

    def _sink(self, place: int, timer: StepwiseTimer[V]) -> None:
        heap = self._heap
        while (below := 2 * place + 1) < len(heap):
            if below + 1 < len(heap) and _is_before(heap[below + 1], heap[below]):
                below += 1
            if not _is_before(heap[below], timer):
                break
            heap[place] = heap[below]
            heap[place]._home = place
            place = below
        heap[place] = timer
        timer._home = place


def _is_before(one: StepwiseTimer[V], other: StepwiseTimer[V]) -> bool:
    return one._due < other._due or (one._due == other._due and one._order < other._order)
