"""SocketStore is a true store: it keeps every promise, as long as the network does."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.network.socket_store import SocketStore
from tests.network.store_server import StoreServer

from tarry.errors import RefError, StoreClosedError, StoreUnavailableError
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises
from tarry.testing.conformance.kit import Ear, schedule
from tarry.testing.proxy import Proxy

PATIENCE = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    """Serve in this process, so that the tests can hand in their clock."""
    with StoreServer(0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(server: StoreServer, clock: ManualClock) -> Iterator[Store]:
    server.begin(clock)
    with closing(SocketStore(address(server), namespace="test", timeout=PATIENCE)) as store:
        yield store


@pytest.fixture
def other(server: StoreServer, store: Store) -> Iterator[Store]:
    with closing(SocketStore(address(server), namespace="other", timeout=PATIENCE)) as other:
        yield other


def address(server: StoreServer) -> tuple[str, int]:
    port: int = server.server_address[1]
    return "127.0.0.1", port


class TestSocketStore(StorePromises):
    pass


def test_a_store_that_was_closed_says_so(store: Store) -> None:
    store.close()
    store.close()

    with pytest.raises(StoreClosedError):
        store.get([])


def test_an_error_of_the_store_is_the_same_error_here(store: Store) -> None:
    store.namespace = "not allowed"

    with pytest.raises(RefError):
        store.get([])


def test_who_watches_hears_again_after_the_line_was_cut(
    server: StoreServer, clock: ManualClock
) -> None:
    server.begin(clock)
    with (
        Proxy(*address(server)) as proxy,
        closing(SocketStore(proxy.address, timeout=PATIENCE)) as store,
    ):
        ear = Ear(store)
        schedule(store)
        ear.heard(1)

        proxy.cut_all()

        # What may have been missed meanwhile.
        assert ear.heard(2)[1] == 0
        with pytest.raises(StoreUnavailableError):
            schedule(store)
        schedule(store)
        assert ear.heard(3)[2] == clock.now()
