"""Links: connections to the server, kept for the next call; one thread at a time.

They are libpq's own, by way of psycopg: a call is one prepared statement, sent and awaited here, so
that it ends in bounded time whatever the network does.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from psycopg import Error
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGconn as Wire

from tarry.clock import SYSTEM
from tarry.errors import StoreBusyError, StoreClosedError, StoreError, StoreUnavailableError
from tarry.stores.postgres.errors import refused, unreached
from tarry.stores.postgres.url import Place
from tarry.stores.postgres.wire import Statement

Rows = list[tuple[Any, ...]]
T = TypeVar("T")

_FRESH_NS = 1_000_000_000
"""A connection that idled longer is looked at before it is used: its server may have hung up."""
_NS = 1_000_000_000
_WELL = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)


class LinkLostError(Exception):
    """The connection broke, or gave no answer in time; the statement may or may not have run."""


class Link:
    """One connection, when it was last used, and what can be done with it."""

    __slots__ = ("_loader", "_names", "_poll", "_where", "direct", "pgconn", "several", "used")

    def __init__(self, pgconn: Wire, place: Place) -> None:
        self.pgconn = pgconn
        self._where = place.text
        self.several = place.several
        self._names: set[bytes] = set()
        self._poll = select.poll()
        self._loader = Transformer()
        self.direct = True
        """Whether the session at the other end is ours alone: no pooler stands between."""
        self.used = 0

    def run(self, statement: Statement, words: list[bytes | None], seconds: float) -> Rows:
        """Run a statement, in a transaction of its own; returns its rows."""
        return self._rows(self._run(statement, words, seconds))

    def ask(self, statement: Statement, words: list[bytes | None], seconds: float) -> bytes:
        """Run a statement that answers with one value; returns that as it came."""
        found: bytes = self._run(statement, words, seconds).get_value(0, 0)
        return found

    def _run(self, statement: Statement, words: list[bytes | None], seconds: float) -> Any:
        deadline = SYSTEM.elapsed() + int(seconds * _NS)
        pgconn = self.pgconn
        try:
            if not self.direct:
                # The next statement may meet another server process, which has prepared nothing.
                pgconn.send_query_params(
                    statement.sql, words, statement.oids, statement.formats, result_format=1
                )
                return self._result(deadline)
            if statement.name not in self._names:
                self._prepare(statement, deadline)
            pgconn.send_query_prepared(statement.name, words, statement.formats, result_format=1)
            return self._result(deadline)
        except Error as error:
            raise LinkLostError(str(error)) from error

    def prepare(self, statements: Iterable[Statement], seconds: float) -> None:
        """Prepare statements before their first use."""
        for statement in statements:
            self._prepare(statement, SYSTEM.elapsed() + int(seconds * _NS))

    def _prepare(self, statement: Statement, deadline: int) -> None:
        self.pgconn.send_prepare(statement.name, statement.sql, statement.oids)
        self._result(deadline)
        self._names.add(statement.name)

    def say(self, sql: str, seconds: float) -> Rows:
        """Run plain statements, which are one transaction; returns the rows of the last one."""
        deadline = SYSTEM.elapsed() + int(seconds * _NS)
        try:
            self.pgconn.send_query(sql.encode())
            return self._rows(self._result(deadline))
        except Error as error:
            raise LinkLostError(str(error)) from error

    def _result(self, deadline: int) -> Any:
        """Return the last result of what was sent; raises the server's refusal."""
        pgconn = self.pgconn
        while pgconn.flush():
            if self.wait(select.POLLIN | select.POLLOUT, deadline) & ~select.POLLOUT:
                pgconn.consume_input()
        last = failed = None
        while True:
            while pgconn.is_busy():
                self.wait(select.POLLIN, deadline)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            last = result
            if result.status not in _WELL and failed is None:
                failed = result
        if failed is not None:
            raise self._refusal(failed)
        return last

    def _refusal(self, result: Any) -> Exception:
        if self.pgconn.status != ConnStatus.OK:
            said = result.error_message.decode(errors="replace")
            return LinkLostError(" ".join(said.split()))
        state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        said = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if state.startswith("57P"):
            return LinkLostError(said)
        return refused(state, said, self._where, several=self.several)

    def _rows(self, result: Any) -> Rows:
        if result is None or not result.ntuples:
            return []
        self._loader.set_pgresult(result)
        return self._loader.load_rows(0, result.ntuples, tuple)

    def wait(self, events: int, deadline: int) -> int:
        """Wait until something of *events* can be done; returns what."""
        left = deadline - SYSTEM.elapsed()
        if left <= 0:
            raise LinkLostError("no reply in time")
        poll = self._poll
        poll.register(self.pgconn.socket, events)
        found = poll.poll(left / 1_000_000)
        if not found:
            raise LinkLostError("no reply in time")
        return found[0][1]

    def stale(self) -> bool:
        """Say whether the server has hung up, or said something nobody asked for."""
        poll = self._poll
        try:
            poll.register(self.pgconn.socket, select.POLLIN)
            return bool(poll.poll(0))
        except (Error, OSError, ValueError):
            return True

    def close(self) -> None:
        """Hang up."""
        with suppress(Exception):
            self.pgconn.finish()


class Links:
    """Idle connections, and room for more; those of a parent process are never used by a fork."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = False
        self.pooled = False
        """Whether a pooler was met, which gives each statement another session."""
        self._begin_process()

    def _begin_process(self) -> None:
        # Not closed: the descriptors are the parent's too, and closing would say goodbye for it.
        self._idle: deque[Link] = deque()
        self._room = threading.BoundedSemaphore(self._place.connections)
        self._pid = os.getpid()

    def take(self) -> Link:
        """Return a connection that nobody else uses."""
        if self._pid != os.getpid():
            self._begin_process()
        if self._closed:
            message = "the store is closed"
            raise StoreClosedError(message)
        room = self._room
        if not room.acquire(timeout=self._place.timeout):
            message = (
                f"all {self._place.connections} connections to {self._place.text} were in use for "
                f"{self._place.timeout:g} s; nothing was written; connections= in the store's URL "
                "allows more"
            )
            raise StoreBusyError(message)
        try:
            return self._living() or self.open()
        except BaseException:
            room.release()
            raise

    def _living(self) -> Link | None:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            if SYSTEM.elapsed() - link.used < _FRESH_NS or not link.stale():
                return link
            link.close()

    def give(self, link: Link) -> None:
        """Keep a connection that has no reply outstanding for the next call."""
        if self._pid != os.getpid():
            return
        link.used = SYSTEM.elapsed()
        if self._closed:
            link.close()
        else:
            self._idle.append(link)
        self._room.release()

    def lose(self, link: Link) -> None:
        """Close a connection that broke, and the idle ones beside it.

        Whatever broke it has broken them too: a caller must not try one after the other.
        """
        if self._pid != os.getpid():
            return
        link.close()
        self.forget()
        self._room.release()

    def forget(self) -> None:
        """Close the idle connections."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def open(self) -> Link:
        """Connect anew, in bounded time."""
        place = self._place
        seconds = min(place.connect_timeout, place.timeout)
        link = connected(place, seconds)
        try:
            told = link.say(_settings(link.pgconn.backend_pid, place.timeout), seconds)
        except LinkLostError as error:
            link.close()
            raise unreached(str(error), place.text) from error
        except BaseException:
            link.close()
            raise
        link.direct = bool(told)
        self.pooled = not link.direct
        return link

    def run(self, statement: Statement, values: Sequence[Any]) -> Rows:
        """Run a statement by any connection; returns its rows."""
        return self._by_any(Link.run, statement, values)

    def ask(self, statement: Statement, values: Sequence[Any]) -> bytes:
        """Run a statement that answers with one value, by any connection."""
        return self._by_any(Link.ask, statement, values)

    def _by_any(
        self,
        act: Callable[[Link, Statement, list[bytes | None], float], T],
        statement: Statement,
        values: Sequence[Any],
    ) -> T:
        words = statement.words(values)
        link = self.take()
        try:
            found = act(link, statement, words, self._place.timeout)
        except LinkLostError as error:
            self.lose(link)
            message = f"{self._place.text} did not answer: {error}"
            raise StoreUnavailableError(message) from error
        except StoreError:
            self.give(link)
            raise
        except BaseException:
            self.lose(link)
            raise
        self.give(link)
        return found

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        if self._pid == os.getpid():
            self.forget()


def connected(place: Place, seconds: float) -> Link:
    """Return a new connection; raises in tarry's words."""
    deadline = SYSTEM.elapsed() + int(seconds * _NS)
    link: Link | None = None
    try:
        pgconn = PGconn.connect_start(place.conninfo.encode())
        link = Link(pgconn, place)
        while pgconn.status != ConnStatus.BAD:
            match pgconn.connect_poll():
                case PollingStatus.OK:
                    pgconn.nonblocking = 1
                    return link
                case PollingStatus.READING:
                    link.wait(select.POLLIN, deadline)
                case PollingStatus.WRITING:
                    link.wait(select.POLLOUT, deadline)
                case _:
                    break
        said = pgconn.error_message.decode(errors="replace")
    except (Error, LinkLostError) as error:
        said = str(error)
    except BaseException:
        if link is not None:
            link.close()
        raise
    if link is not None:
        link.close()
    raise unreached(said, place.text)


def _settings(pid: int, seconds: float) -> str:
    """Return what makes a session fit for calls; changes nothing where a pooler stands between.

    There the process that serves us is not the one we were told of, and it is not ours to change.
    """
    ms = max(1, int(seconds * 1_000))
    settings = {
        "lock_timeout": f"{max(1, ms * 4 // 5)}ms",
        "statement_timeout": f"{ms}ms",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        # What is read by name must not be joined over the whole table.
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_sort": "off",
        "jit": "off",
    }
    pairs = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    return (
        f"SELECT set_config(s.name, s.value, false) FROM (VALUES {pairs}) s(name, value) "
        f"WHERE pg_backend_pid() = {pid}"
    )
