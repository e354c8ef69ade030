"""Transactions of SQLAlchemy: Session, Connection, and their awaited twins."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tarry.stores.joining import Rows, Statement, Steps
from tarry.transactions.of_drivers import begins
from tarry.transactions.transaction import Transaction, autocommits, drive

T = TypeVar("T")

_TOLD = "tarry.after_commit"
_DRIVERS = {
    "aiosqlite": "aiosqlite",
    "mysqldb": "MySQLdb",
    "psycopg": "psycopg",
    "psycopg_async": "psycopg",
    "pysqlite": "sqlite3",
}


class OfSqlalchemy(Transaction):
    """A Session or a Connection; *awaited*: one that wraps it for coroutines."""

    def __init__(self, given: Any, *, session: bool, awaited: bool) -> None:
        self._given = given
        self._session = session
        self.awaited = awaited

    def __str__(self) -> str:
        word = "Session" if self._session else "Connection"
        return f"a SQLAlchemy {'Async' if self.awaited else ''}{word}"

    @property
    def _plain(self) -> Any:
        """What is below the wrapper."""
        if not self.awaited:
            return self._given
        return self._given.sync_session if self._session else self._given.sync_connection

    @property
    def driver(self) -> str:
        """The package of the driver."""
        bind = self._plain.get_bind() if self._session else self._plain
        name: str = bind.dialect.driver
        return _DRIVERS.get(name, name)

    def below(self) -> object:
        """Return what the pool has lent."""
        connection = self._plain.connection() if self._session else self._plain
        return connection.connection.driver_connection

    def refuse_autocommit(self) -> None:
        """Leave it to `run`: which connection it is shows when the transaction has begun."""

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*."""
        if self.awaited:
            return super().run(steps)
        return self._run(self._given, steps)

    async def arun(self, steps: Steps[T]) -> T:
        """Run *steps*; for coroutines."""
        if not self.awaited:
            return await super().arun(steps)
        answer: T = await self._given.run_sync(self._run, steps)
        return answer

    def _run(self, plain: Any, steps: Steps[T]) -> T:
        connection = plain.connection() if self._session else plain
        if _autocommits(connection):
            steps.close()
            raise autocommits(str(self))

        def execute(statement: Statement) -> Rows:
            result = connection.exec_driver_sql(statement.sql, tuple(statement.values))
            return [tuple(row) for row in result] if statement.rows else ()

        return drive(steps, execute)

    def is_open(self) -> bool | None:
        """Say whether it is under way: a Connection has no hook behind its commit."""
        return None if self._session else bool(self._plain.in_transaction())

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Call *tell* when the outermost transaction of the session has ended."""
        if not self._session:
            return False
        session = self._plain
        if _TOLD not in session.info:
            # Once, and never removed: SQLAlchemy may be calling its listeners at that moment.
            session.info[_TOLD] = []
            sys.modules["sqlalchemy"].event.listen(session, "after_transaction_end", _ended)
        session.info[_TOLD].append(tell)
        return True


def _ended(session: Any, transaction: Any) -> None:
    """Tell what waits for the end of the session's outermost transaction."""
    if transaction.parent is None:
        told, session.info[_TOLD] = session.info[_TOLD], []
        for tell in told:
            tell()


def _autocommits(connection: Any) -> bool:
    """Say whether each statement commits by itself: by an option, or below SQLAlchemy."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    below = connection.connection.driver_connection
    if hasattr(below, "in_transaction"):
        return not begins(below)
    status = getattr(getattr(below, "info", None), "transaction_status", None)
    return status == 0 and bool(below.autocommit)
