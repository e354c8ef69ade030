"""From a `tx` to a transaction of the store's own medium, and what is said in it."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tarry.errors import StoreError, TransactionError, UnsupportedError
from tarry.stores.joining import Joins, Steps
from tarry.stores.store import Store
from tarry.transactions.of_django import OfDjango, by_name
from tarry.transactions.of_drivers import OfAiosqlite, OfMysql, OfPsycopg, OfSqlite
from tarry.transactions.of_sqlalchemy import OfSqlalchemy
from tarry.transactions.transaction import KNOWN, Transaction, names

T = TypeVar("T")


class Joined:
    """A store in a transaction of the caller's; refuses what does not fit before it writes."""

    def __init__(self, store: Store, tx: object) -> None:
        self._store = _joins(store)
        self.transaction = _of(tx)
        drivers = self._store.joined_drivers
        driver = self.transaction.driver
        if drivers and driver not in drivers:
            message = (
                f"{self.transaction} is one of the driver {driver}; tasks of a "
                f"{store.capabilities.medium} store join those of {', '.join(sorted(drivers))}; "
                "nothing was written"
            )
            raise TransactionError(message)
        self.transaction.refuse_autocommit()

    def run(self, verb: Callable[[Joins], Steps[T]]) -> T:
        """Run a verb of the store in the transaction."""
        return self.transaction.run(self._checked(verb))

    async def arun(self, verb: Callable[[Joins], Steps[T]]) -> T:
        """Run a verb of the store in the transaction; for coroutines."""
        return await self.transaction.arun(self._checked(verb))

    def _checked(self, verb: Callable[[Joins], Steps[T]]) -> Steps[T]:
        yield from self._store.join_check(self.transaction.below())
        return (yield from verb(self._store))

    def wake(self, due: int) -> bool:
        """Have the workers woken for *due* after the commit; false: nobody will tell of it."""
        return self.transaction.after_commit(lambda: self.committed(due))

    def committed(self, due: int) -> None:
        """Wake the workers for *due*; harms no caller, whatever became of the store."""
        with suppress(StoreError):
            self._store.committed(due)


def _joins(store: Store) -> Joins:
    if isinstance(store, Joins):
        return store
    message = (
        f"a {store.capabilities.medium} store cannot be part of a transaction (tx=): schedule "
        "after the commit instead, or keep the tasks in the database of the transaction; "
        "nothing was written"
    )
    raise UnsupportedError(message)


def _of(tx: object) -> Transaction:
    """Return what *tx* is."""
    if isinstance(tx, str):
        return by_name(tx)
    found = names(tx)
    for name, make in _KINDS.items():
        if name in found:
            return make(tx)
    message = f"tx={type(tx).__name__} is no transaction; give {KNOWN}; nothing was written"
    raise TransactionError(message)


_KINDS: dict[str, Callable[[object], Transaction]] = {
    "sqlite3.Connection": OfSqlite,
    "aiosqlite.Connection": OfAiosqlite,
    "psycopg.Connection": lambda tx: OfPsycopg(tx, awaited=False),
    "psycopg.AsyncConnection": lambda tx: OfPsycopg(tx, awaited=True),
    "pymysql.Connection": lambda tx: OfMysql(tx, "pymysql"),
    "MySQLdb.Connection": lambda tx: OfMysql(tx, "MySQLdb"),
    "sqlalchemy.Session": lambda tx: OfSqlalchemy(tx, session=True, awaited=False),
    "sqlalchemy.scoped_session": lambda tx: OfSqlalchemy(_inner(tx), session=True, awaited=False),
    "sqlalchemy.AsyncSession": lambda tx: OfSqlalchemy(tx, session=True, awaited=True),
    "sqlalchemy.async_scoped_session": lambda tx: OfSqlalchemy(
        _inner(tx), session=True, awaited=True
    ),
    "sqlalchemy.Connection": lambda tx: OfSqlalchemy(tx, session=False, awaited=False),
    "sqlalchemy.AsyncConnection": lambda tx: OfSqlalchemy(tx, session=False, awaited=True),
    "django.ConnectionProxy": OfDjango,
    "django.BaseDatabaseWrapper": OfDjango,
}


def _inner(scoped: object) -> object:
    """Return the session of this scope."""
    return scoped() if callable(scoped) else scoped
