"""Transactions of bare connections: sqlite3, aiosqlite, psycopg, PyMySQL."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tarry.stores.joining import Rows, Statement, Steps
from tarry.transactions.transaction import Transaction, adrive, autocommits, drive

T = TypeVar("T")

_IN_TRANSACTION = 1
"""A flag of MySQL's server status."""
_LEGACY = -1
"""The value of sqlite3's `autocommit` where `isolation_level` says it all."""


class OfSqlite(Transaction):
    """A sqlite3 connection."""

    driver = "sqlite3"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __str__(self) -> str:
        return "a sqlite3 connection"

    def below(self) -> object:
        """Return it."""
        return self._connection

    def refuse_autocommit(self) -> None:
        """Refuse a connection that begins nothing by itself and has begun nothing."""
        if not begins(self._connection):
            raise autocommits(str(self))

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*, whatever the caller makes of rows and text."""
        connection = self._connection
        cursor = connection.cursor()
        cursor.row_factory = None
        text, connection.text_factory = connection.text_factory, str
        try:
            return drive(steps, lambda statement: _executed(cursor, statement))
        finally:
            connection.text_factory = text
            cursor.close()

    def is_open(self) -> bool:
        """Say whether it is under way; there is no hook for a commit."""
        try:
            return bool(self._connection.in_transaction)
        except sys.modules["sqlite3"].ProgrammingError:
            return False

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Say no: the connection has no hook."""
        del tell
        return False


class OfAiosqlite(Transaction):
    """An aiosqlite connection."""

    driver = "aiosqlite"
    awaited = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __str__(self) -> str:
        return "an aiosqlite connection"

    def below(self) -> object:
        """Return it."""
        return self._connection

    def refuse_autocommit(self) -> None:
        """Refuse a connection that begins nothing by itself and has begun nothing."""
        if not begins(self._connection):
            raise autocommits(str(self))

    async def arun(self, steps: Steps[T]) -> T:
        """Run *steps*."""
        connection = self._connection
        rows_as, connection.row_factory = connection.row_factory, None
        text, connection.text_factory = connection.text_factory, str
        try:
            async with connection.cursor() as cursor:

                async def execute(statement: Statement) -> Rows:
                    await cursor.execute(statement.sql, statement.values)
                    return list(await cursor.fetchall()) if statement.rows else ()

                return await adrive(steps, execute)
        finally:
            connection.row_factory, connection.text_factory = rows_as, text

    def is_open(self) -> bool:
        """Say whether it is under way; there is no hook for a commit."""
        try:
            return bool(self._connection.in_transaction)
        except ValueError:
            return False

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Say no: the connection has no hook."""
        del tell
        return False


class OfPsycopg(Transaction):
    """A psycopg connection; the server tells of a commit by itself."""

    driver = "psycopg"

    def __init__(self, connection: Any, *, awaited: bool) -> None:
        self._connection = connection
        self.awaited = awaited

    def __str__(self) -> str:
        return f"a psycopg {'AsyncConnection' if self.awaited else 'Connection'}"

    def below(self) -> object:
        """Return it."""
        return self._connection

    def refuse_autocommit(self) -> None:
        """Refuse a connection that begins nothing by itself and has begun nothing."""
        connection = self._connection
        if connection.autocommit and not connection.info.transaction_status:
            raise autocommits(str(self))

    def _cursor(self) -> Any:
        return self._connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*, whatever the caller makes of rows."""
        if self.awaited:
            return super().run(steps)
        with self._cursor() as cursor:
            return drive(steps, lambda statement: _executed(cursor, statement))

    async def arun(self, steps: Steps[T]) -> T:
        """Run *steps*; for coroutines."""
        if not self.awaited:
            return await super().arun(steps)
        async with self._cursor() as cursor:

            async def execute(statement: Statement) -> Rows:
                await cursor.execute(statement.sql, statement.values)
                return list(await cursor.fetchall()) if statement.rows else ()

            return await adrive(steps, execute)

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Say no: the server tells the workers."""
        del tell
        return False


class OfMysql(Transaction):
    """A connection of PyMySQL or mysqlclient."""

    def __init__(self, connection: Any, driver: str) -> None:
        self._connection = connection
        self._driver = driver

    @property
    def driver(self) -> str:
        """The package of the driver."""
        return self._driver

    def __str__(self) -> str:
        return f"a {self._driver} connection"

    def below(self) -> object:
        """Return it."""
        return self._connection

    def refuse_autocommit(self) -> None:
        """Refuse a connection that begins nothing by itself and has begun nothing."""
        status = getattr(self._connection, "server_status", 0)
        if self._connection.get_autocommit() and not status & _IN_TRANSACTION:
            raise autocommits(str(self))

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*, whatever the caller makes of rows."""
        plain = sys.modules[f"{self._driver}.cursors"].Cursor
        with self._connection.cursor(plain) as cursor:
            return drive(steps, lambda statement: _executed(cursor, statement))

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Say no: the workers look often."""
        del tell
        return False


def begins(connection: Any) -> bool:
    """Say whether a sqlite3 connection has begun a transaction, or will with the first write."""
    if connection.in_transaction:
        return True
    legacy = getattr(connection, "autocommit", _LEGACY) == _LEGACY
    return legacy and connection.isolation_level is not None


def _executed(cursor: Any, statement: Statement) -> Rows:
    cursor.execute(statement.sql, statement.values)
    return list(cursor.fetchall()) if statement.rows else ()
