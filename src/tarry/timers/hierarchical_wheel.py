"""HierarchicalWheel: coarse windows far ahead, an exact order for the window that is running.

Time is cut into windows of 2**28 ns (268 ms). A timer of a later window is only thrown into the
bag of its window: O(1), nothing is compared. When the time of the first bag has come, its timers,
and only these, are put into an exact order; what is armed for the running window or for the past
joins them there.

    for the example, windows of 10; now 0; arm(12), arm(18), arm(37)
                       running: -        ahead: 10-19 {12, 18}, 30-39 {37}
    advance(14)        running: 18       12 has fired
    arm(16)            running: 16, 18   its window is running
    next_due is 16
    advance(40)        16 and 18 fire, then the bag 30-39 is put in order, and 37 fires

So the next due and the order are exact, nothing is rounded to a tick, no tick is spent on empty
time, and a timer that is disarmed before its window came, as most time-outs are, was never
compared with any other: arm, disarm and re-arm are O(1).

This is the twin in Python, which finds a bag by the number of its window in a dictionary; it runs
where the native core, `_wheel.c`, could not be built. That one has windows of 16.8 ms and levels of
1024 slots instead, each level 16 times as coarse as the one below, and a bitmap of the slots that
are not empty; a slot of a higher level is dealt out to lower ones when its time comes. `native.py`
says which one runs.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from tarry.timers.running import Home, Running
from tarry.timers.stepwise import FIRST, StepwiseTimer, StepwiseTimers, check, turn_of
from tarry.timers.timers import LAST, V

WINDOW_BITS = 28
_FEW = 64


class HierarchicalWheel(StepwiseTimers[V]):
    """Timers in windows; arm, disarm and re-arm in O(1), exact order and next due."""

    __slots__ = ("_ahead", "_cursor", "_running", "_windows")

    def __init__(
        self,
        now: int = 0,
        *,
        clock: Callable[[], int] | None = None,
        timer: type[StepwiseTimer[V]] = StepwiseTimer,
    ) -> None:
        super().__init__(clock=clock, timer=timer)
        self._cursor = now >> WINDOW_BITS
        self._running: Running[V] = Running()
        self._windows: dict[int, Home[V]] = {}
        self._ahead: list[int] = []
        """The numbers of the windows as a heap, and of some that have been emptied since."""

    def arm(self, due: int, value: V, /) -> StepwiseTimer[V]:
        """Let *value* fire at *due*: what the base class does, in one step where a bag is there."""
        if due.__class__ is not int or not FIRST <= due <= LAST:
            check(due)
        with self._lock:
            self._orders = order = self._orders + 1
            timer = self._type(self, due, value, order)
            home = self._windows.get(due >> WINDOW_BITS)
            if home is None:
                self._put(timer)
            else:
                home[order] = timer
                timer._home = home
            self._armed += 1
        return timer

    def _put(self, timer: StepwiseTimer[V]) -> None:
        window = timer._due >> WINDOW_BITS
        if window <= self._cursor:
            self._running.put(timer)
            return
        home = self._windows.get(window)
        if home is None:
            self._windows[window] = home = {}
            heappush(self._ahead, window)
            if len(self._ahead) > 2 * len(self._windows) + _FEW:
                self._ahead = list(self._windows)
                heapify(self._ahead)
        home[timer._order] = timer
        timer._home = home

    def _take_out(self, timer: StepwiseTimer[V]) -> None:
        home = timer._home
        del home[timer._order]
        if not home and home is not self._running.home:
            del self._windows[timer._due >> WINDOW_BITS]

    def _pop(self, now: int) -> StepwiseTimer[V] | None:
        running = self._running
        while (first := running.head()) is None:
            window = self._first_window()
            if window is None or window > now >> WINDOW_BITS:
                self._cursor = max(self._cursor, now >> WINDOW_BITS)
                return None
            self._cursor = window
            running.begin(self._windows.pop(window))
        if first._due > now:
            return None
        running.pop()
        return first

    def _first(self) -> StepwiseTimer[V]:
        first = self._running.head()
        if first is not None:
            return first
        window = self._first_window()
        assert window is not None  # noqa: S101 - something is armed
        return min(self._windows[window].values(), key=turn_of)

    def _first_window(self) -> int | None:
        ahead = self._ahead
        while ahead and ahead[0] not in self._windows:
            heappop(ahead)
        return ahead[0] if ahead else None
