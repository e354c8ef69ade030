"""Turns: what waits in a worker, a queue for each kind, taken from in turns."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A kind of which much is waiting does not hold up another: they take turns.

    Within a kind what came first goes first. Any thread may put and take.
    """

    def __init__(self, kind: Callable[[T], str], lock: AbstractContextManager[object]) -> None:
        self._kind = kind
        self._lock = lock
        self._lanes: dict[str, deque[T]] = {}
        self._waiting: deque[deque[T]] = deque()
        """The lanes that are not empty, in the order of their turns."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._waiting))

    def put(self, items: Iterable[T]) -> None:
        """Let *items* wait, each behind those of its kind."""
        kind, lanes = self._kind, self._lanes
        with self._lock:
            for item in items:
                lane = lanes.get(kind(item))
                if lane is None:
                    lane = lanes[kind(item)] = deque()
                if not lane:
                    self._waiting.append(lane)
                lane.append(item)

    def take(self) -> T | None:
        """Return the first of the kind whose turn it is, None if nothing waits."""
        with self._lock:
            waiting = self._waiting
            if not waiting:
                return None
            lane = waiting[0]
            item = lane.popleft()
            if not lane:
                waiting.popleft()
            elif len(waiting) > 1:
                waiting.rotate(-1)
            return item

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out the first ones of each kind, for as long as they are *unwanted*."""
        dropped: list[T] = []
        with self._lock:
            for lane in self._waiting:
                while lane and unwanted(lane[0]):
                    dropped.append(lane.popleft())
            self._waiting = deque(lane for lane in self._waiting if lane)
        return dropped
