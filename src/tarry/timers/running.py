"""Running: the timers of the moment in exact order; a heap that forgets lazily."""

from heapq import heapify, heappop, heappush
from typing import Generic

from tarry.timers.stepwise import StepwiseTimer
from tarry.timers.timers import V

Home = dict[int, StepwiseTimer[V]]
"""Timers by their order; none is given twice, which tells a stale one from a new one."""

_FEW = 64


class Running(Generic[V]):
    """The timers in `home`, by due and order."""

    __slots__ = ("_heap", "home")

    def __init__(self) -> None:
        self.home: Home[V] = {}
        self._heap: list[tuple[int, int, StepwiseTimer[V]]] = []

    def begin(self, home: Home[V]) -> None:
        """Go on with the timers of *home*, which know already that they are there."""
        self.home = home
        self._heap = [(timer._due, order, timer) for order, timer in home.items()]
        heapify(self._heap)

    def put(self, timer: StepwiseTimer[V]) -> None:
        """Take a timer in."""
        timer._home = self.home
        self.home[timer._order] = timer
        heappush(self._heap, (timer._due, timer._order, timer))
        if len(self._heap) > 2 * len(self.home) + _FEW:
            self.begin(self.home)

    def head(self) -> StepwiseTimer[V] | None:
        """Return the first timer."""
        heap, home = self._heap, self.home
        while heap:
            if heap[0][1] in home:
                return heap[0][2]
            heappop(heap)
        return None

    def pop(self) -> None:
        """Forget the first timer, which `head` has just returned."""
        del self.home[heappop(self._heap)[1]]
