"""A real MariaDB, and stores on it in namespaces nobody used before."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pymysql
import pytest
from tests.network.servers import HOST, Server, mariadb

from tarry.clock import Clock
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse
from tarry.testing.clock import ManualClock
from tarry.testing.proof.mysql_server import DATABASE, url

MakeStore = Callable[..., MysqlStore]
_NAMES = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One MariaDB that everybody uses and nobody breaks."""
    with mariadb() as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_store(server: Server) -> Iterator[MakeStore]:
    """Open stores on the server, each in a namespace of its own unless one is named."""
    with ExitStack() as stack:

        def make(
            options: str = "", *, namespace: str = "", clock: Clock | None = None
        ) -> MysqlStore:
            place = parse(url(server.port) + options)
            store = MysqlStore(place, namespace=namespace or new_namespace(), clock=clock)
            return stack.enter_context(closing(store))

        yield make


def new_namespace() -> str:
    """Return a namespace that nobody has used."""
    return f"n{next(_NAMES)}"


def plain(server: Server, **options: Any) -> "pymysql.Connection[Any]":
    """Return a connection that knows nothing of tarry."""
    return pymysql.connect(host=HOST, port=server.port, user="root", database=DATABASE, **options)


@pytest.fixture
def operator(server: Server) -> Iterator["pymysql.Connection[Any]"]:
    """Give orders to the server itself."""
    with closing(plain(server, autocommit=True)) as operator:
        yield operator
