"""Survey: what kind of Redis this is, how a namespace is laid out on it, what is wrong with it."""

from collections.abc import Iterator
from typing import Any

from redis.exceptions import ResponseError

from tarry.clock import SYSTEM
from tarry.errors import SchemaVersionError, StoreError, StoreRefusedError
from tarry.stores.redis.exchange import Exchange
from tarry.stores.redis.layout import VERSION, meta
from tarry.stores.redis.url import Address, Place

_OLDEST = (6, 2)
_OLDEST_CLUSTER = (7, 0)
_MAINTAINED = (7, 0)
_SKEW_MS = 500
_SAVES = ("appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory")


class Survey:
    """Asks the servers about themselves when a store is opened; refuses what cannot work."""

    def __init__(self, exchange: Exchange, place: Place, namespace: str) -> None:
        self._exchange = exchange
        self._place = place
        self._namespace = namespace
        for address in self._primaries():
            self._refuse_strangers(address)

    def _primaries(self) -> list[Address]:
        # By way of a call: errors of whoever must be asked first are told in tarry's words.
        try:
            return sorted(self._exchange.servers.every())
        except Exception as error:
            raise self._exchange.failed(error) from error

    def _refuse_strangers(self, address: Address) -> None:
        info = self._info(address, "server")
        mode = info.get("redis_mode") or info.get("server_mode")  # as Valkey calls it
        if mode == "sentinel":
            message = (
                f"{_text(address)} is a sentinel, which keeps no tasks; nothing was written; "
                "write redis+sentinel://host:port/service in the store's URL"
            )
            raise StoreRefusedError(message)
        version = _version(info)
        oldest = _OLDEST_CLUSTER if self._exchange.servers.clustered else _OLDEST
        if version < oldest:
            wanted = ".".join(map(str, oldest))
            message = (
                f"{_text(address)} is Redis {info.get('redis_version', 'of an unknown version')}; "
                f"tarry needs {wanted} or newer, or Valkey; nothing was written"
            )
            raise StoreRefusedError(message)
        if mode == "cluster" and not self._exchange.servers.clustered:
            message = (
                f"{_text(address)} is a node of a cluster; nothing was written; "
                "write redis+cluster:// in the store's URL"
            )
            raise StoreRefusedError(message)

        role = self._info(address, "replication").get("role")
        if role == "slave" and not self._exchange.servers.failover:
            message = (
                f"{_text(address)} is a read-only replica; nothing was written; name the primary "
                "in the store's URL, or its sentinels with redis+sentinel://"
            )
            raise StoreRefusedError(message)

    def settle_layout(self, shards: int | None, default: int) -> int:
        """Return the number of shards of the namespace, which is fixed with its first use."""
        known = self._exchange.call("layout", 0, (VERSION, shards or default))
        layout, there = int(known[0]), int(known[1])
        if layout > VERSION:
            message = (
                f"namespace {self._namespace!r} at {self._place.text} has layout {layout}, made by "
                f"a newer tarry; this one knows {VERSION}: upgrade it; nothing was written"
            )
            raise SchemaVersionError(message)
        if shards is not None and shards != there:
            message = (
                f"namespace {self._namespace!r} at {self._place.text} has {there} shards, which "
                f"cannot be changed to {shards}; leave shards= out of the URL, or use another "
                "namespace; nothing was written"
            )
            raise StoreRefusedError(message)
        return there

    def survives(self) -> str:
        """Say what an acknowledged task survives on these servers."""
        kept = min(
            (_kept(self._config(address)) for address in self._primaries()),
            key=_GRADES.index,
        )
        replicas = self._place.wait_replicas
        if replicas:
            return f"node loss ({replicas} of the replicas confirm each call); {kept}"
        return kept

    def facts(self) -> dict[str, str]:
        """Tell versions and persistence."""
        told: dict[str, str] = {}
        for address in self._primaries():
            info = self._info(address, "server")
            name = "valkey" if "valkey_version" in info else "redis"
            version = info.get(f"{name}_version", "?")
            told[_text(address)] = f"{name} {version}, {_kept(self._config(address))}"
        return {"servers": "; ".join(f"{where}: {what}" for where, what in told.items())}

    def findings(self) -> Iterator[str]:
        """Tell what is wrong with the servers."""
        key = meta(self._namespace)
        if not self._exchange.call("read", 0, ("EXISTS", "meta")):
            yield (
                f"the key {key} is gone: the server was emptied while tarry used it; "
                "start producers and workers anew"
            )
        for address in self._primaries():
            yield from self._findings(address)

    def _findings(self, address: Address) -> Iterator[str]:
        where, config = _text(address), self._config(address)
        if _version(self._info(address, "server")) < _MAINTAINED:
            yield f"{where} is older than Redis 7.0, which is no longer maintained: upgrade it"
        policy = config.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            yield (
                f"{where} has maxmemory-policy {policy}: it throws tasks away when its memory is "
                "full; set it to noeviction"
            )
        kept = _kept(config)
        if kept == _NOTHING:
            yield f"{where} keeps no files: a restart loses every task; set appendonly yes"
        elif kept == _SNAPSHOTS:
            yield (
                f"{where} keeps snapshots only: a crash loses what came after the last one; "
                "set appendonly yes"
            )
        before = SYSTEM.now()
        seconds, micros = self._exchange.command(address, "TIME")
        skew = int(seconds) * 1_000 + int(micros) // 1_000 - (before + SYSTEM.now()) // 2
        if abs(skew) > _SKEW_MS:
            yield (
                f"the clock of {where} is {abs(skew) / 1_000:.1f} s "
                f"{'ahead of' if skew > 0 else 'behind'} this machine's: tasks run by the "
                "server's clock; synchronise both (NTP)"
            )

    def _info(self, address: Address, section: str) -> dict[str, str]:
        reply = self._exchange.command(address, "INFO", section)
        if isinstance(reply, ResponseError):
            raise self._exchange.failed(reply) from reply
        if not isinstance(reply, bytes):
            message = f"what answers at {_text(address)} is no Redis; nothing was written"
            raise StoreRefusedError(message)
        lines = reply.decode(errors="replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _config(self, address: Address) -> dict[str, str]:
        """Return some of the server's settings; empty where asking for them is not allowed."""
        found: dict[str, str] = {}
        try:
            replies: list[Any] = self._exchange.commands(
                address, [("CONFIG", "GET", name) for name in _SAVES]
            )
        except StoreError:
            return found
        for reply in replies:
            if isinstance(reply, list):
                texts = [text.decode(errors="replace") for text in reply]
                found |= dict(zip(texts[::2], texts[1::2], strict=True))
        return found


_NOTHING = "nothing"
_SNAPSHOTS = "what the last snapshot holds"
_UNKNOWN = "what the server is set up for (CONFIG is not allowed)"
_PROCESS = "process kill; a power cut costs up to two seconds"
_POWER = "power loss"
_GRADES = [_NOTHING, _SNAPSHOTS, _UNKNOWN, _PROCESS, _POWER]


def _kept(config: dict[str, str]) -> str:
    if "appendonly" not in config:
        return _UNKNOWN
    if config["appendonly"] == "yes":
        return _POWER if config.get("appendfsync") == "always" else _PROCESS
    return _SNAPSHOTS if config.get("save") else _NOTHING


def _version(info: dict[str, str]) -> tuple[int, ...]:
    words = info.get("redis_version", "0").split(".")[:2]
    return tuple(int(word) if word.isdigit() else 0 for word in words)


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
