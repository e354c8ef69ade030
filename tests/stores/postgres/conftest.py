"""A real PostgreSQL, and stores on it in namespaces nobody used before."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
from tests.network.servers import shared_postgres

from tarry.clock import Clock
from tarry.stores.connect import connect
from tarry.stores.postgres.store import PostgresStore
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.proof.postgres_server import PostgresServer

MakeStore = Callable[..., PostgresStore]
Operator = psycopg.Connection[tuple[object, ...]]
TABLES = ("lane", "task", "behind", "ended", "call", "holder")
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> PostgresServer:
    """The server of this process."""
    return shared_postgres()


@pytest.fixture(scope="session")
def url(server: PostgresServer) -> str:
    """A database in which nothing but these tests is."""
    name = f"stores{next(_NUMBERS)}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return server.url_of(name)


@pytest.fixture(scope="session")
def operator(url: str) -> Iterator[Operator]:
    """Give orders to the server itself."""
    with psycopg.connect(url, autocommit=True) as db:
        yield db


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_store(url: str, operator: Operator) -> Iterator[MakeStore]:
    """Open stores; they are closed, and the tables are empty, after the test."""
    opened: list[Store] = []

    def make(
        options: str = "",
        *,
        namespace: str = "test",
        clock: Clock | None = None,
        at: str | None = None,
    ) -> Store:
        opened.append(connect(f"{at or url}{options}", namespace=namespace, clock=clock))
        return opened[-1]

    yield make  # type: ignore[misc]
    for store in opened:
        store.close()
    if opened:
        with suppress(psycopg.errors.UndefinedTable):
            operator.execute(";".join(f"DELETE FROM tarry.{table}" for table in TABLES))


@pytest.fixture
def new_database(server: PostgresServer) -> Iterator[Callable[[], str]]:
    """Make databases of a test's own."""
    names: list[str] = []

    def make() -> str:
        names.append(f"own{next(_NUMBERS)}")
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {names[-1]}")
        return server.url_of(names[-1])

    yield make
    with psycopg.connect(server.url, autocommit=True) as db:
        for name in names:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")
