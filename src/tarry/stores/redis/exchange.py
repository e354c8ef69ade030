"""Exchange: calls of scripts out, replies in; redirections and unknown scripts are dealt with here.

The words of a call are packed once and go through the connection's own socket. Calls of several
shards leave before the first reply is read, so that servers work on them side by side.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace
from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from tarry.clock import SYSTEM, nap
from tarry.errors import StoreError, StoreUnavailableError
from tarry.stores.redis.errors import translate
from tarry.stores.redis.layout import prefix
from tarry.stores.redis.links import Link, Links, pack
from tarry.stores.redis.scripts import Script, script
from tarry.stores.redis.servers import Servers
from tarry.stores.redis.url import Address, Place

Words: TypeAlias = Sequence[str | bytes | int]
Call: TypeAlias = tuple[int, Words]
"""A shard, and what its script is told."""

_WAIT_MS = 1_000
_QUICK_TRIES = 3
"""After so many redirections without a pause nodes contradict each other: time must pass."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2
_NEVER = "!"
"""The name behind a shard's prefix of a key that never exists.

Each script names two keys, one of which is never there: while a cluster moves their slot, it then
answers TRYAGAIN on both sides instead of running a script on half of its keys.
"""

_PASSING = (AskError, NoScriptError, TryAgainError)
"""Refusals after which the same call may be answered when it is sent again, here or elsewhere."""

_UNKNOWN: Address = ("", 0)


class _Sent(msgspec.Struct):
    """A call on its way."""

    place: int
    shard: int
    words: tuple[Any, ...]
    address: Address = _UNKNOWN
    asking: bool = False


class Exchange:
    """Calls scripts on the shards of one namespace."""

    def __init__(self, place: Place, namespace: str, links: Links, servers: Servers) -> None:
        self._text = place.text
        self._patience_ns = int(place.timeout * 1e9)
        self.namespace = namespace
        self._links = links
        self.servers = servers
        self._wait = pack(("WAIT", place.wait_replicas, _WAIT_MS)) if place.wait_replicas else None
        self._replicas = place.wait_replicas
        self._keys: dict[int, tuple[str, str]] = {}

    def call(self, name: str, shard: int, words: Words, *, durable: bool = False) -> Any:
        """Run the script *name* on one shard; returns its reply."""
        if durable and self._wait:
            return self.calls(name, [(shard, words)], durable=True)[0]
        lua = script(name, clustered=self.servers.clustered)
        packed = pack((b"EVALSHA", lua.sha, b"2", *self._names(shard), *words))
        link = None
        try:
            link = self._take(shard, self.servers.of(shard))
            link.send(packed)
            reply = link.read()
        except ResponseError as error:
            if link is None:
                raise self.failed(error) from error
            self._links.give(link)
            if not isinstance(error, _PASSING):
                raise self.failed(error) from error
            return self.calls(name, [(shard, words)], durable=durable)[0]
        except (RedisError, OSError) as error:
            if link is not None:
                self._links.lose(link)
            raise self.failed(error) from error
        except BaseException:
            if link is not None:
                self._links.drop(link)
            raise
        self._links.give(link)
        return reply

    def flow(
        self, name: str, shard: int, steps: Iterable[Words], *, durable: bool = False
    ) -> Iterator[Any]:
        """Run the script *name* on one shard once for each step, in order; yields the replies.

        While a server is at work on a step the next one is made, and the reply before it is read
        by whoever asks: so the two never wait for each other for long. None leaves before the one
        before it was answered, else one that is refused and repeated would be out of order.
        """
        if durable and self._wait:
            for words in steps:
                yield self.calls(name, [(shard, words)], durable=True)[0]
            return
        lua = script(name, clustered=self.servers.clustered)
        head = (b"EVALSHA", lua.sha, b"2", *self._names(shard))
        link, sent = None, None
        try:
            for words in steps:
                packed = pack((*head, *words))
                if link is None or sent is None:
                    link = self._take(shard, self.servers.of(shard))
                    link.send(packed)
                    sent = words
                    continue
                reply = self._reply(link, name, (shard, sent))
                link.send(packed)
                sent = words
                yield reply
            if link is not None and sent is not None:
                last = self._reply(link, name, (shard, sent))
                self._links.give(link)
                link = None
                yield last
        except (RedisError, OSError) as error:
            if link is not None and not isinstance(error, ResponseError):
                self._links.lose(link)
                link = None
            raise self.failed(error) from error
        finally:
            if link is not None:
                self._links.drop(link)

    def _reply(self, link: Link, name: str, call: Call) -> Any:
        """Return the reply to a call that was sent; what is refused for now is called again."""
        try:
            return link.read()
        except _PASSING:
            return self.calls(name, [call])[0]

    def calls(self, name: str, calls: Sequence[Call], *, durable: bool = False) -> list[Any]:
        """Run the script *name* on several shards at once; returns the replies in that order."""
        lua = script(name, clustered=self.servers.clustered)
        replies: list[Any] = [None] * len(calls)
        pending = [
            _Sent(place, shard, (b"EVALSHA", lua.sha, b"2", *self._names(shard), *words))
            for place, (shard, words) in enumerate(calls)
        ]
        deadline, pause = SYSTEM.elapsed() + self._patience_ns, _FIRST_PAUSE
        for tries in count(1):
            left, early = [], False
            for sent, reply in self._round(pending, durable=durable):
                if not isinstance(reply, ResponseError):
                    replies[sent.place] = reply
                elif not isinstance(reply, _PASSING) or SYSTEM.elapsed() > deadline:
                    raise self.failed(reply) from reply
                else:
                    left.append(self._again(sent, reply, lua))
                    early = early or isinstance(reply, TryAgainError)
            if not left:
                break
            if tries > _QUICK_TRIES or early:
                nap(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            pending = left
        return replies

    def command(self, address: Address, *words: str | int) -> Any:
        """Say one plain command to one server."""
        return self.commands(address, [words])[0]

    def commands(self, address: Address, commands: Sequence[Words]) -> list[Any]:
        """Say plain commands to one server, in one go; an error is in the place of its reply."""
        try:
            link = self._links.take(address)
            try:
                packed = b"".join(pack(tuple(words)) for words in commands)
                link.send(packed)
                replies = [_read(link) for _ in commands]
            except BaseException:
                self._links.lose(link)
                raise
            self._links.give(link)
        except (RedisError, OSError) as error:
            raise self.failed(error) from error
        return replies

    def _take(self, shard: int, address: Address) -> Link:
        """Return a connection to who serves *shard*, which was at *address* a moment ago."""
        link = self._links.idle(address)
        if link is None:
            link = self._links.open(address if self.servers.clustered else self.servers.anew(shard))
        return link

    def _names(self, shard: int) -> tuple[str, str]:
        names = self._keys.get(shard)
        if names is None:
            text = prefix(self.namespace, shard)
            self._keys[shard] = names = text, text + _NEVER
        return names

    def _round(self, pending: list[_Sent], *, durable: bool) -> list[tuple[_Sent, Any]]:
        """Send all that is pending, then read all replies."""
        groups: dict[Address, list[_Sent]] = {}
        links: list[tuple[Link, list[_Sent]]] = []
        answered: list[tuple[_Sent, Any]] = []
        failed: Exception | None = None
        wait = self._wait if durable else None
        try:
            for sent in pending:
                known = sent.address != _UNKNOWN
                address = sent.address if known else self.servers.of(sent.shard)
                groups.setdefault(address, []).append(sent)
            for address, group in groups.items():
                link = self._take(group[0].shard, address)
                links.append((link, group))
                link.send(_packed(group, wait))
            while links:
                link, group = links[-1]
                replies = []
                for sent in group:
                    if sent.asking:
                        _read(link)
                    replies.append((sent, _read(link)))
                if wait is not None:
                    self._confirm(_read(link), replies)
                links.pop()
                self._links.give(link)
                answered += replies
        except (RedisError, OSError) as error:
            failed = error
        finally:
            for link, _ in links:
                self._links.lose(link)
        if failed is not None:
            raise self.failed(failed) from failed
        return answered

    def _confirm(self, reached: Any, replies: list[tuple[_Sent, Any]]) -> None:
        """Raise unless enough replicas have what was written, if anything was."""
        if all(isinstance(reply, ResponseError) for _, reply in replies):
            return
        if isinstance(reached, ResponseError):
            raise reached
        if reached < self._replicas:
            message = (
                f"{self._text}: {reached} of {self._replicas} replicas confirmed within "
                f"{_WAIT_MS / 1_000:g} s; the primary has it, a failover may lose it"
            )
            raise StoreUnavailableError(message)

    def _again(self, sent: _Sent, error: ResponseError, lua: Script) -> _Sent:
        """Return the call as it is to be sent once more."""
        if isinstance(error, NoScriptError):
            words = (b"EVAL", lua.source, *sent.words[2:])
            return replace(sent, words=words)
        if isinstance(error, MovedError):
            self.servers.doubt()
            # A node that does not know the other's name leaves it out.
            known = error.node_addr if error.host else _UNKNOWN
            return replace(sent, address=known, asking=False)
        if isinstance(error, AskError):
            return replace(sent, address=error.node_addr, asking=True)
        return replace(sent, address=_UNKNOWN, asking=False)

    def failed(self, error: Exception) -> StoreError:
        """Return *error* in tarry's words; who failed is looked up anew before the next call."""
        if isinstance(error, StoreError):
            return error
        self.servers.doubt()
        return translate(error, self._text, failover=self.servers.failover)


def _packed(group: list[_Sent], wait: bytes | None) -> bytes:
    parts = []
    for sent in group:
        if sent.asking:
            parts.append(pack(("ASKING",)))
        parts.append(pack(sent.words))
    if wait is not None:
        parts.append(wait)
    return b"".join(parts)


def _read(link: Link) -> Any:
    """Return the next reply, errors of the server included."""
    try:
        return link.read()
    except ResponseError as error:
        return error
