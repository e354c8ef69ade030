"""Transactions of Django: a connection inside of `atomic()`."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tarry.errors import TransactionError
from tarry.stores.joining import Rows, Statement, Steps
from tarry.transactions.transaction import Transaction, autocommits, drive

T = TypeVar("T")


class OfDjango(Transaction):
    """A connection of Django's, of the thread that uses it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __str__(self) -> str:
        return f"Django's connection {self._connection.alias!r}"

    @property
    def driver(self) -> str:
        """The package of the driver."""
        name: str = self._connection.Database.__name__
        return name.partition(".")[0]

    def below(self) -> object:
        """Return what Django has opened."""
        return self._connection.connection

    def refuse_autocommit(self) -> None:
        """Refuse a connection outside of `atomic()`."""
        if self._connection.get_autocommit():
            raise autocommits(f"{self}, outside of atomic(),")

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*."""
        marks = self._connection.vendor == "sqlite"
        with self._connection.cursor() as cursor:

            def execute(statement: Statement) -> Rows:
                # Django writes the places of SQLite as it does all others, also in its log.
                sql = statement.sql.replace("?", "%s") if marks else statement.sql
                cursor.execute(sql, tuple(statement.values))
                return [tuple(row) for row in cursor.fetchall()] if statement.rows else ()

            return drive(steps, execute)

    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Call *tell* by Django's own hook."""
        self._connection.on_commit(tell)
        return True


def by_name(text: str) -> OfDjango:
    """Return the connection that "django" or "django:alias" names."""
    word, _, alias = text.partition(":")
    db = sys.modules.get("django.db")
    if word != "django" or db is None:
        message = f'tx={text!r}: the only transaction with a name is "django", where Django is used'
        raise TransactionError(message)
    return OfDjango(db.connections[alias or "default"])
