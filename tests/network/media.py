"""Media: kinds of servers, the stores that speak with them, and what was sent and executed there.

The suites of this folder run on each of them: on a store that only tests have, and on Redis.
"""

import atexit
import os
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from psycopg import Error as PostgresError
from tests.network import wire
from tests.network.servers import HOST, LIMIT, UNSYNCED, Server, postgres, python, redis
from tests.network.socket_store import TIMEOUT, SocketStore

from tarry.clock import nap
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse as parse_mysql
from tarry.stores.postgres.errors import unreached
from tarry.stores.postgres.links import Link as PostgresLink
from tarry.stores.postgres.links import LinkLostError
from tarry.stores.postgres.store import PostgresStore
from tarry.stores.postgres.url import parse as parse_postgres
from tarry.stores.postgres.verbs import TYPES, statement
from tarry.stores.postgres.wire import Statement
from tarry.stores.redis.links import Link
from tarry.stores.redis.scripts import script
from tarry.stores.redis.store import RedisStore
from tarry.stores.redis.url import parse
from tarry.stores.store import Store
from tarry.testing.proof import mysql_server
from tarry.testing.proof.postgres_server import PostgresServer

Address = tuple[str, int]

REMEMBERED = (
    "schedule",
    "reschedule",
    "cancel",
    "claim",
    "settle",
    "revive",
    "purge",
    "pause",
)
"""The verbs whose calls a medium remembers."""


class Medium(ABC):
    """A server, and all that a test must know of it to hit the exchanges of one verb."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address: Address = (HOST, server.port)

    @abstractmethod
    def store(self, address: Address, namespace: str, *, timeout: float = TIMEOUT) -> Store:
        """Open a store that gives up a call after *timeout* seconds."""

    @abstractmethod
    def verb_of(self, request: bytes) -> str:
        """Return the verb of a request, as a rule of the proxy sees it; empty if it is none."""

    @abstractmethod
    def sent(self, store: Store, verb: str) -> list[int]:
        """Return, for each request of *verb* that left *store*, how many calls are in it."""

    @abstractmethod
    def served(self, store: Store, verb: str) -> int:
        """Return how many calls of *verb* the server has executed in the namespace of *store*."""

    def close(self) -> None:
        """End the server."""
        self.server.__exit__(None, None, None)


class SocketMedium(Medium):
    """Memory stores behind a socket, in a process of their own."""

    def store(self, address: Address, namespace: str, *, timeout: float = TIMEOUT) -> Store:
        return SocketStore(address, namespace=namespace, timeout=timeout)

    def verb_of(self, request: bytes) -> str:
        return wire.verb_of(request)

    def sent(self, store: Store, verb: str) -> list[int]:
        return [1] * cast("SocketStore", store).sent[verb]

    def served(self, store: Store, verb: str) -> int:
        return cast("SocketStore", store).served(verb)


_CALL = re.compile(rb"\*\d+\r\n\$7\r\nEVALSHA\r\n\$40\r\n([0-9a-f]{40})\r\n")
_SEEN = re.compile(rb'\+\S+ \[[^\]]*\] "EVALSHA" "([0-9a-f]{40})" "2" "\{([^:}]+):')
_SCRIPTS = {
    **{verb: verb for verb in (*REMEMBERED, "renew", "counts", "forecast")},
    "get": "look",
    "scan": "waiting",
}
"""The script that is a verb's own."""
_VERBS = {script(name).sha: verb for verb, name in _SCRIPTS.items()}


class RedisMedium(Medium):
    """A real Redis; its MONITOR tells what it has executed."""

    def __init__(self, server: Server, options: str = "") -> None:
        super().__init__(server)
        self._options = options
        self._sent: dict[int, dict[str, list[int]]] = {}
        self._served: Counter[tuple[str, str]] = Counter()
        self._ear: threading.Thread | None = None

    def listen(self) -> None:
        """Count from now on what is executed; every script is known to the server before."""
        with socket.create_connection(self.address, LIMIT) as line:
            for name in _SCRIPTS.values():
                source = script(name).source
                words = (b"SCRIPT", b"LOAD", source)
                parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
                line.sendall(b"*%d\r\n%s" % (len(words), b"".join(parts)))
                assert line.recv(1_024).startswith(b"$40")
        monitor = socket.create_connection(self.address, LIMIT)
        monitor.sendall(b"MONITOR\r\n")
        assert monitor.recv(5) == b"+OK\r\n"
        monitor.settimeout(None)
        self._ear = threading.Thread(target=self._hear, args=(monitor,), daemon=True)
        self._ear.start()

    def _hear(self, monitor: socket.socket) -> None:
        with monitor, monitor.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                found = _SEEN.match(line)
                if found and found[1] in _VERBS:
                    self._served[found[2].decode(), _VERBS[found[1]]] += 1

    def store(self, address: Address, namespace: str, *, timeout: float = TIMEOUT) -> Store:
        host, port = address
        url = f"redis://{host}:{port}?timeout={timeout}&connect_timeout={timeout}{self._options}"
        store = RedisStore(parse(url), namespace=namespace)
        links = store._links
        open_link = links.open
        sent: dict[str, list[int]] = defaultdict(list)
        self._sent[id(store)] = sent

        def open_counted(address: Address, **options: Any) -> Link:
            return cast("Link", _Counted(open_link(address, **options), sent))

        links.open = open_counted  # type: ignore[method-assign]
        links.forget(address)
        return store

    def verb_of(self, request: bytes) -> str:
        found = _CALL.match(request)
        return _VERBS.get(found[1], "") if found else ""

    def sent(self, store: Store, verb: str) -> list[int]:
        return self._sent[id(store)][verb]

    def served(self, store: Store, verb: str) -> int:
        assert self._ear is not None
        assert self._ear.is_alive()
        return self._served[store.namespace, verb]

    def close(self) -> None:
        super().close()
        if self._ear is not None:
            self._ear.join(LIMIT)


_LABEL = re.compile(rb"....\x03/\* tarry (\w+) \*/ ", re.DOTALL)
_OPEN = "SELECT COUNT(*) FROM information_schema.innodb_trx"


class MysqlMedium(Medium):
    """A real MariaDB; what is hit is the exchange that ends with the commit."""

    def store(self, address: Address, namespace: str, *, timeout: float = TIMEOUT) -> Store:
        host, port = address
        options = f"timeout={timeout}&connect_timeout={max(timeout, 1)}"
        place = parse_mysql(f"mysql://root@{host}:{port}/{mysql_server.DATABASE}?{options}")
        return MysqlStore(place, namespace=namespace)

    def verb_of(self, request: bytes) -> str:
        found = _LABEL.match(request)
        return found[1].decode() if found else ""

    def sent(self, store: Store, verb: str) -> list[int]:
        del store, verb
        return [1]

    def served(self, store: Store, verb: str) -> int:
        """Whatever has not arrived yet belongs to a transaction that is still open."""
        del verb
        # Who looks at that table again within 0.1 s is shown what it was the time before.
        nap(0.11)
        [found] = cast("MysqlStore", store)._exchange.ask(_OPEN)
        return int(not found.rows[0][0])


class _Counted:
    """A connection that counts what is sent by it; all else is its own."""

    def __init__(self, link: Link, sent: dict[str, list[int]]) -> None:
        self._link = link
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "used":
            self._link.used = cast("int", value)
        else:
            super().__setattr__(name, value)

    def send(self, packed: bytes) -> None:
        self._link.send(packed)
        calls = _CALL.findall(packed)
        if calls and calls[0] in _VERBS:
            self._sent[_VERBS[calls[0]]].append(len(calls))


_BIND = re.compile(rb"B....\0([a-z_]+)\0", re.DOTALL)
_EXECUTED = re.compile(rb"execute ([a-z_]+): .*\n.*parameters: \$1 = '([^']+)'")
_STATEMENTS = {
    **{verb: verb for verb in (*REMEMBERED, "renew")},
    **{f"look_{verb}": verb for verb in ("get", "counts", "forecast")},
    "look_lanes": "scan",
}
"""The verb that begins with a statement."""


class PostgresMedium(Medium):
    """A real PostgreSQL; its log tells what it has executed."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__(cast("Server", server))
        self._log = server.folder / "log"
        self._begin = self._log.stat().st_size
        self._sent: dict[int, dict[str, list[int]]] = {}

    def store(self, address: Address, namespace: str, *, timeout: float = TIMEOUT) -> Store:
        host, port = address
        url = f"postgresql://tarry@{host}:{port}/postgres?sslmode=disable&gssencmode=disable"
        place = parse_postgres(f"{url}&timeout={timeout}&connect_timeout={max(timeout, 2)}")
        store = PostgresStore(place, namespace=namespace)
        links = store._links
        links.forget()
        sent: dict[str, list[int]] = defaultdict(list)
        self._sent[id(store)] = sent
        open_link = links.open
        looks = store._looking._statements.values()
        named = [*looks, *(statement(verb, place.schema) for verb in TYPES)]

        def open_counted() -> PostgresLink:
            link = open_link()
            # What was prepared begins, from then on, with the name of its statement.
            try:
                link.prepare([one for one in named if one.name.decode() in _STATEMENTS], LIMIT)
            except (LinkLostError, PostgresError) as error:
                # Cut off just now: a store says that in its own words, and so it is said here.
                link.close()
                raise unreached(str(error), place.text) from error
            return cast("PostgresLink", _CountedLink(link, sent))

        links.open = open_counted  # type: ignore[method-assign]
        return store

    def verb_of(self, request: bytes) -> str:
        found = _BIND.match(request)
        return _STATEMENTS.get(found[1].decode(), "") if found else ""

    def sent(self, store: Store, verb: str) -> list[int]:
        return self._sent[id(store)][verb]

    def served(self, store: Store, verb: str) -> int:
        with self._log.open("rb") as log:
            log.seek(self._begin)
            said = _EXECUTED.findall(log.read())
        wanted = store.namespace.encode()
        return sum(
            space == wanted and _STATEMENTS.get(name.decode()) == verb for name, space in said
        )

    def close(self) -> None:
        """Leave the server to the others."""


class _CountedLink:
    """A connection that counts what is run by it; all else is its own."""

    def __init__(self, link: PostgresLink, sent: dict[str, list[int]]) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_sent", sent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._link, name, value)

    def _run(self, told: Statement, words: list[bytes | None], seconds: float) -> Any:
        verb = _STATEMENTS.get(told.name.decode())
        if verb is not None:
            self._sent[verb].append(1)
        return self._link._run(told, words, seconds)


class Forgetful:
    """The planted bug: every try acts, as on a medium that does not remember calls."""

    def __init__(self, store: Store, verbs: Collection[str] = REMEMBERED) -> None:
        self._store = store
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._store, name)
        if name not in self._verbs:
            return act

        def forget(*args: Any, **options: Any) -> Any:
            options.pop("call", None)
            return act(*args, **options)

        return forget


def socket_medium(_folder: Path) -> Medium:
    return SocketMedium(python("store_server.py"))


def redis_medium(folder: Path) -> Medium:
    return RedisMedium(redis(folder, *UNSYNCED))


def sharded_medium(folder: Path) -> Medium:
    return RedisMedium(redis(folder, *UNSYNCED), "&shards=4")


@cache
def _logged(_pid: int) -> PostgresServer:
    server = postgres(log_min_duration_statement="0")
    atexit.register(server.close)
    return server


def postgres_medium(_folder: Path) -> Medium:
    return PostgresMedium(_logged(os.getpid()))


MEDIA: dict[str, Callable[[Path], Medium]] = {
    "socket": socket_medium,
    "postgres": postgres_medium,
    "redis": redis_medium,
    "redis in shards": sharded_medium,
}


def started(name: str, folder: Path) -> Medium:
    """Start the server of a medium, ready to count what it executes."""
    medium = MEDIA[name](folder)
    if isinstance(medium, RedisMedium):
        medium.listen()
    return medium


def stores(names: Sequence[str] = tuple(MEDIA)) -> list[Any]:
    """Return the media as the parameters of a fixture."""
    marks = {name: [pytest.mark.medium(name.split()[0])] for name in names if name != "socket"}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]
