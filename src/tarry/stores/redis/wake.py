"""Wake-ups by pub/sub: one listener per process, which heals itself.

Scripts publish on a channel of their shard. The listener has a connection to each primary that
serves shards, asks a silent one for a sign of life every second, and replaces it if none comes;
whatever was published meanwhile is made up for by one wake-up when it listens again.
"""

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from redis.exceptions import RedisError

from tarry.clock import SYSTEM
from tarry.stores.redis.layout import prefix
from tarry.stores.redis.links import Link, Links, pack
from tarry.stores.redis.servers import Servers
from tarry.stores.redis.url import Address, Place
from tarry.stores.store import Watcher

_NS = 1_000_000_000
_SILENT_NS = 1 * _NS
"""A connection that was silent for so long is asked for a sign of life."""
_DEAD_NS = 2 * _NS
"""A connection that was silent for so long is replaced."""
_TICK_MS = 250
_NOW = 0
"""The due that is told when wake-ups may have been missed: look at once."""
_PING = pack(("PING",))


class Wakeups:
    """Tells the watchers of this process what the scripts of all processes publish."""

    def __init__(
        self, place: Place, namespace: str, shards: int, links: Links, servers: Servers
    ) -> None:
        self._listener = partial(_Listener, place, namespace, shards, links, servers, self._tell)
        self._patience = place.connect_timeout + 1
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._running: _Listener | None = None

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* for news; listens when it returns, unless the server is away."""
        if self._pid != os.getpid():
            self._begin_process()
        with self._lock:
            self._watchers.append(callback)
            if self._running is None:
                self._running = self._listener()
            running = self._running
        running.listens.wait(self._patience)

        def undo() -> None:
            with self._lock:
                if callback in self._watchers:
                    self._watchers.remove(callback)

        return undo

    def _tell(self, due: int) -> None:
        for watcher in list(self._watchers):
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


class _Ear:
    """One connection that is subscribed to the channels of some shards."""

    def __init__(self, link: Link, channels: list[str], *, sharded: bool) -> None:
        self.link = link
        self.missing = len(channels)
        self.heard = SYSTEM.elapsed()
        self.asked = False
        verb = "SSUBSCRIBE" if sharded else "SUBSCRIBE"
        for channel in channels:
            link.send(pack((verb, channel)))


class _Listener:
    """A thread with one ear at each primary."""

    def __init__(
        self,
        place: Place,
        namespace: str,
        shards: int,
        links: Links,
        servers: Servers,
        tell: Callable[[int], None],
    ) -> None:
        self._namespace = namespace
        self._shards = range(shards)
        self._links = links
        self._servers = servers
        self._tell = tell
        self._timeout = min(place.connect_timeout, 1.0)
        self._ears: dict[Address, _Ear] = {}
        self._plan: dict[Address, list[str]] = {}
        self._missed = False
        self._stopped = False
        self._retry_at = 0
        self._inside, self._outside = socket.socketpair()
        self.listens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-wake", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its connections."""
        self._stopped = True
        with suppress(OSError):
            self._outside.send(b"x")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped:
                if not self._ears or self._replanned():
                    self._connect()
                self._poll()
                self._look_after()
        finally:
            self._hang_up()
            self._inside.close()
            self._outside.close()

    # ---- connections

    def _replanned(self) -> bool:
        """Say whether other servers than before serve the shards."""
        try:
            return self._plan != self._planned()
        except (RedisError, OSError):
            return True

    def _planned(self) -> dict[Address, list[str]]:
        plan: dict[Address, list[str]] = {}
        for shard in self._shards:
            channel = f"{prefix(self._namespace, shard)}wake"
            plan.setdefault(self._servers.of(shard), []).append(channel)
        return plan

    def _connect(self) -> None:
        if SYSTEM.elapsed() < self._retry_at:
            return
        self._hang_up()
        # Whatever was published since the ears were open is made up for.
        self._missed = self._missed or self.listens.is_set()
        try:
            self._plan = self._planned()
            for address, channels in self._plan.items():
                link = self._links.open(address, timeout=self._timeout)
                self._ears[address] = _Ear(link, channels, sharded=self._servers.clustered)
        except (RedisError, OSError):
            self._fail()

    def _fail(self) -> None:
        self._hang_up()
        self._missed = True
        self._servers.doubt()
        self._retry_at = SYSTEM.elapsed() + _TICK_MS * 1_000_000

    def _hang_up(self) -> None:
        for ear in self._ears.values():
            self._links.drop(ear.link)
        self._ears = {}

    # ---- listening

    def _poll(self) -> None:
        poll = select.poll()
        poll.register(self._inside.fileno(), select.POLLIN)
        by_number = {ear.link.fileno(): ear for ear in self._ears.values()}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(_TICK_MS):
            ear = by_number.get(number)
            if ear is not None:
                try:
                    self._read(ear)
                except (RedisError, OSError):
                    self._fail()
                    return

    def _read(self, ear: _Ear) -> None:
        while not self._stopped and ear.link.has_more():
            words = ear.link.read()
            ear.heard, ear.asked = SYSTEM.elapsed(), False
            if not isinstance(words, list):
                continue
            match words[0]:
                case b"message" | b"smessage":
                    self._tell(int(words[2]) if words[2].isdigit() else _NOW)
                case b"subscribe" | b"ssubscribe":
                    ear.missing -= 1
                    self._settled()
                case b"unsubscribe" | b"sunsubscribe":
                    # The slot has moved to another node.
                    raise RedisError
                case _:
                    pass

    def _settled(self) -> None:
        if any(ear.missing for ear in self._ears.values()):
            return
        self.listens.set()
        if self._missed:
            self._missed = False
            self._tell(_NOW)

    def _look_after(self) -> None:
        """Ask silent connections for a sign of life, and replace those that give none."""
        now = SYSTEM.elapsed()
        for ear in list(self._ears.values()):
            silent = now - ear.heard
            if silent > _DEAD_NS:
                self._fail()
                return
            if silent > _SILENT_NS and not ear.asked:
                ear.asked = True
                try:
                    ear.link.send(_PING)
                except (RedisError, OSError):
                    self._fail()
                    return
