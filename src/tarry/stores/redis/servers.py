"""Servers: who serves a shard: one server, the primary of sentinels, or the nodes of a cluster."""

import threading
from abc import ABC, abstractmethod
from typing import Any

from redis.crc import key_slot
from redis.exceptions import ClusterDownError, MasterDownError, RedisError

from tarry.stores.redis.layout import prefix
from tarry.stores.redis.links import Links, pack
from tarry.stores.redis.url import Address, Place

_DOWN = frozenset((b"s_down", b"o_down", b"disconnected"))


class Servers(ABC):
    """Answers with the address of a shard's primary, and learns when that has changed."""

    clustered = False
    failover = False
    """Whether another server takes the place of one that fails."""

    @abstractmethod
    def of(self, shard: int) -> Address:
        """Return who serves *shard*; raises the driver's errors when nobody can be asked."""

    def anew(self, shard: int) -> Address:
        """Return who serves *shard* where a new connection must be made."""
        return self.of(shard)

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

    def __init__(self, place: Place, links: Links) -> None:
        self._service = place.service
        self._sentinels = place.addresses
        self._silent: frozenset[Address] = frozenset()
        self._timeout = min(place.timeout, place.connect_timeout)
        self._links = links
        self._known: Address | None = None

    def of(self, shard: int) -> Address:
        """Return the primary."""
        del shard
        known = self._known
        if known is None:
            self._known = known = self._look()
        return known

    def anew(self, shard: int) -> Address:
        """Return the primary, as the sentinels know it now.

        One that hung up may have been replaced, and be back as if nothing had happened: until it is
        told, it would take writes and forget them.
        """
        self.doubt()
        return self.of(shard)

    def every(self) -> set[Address]:
        """Return the primary."""
        return {self.of(0)}

    def doubt(self) -> None:
        """Ask the sentinels again."""
        self._known = None

    def _look(self) -> Address:
        """Ask the sentinels; the one that knows of the newest failover is right.

        The others may be cut off, or not have heard yet: an old primary that came back would take
        writes, and forget them when it is told. Who is silent is only asked if nobody else knows.
        """
        failed: Exception | None = None
        found: list[tuple[int, Address]] = []
        for sentinel in sorted(self._sentinels, key=self._silent.__contains__):
            if found and sentinel in self._silent:
                break
            try:
                facts = self._ask(sentinel)
            except (RedisError, OSError) as error:
                failed = error
                self._silent = self._silent | {sentinel}
                continue
            self._silent = self._silent - {sentinel}
            flags = facts[b"flags"].split(b",")
            if b"master" in flags and not _DOWN.intersection(flags):
                primary = facts[b"ip"].decode(), int(facts[b"port"])
                found.append((int(facts[b"config-epoch"]), primary))
        if found:
            return max(found)[1]
        message = f"the sentinels see no living primary of {self._service}"
        raise failed or MasterDownError(message)

    def _ask(self, sentinel: Address) -> dict[bytes, bytes]:
        link = self._links.open(sentinel, timeout=self._timeout, sentinel=True)
        try:
            link.send(pack(("SENTINEL", "MASTER", self._service)))
            words = link.read()
        finally:
            self._links.drop(link)
        return dict(zip(words[::2], words[1::2], strict=True))


class ClusterServers(Servers):
    """The nodes of a cluster by slot, looked up again after every failure or redirection."""

    clustered = True
    failover = True

    def __init__(self, place: Place, links: Links, namespace: str) -> None:
        self._seeds = self._nodes = place.addresses
        self._timeout = min(place.timeout, place.connect_timeout)
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
        with self._lock:
            return {address for _, _, address in self._slots or self._look()}

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
        message = f"no node serves slot {slot}"
        raise ClusterDownError(message)

    def _look(self) -> list[tuple[int, int, Address]]:
        """Ask the nodes until one tells who serves which slots."""
        failed: Exception | None = None
        for node in self._nodes:
            # The next look begins with another one: this one may be cut off, and behind the times.
            self._nodes = (*self._nodes[1:], self._nodes[0])
            try:
                rows = self._ask(node)
            except (RedisError, OSError) as error:
                failed = error
                continue
            # A node that does not know its own name answers without one.
            slots = [
                (row[0], row[1], ((row[2][0] or b"").decode() or node[0], row[2][1]))
                for row in rows
            ]
            if slots:
                # Whoever is there today can be asked tomorrow, when those of the URL may be gone.
                known = {(each[0].decode(), each[1]) for row in rows for each in row[2:] if each[0]}
                others = dict.fromkeys((*sorted(known), *self._seeds))
                self._nodes = (*(each for each in others if each != node), node)
                self._slots = slots
                return slots
        raise failed or ClusterDownError("the nodes serve no slots")

    def _ask(self, node: Address) -> Any:
        link = self._links.open(node, timeout=self._timeout)
        try:
            link.send(pack(("CLUSTER", "SLOTS")))
            return link.read()
        finally:
            self._links.drop(link)


def servers(place: Place, links: Links, namespace: str) -> Servers:
    """Return who serves the shards of *namespace* at *place*."""
    if place.how == "cluster":
        return ClusterServers(place, links, namespace)
    if place.how == "sentinel":
        return SentinelServers(place, links)
    return OneServer(place)
