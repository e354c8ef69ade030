"""Servers: who serves a shard: one server, the primary of sentinels, or the nodes of a cluster."""

import threading
from abc import ABC, abstractmethod
from typing import Any, cast

from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.sentinel import Sentinel

from tarry.stores.redis.layout import prefix
from tarry.stores.redis.links import Links, pack
from tarry.stores.redis.url import Address, Place


class Servers(ABC):
    """Answers with the address of a shard's primary, and learns when that has changed."""

    clustered = False
    failover = False
    """Whether another server takes the place of one that fails."""

    @abstractmethod
    def of(self, shard: int) -> Address:
        """Return who serves *shard*; raises the driver's errors when nobody can be asked."""

    @abstractmethod
    def every(self) -> set[Address]:
        """Return all primaries."""

    @abstractmethod
    def doubt(self) -> None:
        """Note that a server failed or is not the one: look again before the next call."""


class OneServer(Servers):
    """The server of the URL."""

    def __init__(self, place: Place) -> None:
        self._address = place.addresses[0]

    def of(self, shard: int) -> Address:
        """Return the one address."""
        del shard
        return self._address

    def every(self) -> set[Address]:
        """Return the one address."""
        return {self._address}

    def doubt(self) -> None:
        """Do nothing: there is no other."""


class SentinelServers(Servers):
    """The primary that sentinels name, asked for again after every failure."""

    failover = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: Address | None = None

    def of(self, shard: int) -> Address:
        """Return the primary."""
        del shard
        known = self._known
        if known is None:
            self._known = known = self._ask()
        return known

    def every(self) -> set[Address]:
        """Return the primary."""
        return {self.of(0)}

    def doubt(self) -> None:
        """Ask the sentinels again."""
        self._known = None

    def _ask(self) -> Address:
        place = self._place
        options: dict[str, Any] = {
            "socket_timeout": min(place.timeout, place.connect_timeout),
            "socket_connect_timeout": place.connect_timeout,
            "username": place.sentinel_username,
            "password": place.sentinel_password,
            "protocol": 2,
        }
        if place.tls:
            options |= {"ssl": True, **place.tls_options}
        sentinel: Any = cast("Any", Sentinel)(list(place.addresses), sentinel_kwargs=options)
        try:
            host, port = sentinel.discover_master(place.service)
        finally:
            for client in sentinel.sentinels:
                client.close()
        return str(host), int(port)


class ClusterServers(Servers):
    """The nodes of a cluster by slot, looked up again after every failure or redirection."""

    clustered = True
    failover = True

    def __init__(self, place: Place, links: Links, namespace: str) -> None:
        self._seeds = place.addresses
        self._links = links
        self._namespace = namespace
        self._lock = threading.Lock()
        self._slots: list[tuple[int, int, Address]] = []
        self._shards: dict[int, Address] = {}

    def of(self, shard: int) -> Address:
        """Return the node that has the shard's slot."""
        address = self._shards.get(shard)
        if address is None:
            with self._lock:
                address = self._find(shard)
        return address

    def every(self) -> set[Address]:
        """Return all primaries that have slots."""
        self.of(0)
        return {address for _, _, address in self._slots}

    def doubt(self) -> None:
        """Look the slots up again."""
        self._shards = {}
        self._slots = []

    def _find(self, shard: int) -> Address:
        slots = self._slots or self._look()
        slot = key_slot(prefix(self._namespace, shard).encode())
        for first, last, address in slots:
            if first <= slot <= last:
                self._shards[shard] = address
                return address
        message = f"CLUSTERDOWN no node serves slot {slot}"
        raise RedisError(message)

    def _look(self) -> list[tuple[int, int, Address]]:
        """Ask the nodes, those of the URL first, until one tells who serves which slots."""
        failed: Exception | None = None
        for seed in self._seeds:
            try:
                link = self._links.take(seed)
                try:
                    link.send(pack(("CLUSTER", "SLOTS")))
                    rows = link.read()
                except BaseException:
                    self._links.drop(link)
                    raise
                self._links.give(link)
            except (RedisError, OSError) as error:
                failed = error
                continue
            self._slots = [
                (row[0], row[1], (row[2][0].decode() or seed[0], row[2][1])) for row in rows
            ]
            # Whoever is a primary today can be asked tomorrow, when the seeds may be gone.
            known = {address for _, _, address in self._slots}
            self._seeds = (*dict.fromkeys((*self._seeds, *sorted(known))),)
            if self._slots:
                return self._slots
        raise failed or RedisError("CLUSTERDOWN the nodes serve no slots")


def servers(place: Place, links: Links, namespace: str) -> Servers:
    """Return who serves the shards of *namespace* at *place*."""
    if place.how == "cluster":
        return ClusterServers(place, links, namespace)
    if place.how == "sentinel":
        return SentinelServers(place)
    return OneServer(place)
