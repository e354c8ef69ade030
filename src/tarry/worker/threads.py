"""Threads: plain handlers run beside the loop; a thread that hangs is abandoned and replaced."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tarry.runtime import Runtime
from tarry.worker.turns import Turns

T = TypeVar("T", bound=Hashable)
_AT_ONCE = 4
_GO, _END = True, False


class Threads(Generic[T]):
    """Up to *limit* threads, started as they are needed, each taking one item after the other.

    A few threads begin on a large batch; the rest are called in only if those do not get through
    it within a moment: quick handlers gain nothing from fifty threads taking turns.
    """

    def __init__(
        self, limit: int, work: Callable[[T], None], queue: Turns[T], runtime: Runtime
    ) -> None:
        self._limit = limit
        self._work = work
        self._spawn = runtime.spawn
        self.queue = queue
        self._calls = runtime.line()
        self._idle: set[object] = set()
        self._threads: set[object] = set()
        self._busy: dict[T, object] = {}
        self._starting = 0
        self.abandoned = 0

    def put(self, items: list[T]) -> None:
        """Have *items* worked on soon; to be called on the loop."""
        self.queue.put(items)
        self._call_in(min(len(items), _AT_ONCE))

    def call_more(self) -> bool:
        """Call in threads for all that is still queued; says whether anything is."""
        if self.queue:
            self._call_in(len(self.queue))
        return bool(self.queue)

    def _call_in(self, wanted: int) -> None:
        idle = len(self._idle)
        for _ in range(min(wanted, idle)):
            self._calls.put(_GO)
        for _ in range(min(wanted - idle, self._limit - len(self._threads) - self._starting)):
            self._starting += 1
            self._calls.put(_GO)
            self._spawn(self._run, "tarry-handler")

    def _run(self) -> None:
        me = object()
        self._threads.add(me)
        self._starting -= 1
        while True:
            self._idle.add(me)
            go_on = self._calls.get()
            self._idle.discard(me)
            if not go_on:
                break
            while (item := self.queue.take()) is not None:
                self._busy[item] = me
                self._work(item)
                self._busy.pop(item, None)
                if me not in self._threads:
                    return
        self._threads.discard(me)

    def abandon(self, item: T) -> bool:
        """Give up on the thread that hangs in *item*; says whether one does.

        It ends after its item, and another takes its place.
        """
        thread = self._busy.pop(item, None)
        if thread is None:
            return False
        self._threads.discard(thread)
        self.abandoned += 1
        self.call_more()
        return True

    def close(self) -> None:
        """Let idle threads end; busy ones end after what they are at."""
        for _ in range(len(self._threads) + self._starting):
            self._calls.put(_END)


class Inbox:
    """Results of threads on their way to the loop: many puts, one wake-up."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._items: deque[Callable[[], None]] = deque()
        self._notify = notify
        self._told = False

    def put(self, job: Callable[[], None]) -> None:
        """Have *job* run on the loop."""
        self._items.append(job)
        if not self._told:
            self._told = True
            self._notify()

    def drain(self) -> None:
        """Run what has come in; to be called on the loop."""
        self._told = False
        while self._items:
            self._items.popleft()()
