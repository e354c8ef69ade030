"""Real Redis servers, and stores on them in namespaces nobody used before."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from redis import Redis
from tests.network.servers import HOST, Server, redis
from tests.stores.redis.ensembles import Cluster, Watched

from tarry.clock import Clock
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock

MakeStore = Callable[..., Store]
_NAMES = itertools.count()


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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that everybody uses and nobody breaks."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A primary with replicas and sentinels that everybody uses and nobody breaks."""
    with Watched(tmp_path_factory.mktemp("sentinel")) as watched:
        yield watched


@pytest.fixture
def open_store() -> Iterator[MakeStore]:
    """Open stores by URL, each in a namespace of its own unless one is named; closed afterwards."""
    with ExitStack() as stack:

        def make(url: str, *, namespace: str = "", clock: Clock | None = None) -> Store:
            store = connect(url, namespace=namespace or new_namespace(), clock=clock)
            return stack.enter_context(closing(store))

        yield make


def new_namespace() -> str:
    """Return a namespace that nobody has used."""
    return f"n{next(_NAMES)}"
