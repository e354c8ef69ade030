"""Links: connections to Redis servers, kept for the next call; one thread at a time."""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from tarry.clock import SYSTEM
from tarry.errors import StoreClosedError
from tarry.stores.redis.url import Address, Place

_MOST_IDLE = 64
_FRESH_NS = 1_000_000_000
"""A connection that idled longer is looked at before it is used: its server may have hung up."""


pack: Callable[[tuple[Any, ...]], bytes] = cast("Any", hiredis.pack_command)
"""Returns the words of a command as they go over the wire."""


class Link:
    """One connection, when it was last used, and what can be done with it."""

    __slots__ = ("_connection", "address", "used")

    def __init__(self, address: Address, connection: Any) -> None:
        self.address = address
        self._connection = connection
        self.used = 0

    def send(self, packed: bytes) -> None:
        """Send packed commands."""
        self._connection.send_packed_command((packed,), check_health=False)

    def read(self) -> Any:
        """Return the next reply; raises what the server refuses."""
        return self._connection.read_response(disconnect_on_error=False)

    def wait_for(self, seconds: float) -> None:
        """Wait so long for each reply from now on."""
        connection = self._connection
        connection.socket_timeout = seconds
        connection._sock.settimeout(seconds)  # noqa: SLF001 - the driver sets it only on connect
        connection._parser._socket_timeout = seconds  # noqa: SLF001

    def has_more(self) -> bool:
        """Say whether something can be read at once; raises if the server has hung up."""
        return bool(self._connection.can_read(0))

    def fileno(self) -> int:
        """Return what can be polled, -1 when it is closed."""
        sock = self._connection._sock  # noqa: SLF001 - the driver has no other way to poll several
        return -1 if sock is None else int(sock.fileno())

    def close(self) -> None:
        """Hang up."""
        self._connection.disconnect()


class Links:
    """Idle connections by address; those of a parent process are never used by a fork."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._pid = os.getpid()
        self._idle: dict[Address, deque[Link]] = {}
        self._closed = False

    def take(self, address: Address) -> Link:
        """Return a connection to *address* that nobody else uses."""
        return self.idle(address) or self.open(address)

    def idle(self, address: Address) -> Link | None:
        """Return a living connection to *address* that waits for its next use, if there is one."""
        if self._pid != os.getpid():
            self._begin_process()
        if self._closed:
            message = "the store is closed"
            raise StoreClosedError(message)
        idle = self._idle.get(address)
        while idle:
            try:
                link = idle.pop()
            except IndexError:
                break
            if SYSTEM.elapsed() - link.used < _FRESH_NS or self._alive(link):
                return link
        return None

    def give(self, link: Link) -> None:
        """Keep a connection that has no reply outstanding for the next call."""
        link.used = SYSTEM.elapsed()
        idle = self._idle.setdefault(link.address, deque())
        if self._closed or len(idle) >= _MOST_IDLE or self._pid != os.getpid():
            link.close()
        else:
            idle.append(link)

    def drop(self, link: Link) -> None:
        """Close a connection whose state is unknown."""
        link.close()

    def lose(self, link: Link) -> None:
        """Close a connection that broke, and the idle ones beside it.

        Whatever broke it has broken them too: a caller must not try one after the other.
        """
        link.close()
        self.forget(link.address)

    def forget(self, address: Address) -> None:
        """Close the idle connections to a server."""
        idle = self._idle.get(address)
        while idle:
            try:
                link = idle.pop()
            except IndexError:
                break
            link.close()

    def open(
        self, address: Address, *, timeout: float | None = None, sentinel: bool = False
    ) -> Link:
        """Connect anew, in bounded time; the driver itself repeats nothing."""
        place = self._place
        patience = timeout or place.timeout
        options: dict[str, Any] = {
            "host": address[0],
            "port": address[1],
            "db": 0 if sentinel else place.db,
            "username": place.sentinel_username if sentinel else place.username,
            "password": place.sentinel_password if sentinel else place.password,
            # Until it has introduced itself: whoever accepts and says nothing is given up early.
            "socket_timeout": min(place.connect_timeout, patience),
            "socket_connect_timeout": min(place.connect_timeout, patience),
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "tarry",
        }
        make: Any = Connection
        if place.tls:
            make = SSLConnection
            options |= place.tls_options
        connection = make(**options)
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        link = Link(address, connection)
        link.wait_for(patience)
        return link

    def _alive(self, link: Link) -> bool:
        try:
            stale = link.has_more()
        except (RedisConnectionError, OSError):
            stale = True
        if stale:
            link.close()
        return not stale

    def _begin_process(self) -> None:
        # Not closed: the descriptors are the parent's too, and closing would say goodbye for it.
        self._idle = {}
        self._pid = os.getpid()

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        for address in list(self._idle):
            self.forget(address)
