"""Real Redis servers, one per module, and stores on them in namespaces nobody used before."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from redis import Redis
from tests.network.servers import HOST, Server, redis

from tarry.clock import Clock
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock

MakeStore = Callable[..., Store]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Redis, every write synced."""
    with redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_store(server: Server) -> Iterator[MakeStore]:
    """Open stores on the server; they are closed, and the server is empty, after the test."""
    opened: list[Store] = []

    def make(options: str = "", *, namespace: str = "test", clock: Clock | None = None) -> Store:
        url = f"redis://{HOST}:{server.port}{options}"
        opened.append(connect(url, namespace=namespace, clock=clock))
        return opened[-1]

    yield make
    for store in opened:
        with suppress(Exception):
            store.close()
    with closing(plain(server)) as anybody:
        anybody.flushall()


def plain(server: Server) -> Redis:
    """Return a client that knows nothing of tarry."""
    return Redis(host=HOST, port=server.port)
