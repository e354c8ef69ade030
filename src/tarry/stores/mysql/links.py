"""Links: connections to a MySQL server, kept for the next call; one thread at a time."""

import os
import select
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pymysql
from pymysql.constants import CLIENT

from tarry.clock import SYSTEM
from tarry.errors import StoreBusyError, StoreClosedError
from tarry.stores.mysql.errors import NoDatabaseError, translate
from tarry.stores.mysql.url import Place

_FRESH_NS = 1_000_000_000
"""A connection that idled longer is looked at before it is used: its server may have hung up."""
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', "
    "innodb_lock_wait_timeout = {lock_wait}, {idle}"
)
# Who vanished without a goodbye must not keep its locks for long.
_IDLE_MARIADB = "wait_timeout = 600, idle_transaction_timeout = {patience}"
_IDLE_MYSQL = "wait_timeout = 20"


class Result(msgspec.Struct, frozen=True, gc=False):
    """What one statement answered: its rows, or how many it changed and which id it drew."""

    rows: Sequence[Any]
    count: int
    drawn: int = 0


class Link:
    """One connection, and when it was last used."""

    __slots__ = ("_connection", "_cursor", "used")

    def __init__(self, connection: "pymysql.Connection[Any]") -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.used = SYSTEM.elapsed()

    @property
    def version(self) -> str:
        """What the server said it is."""
        return str(self._connection.server_version)  # type: ignore[attr-defined]

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB, which answers with rows where MySQL must be asked again."""
        return "mariadb" in self.version.lower()

    def run(self, statements: Sequence[str], verb: str = "") -> list[Result]:
        """Send statements in one go; raises where one fails, and those behind it did nothing.

        *verb* is what they are for: whoever looks at the server's list of processes sees it.
        """
        cursor = self._cursor
        text = "; ".join(statements)
        cursor.execute(f"/* tarry {verb} */ {text}" if verb else text)
        results = []
        while True:
            rows = () if cursor.description is None else cursor.fetchall()
            results.append(Result(rows, cursor.rowcount, cursor.lastrowid or 0))
            if not cursor.nextset():
                return results

    def has_more(self) -> bool:
        """Say whether something can be read although nothing was asked: a goodbye."""
        sock = self._connection._sock  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
        if sock is None:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def wait_for(self, seconds: float) -> None:
        """Wait so long for each reply from now on."""
        self._connection._read_timeout = seconds  # type: ignore[attr-defined]  # noqa: SLF001
        self._connection._write_timeout = seconds  # type: ignore[attr-defined]  # noqa: SLF001

    def close(self) -> None:
        """Hang up, without a word: a goodbye could block."""
        self._connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001


class Links:
    """Idle connections; those of a parent process are never used by a fork."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        # Not closed: the descriptors are the parent's too.
        self._kept = getattr(self, "_idle", None)
        self._idle: deque[Link] = deque()
        self._pid = os.getpid()
        self._free = threading.Semaphore(self._place.connections)

    @contextmanager
    def link(self, *, reserved: bool = False) -> Iterator[Link]:
        """Lend a connection; one that broke is closed, and the idle ones beside it.

        *reserved*: renewals do not wait for others, or leases would end because callers are many.
        """
        if self._pid != os.getpid():
            self._begin_process()
        if self._closed:
            message = "the store is closed"
            raise StoreClosedError(message)
        free = self._free
        if not reserved and not free.acquire(timeout=self._place.timeout):
            message = (
                f"all {self._place.connections} connections to {self._place.text} were in use for "
                f"{self._place.timeout:g} s; nothing was written; allow more with connections="
            )
            raise StoreBusyError(message)
        try:
            link = self._living() or self.open()
            try:
                yield link
            except Exception:
                if link.has_more():
                    link.close()
                    self._forget()
                else:
                    self._settle(link)
                raise
            except BaseException:
                link.close()
                raise
            self._give(link)
        finally:
            if not reserved:
                free.release()

    def _settle(self, link: Link) -> None:
        """Take back what a refused statement left open."""
        try:
            link.run(["ROLLBACK"])
        except Exception:  # noqa: BLE001 - whatever it is, this connection is of no use any more
            link.close()
            self._forget()
        else:
            self._give(link)

    def _living(self) -> Link | None:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            if SYSTEM.elapsed() - link.used < _FRESH_NS or not link.has_more():
                return link
            link.close()

    def _give(self, link: Link) -> None:
        link.used = SYSTEM.elapsed()
        if self._closed or self._pid != os.getpid():
            link.close()
        else:
            self._idle.append(link)

    def _forget(self) -> None:
        """Close what is idle: whatever broke one connection has broken the others, too."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def open(self) -> Link:
        """Connect anew, in bounded time."""
        place = self._place
        patience = min(place.connect_timeout, place.timeout)
        # Shorter than the wait for a reply: a lock that is not to be had must be told as such.
        lock_wait = max(1, int(place.timeout / 2))
        options: dict[str, Any] = dict(place.tls)
        if "ssl_ca" in options:
            options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
        try:
            connection: pymysql.Connection[Any] = pymysql.connect(
                host=place.host,
                port=place.port,
                unix_socket=place.unix_socket,
                user=place.user,
                password=place.password or "",
                database=place.database,
                charset="utf8mb4",
                # Said below, with the rest of what a session needs.
                autocommit=None,
                connect_timeout=patience,
                # Until it has introduced itself: whoever says nothing is given up early.
                read_timeout=patience,
                write_timeout=patience,
                client_flag=CLIENT.MULTI_STATEMENTS,
                program_name="tarry",
                local_infile=False,
                **options,
            )
        except (pymysql.MySQLError, OSError):
            raise
        except Exception as error:
            raise NoDatabaseError from error
        link = Link(connection)
        try:
            idle = _IDLE_MARIADB if link.is_mariadb else _IDLE_MYSQL
            idle = idle.format(patience=max(1, int(place.timeout)))
            link.run([_SESSION.format(lock_wait=lock_wait, idle=idle)])
        except BaseException:
            link.close()
            raise
        link.wait_for(place.timeout)
        return link

    def failed(self, error: Exception) -> Exception:
        """Return *error* in tarry's words."""
        return translate(error, self._place.text)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        if self._pid == os.getpid():
            self._forget()
