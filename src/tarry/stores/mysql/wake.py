"""Wake-ups by a look every 100 ms: MySQL and MariaDB cannot tell anybody anything.

The calls of this process wake its own workers at once. For those of others one thread reads the
head of each lane, and tells of one that it has not seen before: one that is earlier than the last,
or comes after one that somebody took.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from tarry.errors import StoreError
from tarry.stores.mysql.exchange import Exchange, News
from tarry.stores.store import WAKE_MS, Watcher

LOOK_S = 0.1
_AWAY_S = 0.25
"""While the server is away, a look is a try to connect."""


class Wakeups:
    """Tells the watchers of this process what anybody does in the namespace."""

    def __init__(self, exchange: Exchange, namespace: str) -> None:
        self._exchange = exchange
        self._namespace = f"x'{namespace.encode().hex()}'"
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._seen: dict[int, int] = {}
        self._told: dict[int, set[int]] = {}
        """What this process told by itself, by lane: it is no news when a look finds it."""
        self._found: set[News] = set()
        """What the last look told."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* for news of any process, this one included."""
        if self._pid != os.getpid():
            self._begin_process()
        with self._lock:
            self._watchers.append(callback)
            starting = None
            if self._thread is None:
                self._stop = threading.Event()
                starting = self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="tarry-wake", daemon=True
                )
        if starting is not None:
            with suppress(StoreError):
                # What is there already is no news.
                self._look()
            starting.start()

        def undo() -> None:
            with self._lock:
                if callback in self._watchers:
                    self._watchers.remove(callback)

        return undo

    def notify(self, news: Sequence[News]) -> None:
        """Tell the watchers of this process of what it has done itself."""
        if not news or self._pid != os.getpid():
            return
        soonest = min(news, key=lambda each: each[1])
        with self._lock:
            if not self._watchers:
                return
            for lane, due in news:
                self._told.setdefault(lane, set()).add(due)
            # A look between the commit and this has told already.
            known = soonest in self._found
            self._found.discard(soonest)
            watchers = [] if known else list(self._watchers)
        for watcher in watchers:
            watcher(soonest[1])

    def _run(self, stop: threading.Event) -> None:
        pause = LOOK_S
        while not stop.wait(pause):
            try:
                found = self._look()
            except StoreError:
                pause = _AWAY_S
                continue
            pause = LOOK_S
            if found is not None and not stop.is_set():
                for watcher in list(self._watchers):
                    watcher(found)

    def _look(self) -> int | None:
        """Look at the heads; returns the soonest that is new and due soon."""
        [result] = self._exchange.ask(
            "SELECT l.id, (SELECT t.at FROM tarry_task t FORCE INDEX (turn) "
            "WHERE t.lane = l.id AND t.leased = 0 ORDER BY t.at LIMIT 1), "
            f"{self._exchange.now} FROM tarry_lane l "
            f"WHERE l.namespace = {self._namespace} AND l.paused = 0"
        )
        with self._lock:
            seen, self._seen = self._seen, {}
            self._found = set()
            for lane, head, now in result.rows:
                if head is None:
                    self._told.pop(lane, None)
                    continue
                self._seen[lane] = head
                told = self._told.get(lane, ())
                if head != seen.get(lane) and head not in told and head <= now + WAKE_MS:
                    self._found.add((lane, head))
                if told:
                    self._told[lane] = {due for due in told if due >= head}
            return min((due for _, due in self._found), default=None)

    def close(self) -> None:
        """Stop to look."""
        if self._pid != os.getpid():
            # The thread is the parent's, and so may be the lock.
            return
        with self._lock:
            thread, self._thread = self._thread, None
            self._watchers.clear()
        self._stop.set()
        if thread is not None and thread.ident and thread is not threading.current_thread():
            thread.join()
