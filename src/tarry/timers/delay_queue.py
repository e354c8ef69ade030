"""DelayQueue: a blocking queue whose items can be taken only when their delay is over."""

import threading
from typing import Generic, TypeVar, overload

from tarry.clock import SYSTEM, Clock
from tarry.due import Duration
from tarry.timers.delays import delay_ns
from tarry.timers.native import HierarchicalWheel
from tarry.timers.timers import Timer

T = TypeVar("T")
_NS = 1_000_000_000
_LONGEST_NS = 60 * _NS
"""A wait does not count the time in suspend: after it, a take is late by this at most."""


class DelayQueue(Generic[T]):
    """A blocking queue in the order of dues, as Java has it, with `remove` in O(1).

    Items are anything but None; `remove` finds them by equality, or by identity if they cannot be
    hashed.
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._wheel: HierarchicalWheel[T] = HierarchicalWheel(clock.elapsed())
        self._timers: dict[object, list[Timer[T]]] = {}
        self._changed = threading.Condition(threading.Lock())
        self._waits: object = None
        """The one consumer that sleeps until the next due; the others sleep until they are told."""

    def put(self, item: T, delay: Duration = 0) -> None:
        """Let *item* be taken *delay* from now."""
        if item is None:
            raise TypeError("None means that there is nothing: it cannot be put")
        ns, key = delay_ns(delay), _key(item)
        with self._changed:
            now = self._clock.elapsed()
            first = self._wheel.next_due
            if first is None or now + ns < first:
                # Whoever sleeps aims too late.
                self._waits = None
                self._changed.notify()
            self._timers.setdefault(key, []).append(self._wheel.arm(now + ns, item))

    @overload
    def take(self) -> T: ...
    @overload
    def take(self, timeout: Duration) -> T | None: ...
    def take(self, timeout: Duration | None = None) -> T | None:
        """Wait for the next item that is due, and take it; None if *timeout* passes before."""
        with self._changed:
            limit = None if timeout is None else self._clock.elapsed() + delay_ns(timeout)
            try:
                while (item := self._pop()) is None:
                    if not self._wait(limit):
                        return None
                return item
            finally:
                # Somebody has to sleep until the next due in the place of this one.
                if self._waits is None and len(self._wheel):
                    self._changed.notify()

    def poll(self) -> T | None:
        """Take the next item that is due; None if there is none now."""
        with self._changed:
            return self._pop()

    def drain(self, limit: int | None = None) -> list[T]:
        """Take what is due, earliest first, at most *limit* items."""
        with self._changed:
            items = self._wheel.advance(self._clock.elapsed(), limit)
            for item in items:
                self._forget(item)
            return items

    def remove(self, item: T) -> bool:
        """Take *item* out, due or not; false if it is not there. Of equal ones, the first put."""
        with self._changed:
            timers = self._timers.get(_key(item))
            if timers is None:
                return False
            timers[0].disarm()
            self._forget(item)
            return True

    def peek(self) -> T | None:
        """Return the item that is due next, without taking it; None if the queue is empty."""
        with self._changed:
            return self._wheel.peek() if len(self._wheel) else None

    def __len__(self) -> int:
        return len(self._wheel)

    def __bool__(self) -> bool:
        """Say whether there is anything in it, due or not."""
        return len(self._wheel) > 0

    def __contains__(self, item: object) -> bool:
        with self._changed:
            return _key(item) in self._timers

    def _pop(self) -> T | None:
        if not len(self._wheel):
            return None
        items = self._wheel.advance(self._clock.elapsed(), 1)
        if not items:
            return None
        self._forget(items[0])
        return items[0]

    def _forget(self, item: T) -> None:
        """Drop the timer of *item* that has just fired or been disarmed."""
        key = _key(item)
        left = [timer for timer in self._timers.pop(key) if timer.armed]
        if left:
            self._timers[key] = left

    def _wait(self, limit: int | None) -> bool:
        """Sleep until there may be something to take; false if *limit* has come."""
        now, due = self._clock.elapsed(), self._wheel.next_due
        if limit is not None and limit <= now:
            return False
        me = object()
        ends = limit
        if due is not None and self._waits is None:
            self._waits = me
            ends = due if limit is None else min(due, limit)
        try:
            # Never for ever: a wait without an end cannot be interrupted on every system.
            wait = _LONGEST_NS if ends is None else min(ends - now, _LONGEST_NS)
            self._changed.wait(max(wait, 0) / _NS)
        finally:
            if self._waits is me:
                self._waits = None
        return True


def _key(item: object) -> object:
    try:
        hash(item)
    except TypeError:
        return _Same(item)
    return item


class _Same:
    """Stands for an item that cannot be hashed: equal only to itself."""

    __slots__ = ("_item",)

    def __init__(self, item: object) -> None:
        self._item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._item is self._item

    def __hash__(self) -> int:
        return id(self._item)
