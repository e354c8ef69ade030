"""Wake-ups by NOTIFY: one listener per process, which heals itself.

The functions of the database notify a channel of their namespace, and the server passes that on
after commit. The listener asks a silent connection for a sign of life, and replaces it if none
comes; what was missed meanwhile is made up for by one wake-up. Behind a pooler that gives each
statement another session nobody can listen: there the earliest due is looked at every 100 ms.
"""

import os
import select
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from psycopg import Error

from tarry.clock import SYSTEM
from tarry.errors import StoreError
from tarry.stores.postgres.links import Link, LinkLostError, Links, connected
from tarry.stores.postgres.url import Place
from tarry.stores.store import WAKE_MS, Watcher

_NS = 1_000_000_000
_SILENT_NS = 1 * _NS
"""A connection that was silent for so long is asked for a sign of life."""
_DEAD_NS = 3 * _NS
"""A connection that was silent for so long is replaced."""
_TICK_MS = 250
_LOOK_MS = 100
_NOW = 0
"""The due that is told when wake-ups may have been missed: look at once."""


class Wakeups:
    """Tells the watchers of this process what all processes make claimable."""

    def __init__(
        self, place: Place, namespace: str, links: Links, soonest: Callable[[], int | None]
    ) -> None:
        self._place = place
        self._namespace = namespace
        self._links = links
        self._soonest = soonest
        self._own: list[Watcher] = []
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._running: _Listener | _Looker | None = None

    def heed(self, callback: Watcher) -> None:
        """Tell *callback* of news, too, while anybody watches: before all others."""
        self._own.append(callback)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* for news; listens when it returns, unless the server is away."""
        if self._pid != os.getpid():
            self._begin_process()
        with self._lock:
            self._watchers.append(callback)
            if self._running is None:
                self._running = (
                    _Looker(self._soonest, self._tell)
                    if self._links.pooled
                    else _Listener(self._place, self._namespace, self._tell)
                )
            running = self._running
        running.listens.wait(self._place.connect_timeout + 1)

        def undo() -> None:
            with self._lock:
                if callback in self._watchers:
                    self._watchers.remove(callback)

        return undo

    def _tell(self, due: int) -> None:
        for watcher in (*self._own, *self._watchers):
            watcher(due)

    def close(self) -> None:
        """Stop to listen."""
        if self._pid != os.getpid():
            # The listener is the parent's, and so may be the lock.
            return
        with self._lock:
            running, self._running = self._running, None
            self._watchers.clear()
        if running is not None:
            running.stop()


class _Thread(ABC):
    """A thread that can be told to stop while it waits."""

    def __init__(self) -> None:
        self.stopped = False
        self.inside, self._outside = socket.socketpair()
        self.listens = threading.Event()
        self._thread = threading.Thread(target=self._go, name="tarry-wake", daemon=True)
        self._thread.start()

    def _go(self) -> None:
        try:
            self.run()
        finally:
            self.inside.close()
            self._outside.close()

    @abstractmethod
    def run(self) -> None:
        """Do what it is for until it is stopped."""

    def stop(self) -> None:
        """End the thread."""
        self.stopped = True
        with suppress(OSError):
            self._outside.send(b"x")
        if self._thread is not threading.current_thread():
            self._thread.join()


class _Looker(_Thread):
    """Looks for the earliest due every 100 ms."""

    def __init__(self, soonest: Callable[[], int | None], tell: Callable[[int], None]) -> None:
        self._soonest = soonest
        self._tell = tell
        self._told: int | None = None
        super().__init__()

    def run(self) -> None:
        """Tell of a due that was not there a moment ago."""
        self.listens.set()
        poll = select.poll()
        poll.register(self.inside, select.POLLIN)
        while not self.stopped and not poll.poll(_LOOK_MS):
            with suppress(StoreError):
                due = self._soonest()
                if due is not None and due != self._told and due <= SYSTEM.now() + WAKE_MS:
                    self._tell(due)
                self._told = due


class _Listener(_Thread):
    """Listens to the channel of a namespace."""

    def __init__(self, place: Place, namespace: str, tell: Callable[[int], None]) -> None:
        self._place = place
        self._sql = f"SELECT \"{place.schema}\".channel('{namespace}')"
        self._tell = tell
        self._timeout = min(place.connect_timeout, place.timeout)
        self._link: Link | None = None
        self._heard = 0
        self._asked = False
        self._missed = False
        self._retry_at = 0
        super().__init__()

    def run(self) -> None:
        """Tell of every notification."""
        try:
            while not self.stopped:
                if self._link is None:
                    self._connect()
                self._wait()
                self._look_after()
        finally:
            self._hang_up()

    def _connect(self) -> None:
        if SYSTEM.elapsed() < self._retry_at:
            return
        try:
            self._link = link = connected(self._place, self._timeout)
            [[channel]] = link.say(self._sql, self._timeout)
            link.say(f'LISTEN "{channel}"', self._timeout)
        except (LinkLostError, StoreError):
            self._fail()
            return
        self._heard, self._asked = SYSTEM.elapsed(), False
        self.listens.set()
        if self._missed:
            self._missed = False
            self._tell(_NOW)

    def _fail(self) -> None:
        self._hang_up()
        self._missed = True
        self._retry_at = SYSTEM.elapsed() + _TICK_MS * 1_000_000

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self.inside, select.POLLIN)
        if self._link is not None:
            poll.register(self._link.pgconn.socket, select.POLLIN)
        found = {number for number, _ in poll.poll(_TICK_MS)}
        if self._link is not None and found - {self.inside.fileno()}:
            self._read(self._link)

    def _read(self, link: Link) -> None:
        pgconn = link.pgconn
        try:
            pgconn.consume_input()
            self._heard = SYSTEM.elapsed()
            while (note := pgconn.notifies()) is not None:
                said = note.extra
                self._tell(int(said) if said.isdigit() else _NOW)
            while self._asked and not pgconn.is_busy():
                if pgconn.get_result() is None:
                    self._asked = False
        except Error:
            self._fail()

    def _look_after(self) -> None:
        """Ask a silent connection for a sign of life, and replace one that gives none."""
        if self._link is None:
            return
        silent = SYSTEM.elapsed() - self._heard
        if silent > _DEAD_NS:
            self._fail()
        elif silent > _SILENT_NS and not self._asked:
            self._asked = True
            try:
                self._link.pgconn.send_query(b"")
                self._link.pgconn.flush()
            except Error:
                self._fail()
