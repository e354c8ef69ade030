"""Transaction: runs a store's statements in what the caller has begun; never ends it.

What a `tx` is, is seen by the name of its type: no driver and no framework is imported that the
caller does not use already.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarry.errors import TransactionError
from tarry.stores.joining import Rows, Statement, Steps

T = TypeVar("T")

KNOWN = (
    "a connection of sqlite3, aiosqlite, psycopg or PyMySQL, a Session, AsyncSession, Connection "
    'or AsyncConnection of SQLAlchemy, a connection of Django, or "django"'
)


class Transaction(ABC):
    """A transaction of the caller's."""

    awaited = False
    """Whether it is for the `a`-twins of the verbs."""

    @property
    @abstractmethod
    def driver(self) -> str:
        """The package of the driver below: sqlite3, psycopg, pymysql and so on."""

    @abstractmethod
    def below(self) -> object:
        """Return the driver's own connection; asked for while `run` runs, when there is one."""

    @abstractmethod
    def refuse_autocommit(self) -> None:
        """Raise if each statement would be committed by itself."""

    def run(self, steps: Steps[T]) -> T:
        """Run *steps*; an error of the driver is raised as it is."""
        steps.close()
        message = f"{self} is awaited: use the verb's a-twin (aschedule …); nothing was written"
        raise TransactionError(message)

    async def arun(self, steps: Steps[T]) -> T:
        """Run *steps*; for coroutines."""
        steps.close()
        message = (
            f"{self} blocks: use the verb without the a (schedule …) on it; nothing was written"
        )
        raise TransactionError(message)

    def is_open(self) -> bool | None:
        """Say whether it is still under way; None: `after_commit` will be heard."""
        return None

    @abstractmethod
    def after_commit(self, tell: Callable[[], None]) -> bool:
        """Have *tell* called after the commit; false: there is no way to hear of it.

        It may be called after a rollback too.
        """

    @abstractmethod
    def __str__(self) -> str: ...


def drive(steps: Steps[T], execute: Callable[[Statement], Rows]) -> T:
    """Run *steps* with *execute*."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = execute(statement)
            except Exception as error:  # noqa: BLE001 - the store may know what it means
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


async def adrive(steps: Steps[T], execute: Callable[[Statement], Awaitable[Rows]]) -> T:
    """Run *steps* with *execute*, which is awaited."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = await execute(statement)
            except Exception as error:  # noqa: BLE001 - as above
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def names(tx: object) -> set[str]:
    """Return what *tx* is by its type and all it descends from: package and class."""
    return {f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(tx).__mro__}


def autocommits(what: str) -> TransactionError:
    """Return the error for a connection that has no transaction and begins none by itself."""
    return TransactionError(
        f"{what} is in autocommit mode and no transaction was begun: each statement would be "
        "committed by itself; begin one first; nothing was written"
    )
