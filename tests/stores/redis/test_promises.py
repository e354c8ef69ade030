"""Redis keeps every promise of a store: in one shard, spread over several, behind sentinels."""

from collections.abc import Iterator

import pytest
from tests.stores.redis.conftest import MakeStore
from tests.stores.redis.ensembles import Cluster, Watched

from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises
from tarry.testing.conformance.calls import Calls
from tarry.testing.conformance.claiming import Claiming
from tarry.testing.conformance.scheduling import Scheduling
from tarry.testing.conformance.wakeup import Waking

pytestmark = pytest.mark.medium("redis")


class OnOneServer(StorePromises):
    options = ""

    @pytest.fixture
    def store(self, make_store: MakeStore, clock: ManualClock) -> Store:
        return make_store(self.options, clock=clock)

    @pytest.fixture
    def other(self, make_store: MakeStore, clock: ManualClock) -> Store:
        return make_store(self.options, namespace="other", clock=clock)


class TestOneShard(OnOneServer):
    pass


class TestSixteenShards(OnOneServer):
    options = "?shards=16"


class TestCluster(StorePromises):
    """Sixteen shards on three primaries."""

    @pytest.fixture
    def store(self, cluster: Cluster, open_store: MakeStore, clock: ManualClock) -> Iterator[Store]:
        store = open_store(cluster.url, namespace="test", clock=clock)
        assert store.capabilities.shards == 16
        yield store
        cluster.flush()

    @pytest.fixture
    def other(self, cluster: Cluster, open_store: MakeStore, clock: ManualClock) -> Store:
        return open_store(cluster.url, clock=clock)


class TestSentinel(Scheduling, Claiming, Waking, Calls):
    """What differs from one server is how it is found: a selection is enough."""

    @pytest.fixture
    def store(self, watched: Watched, open_store: MakeStore, clock: ManualClock) -> Store:
        return open_store(f"{watched.url}?wait_replicas=1", clock=clock)
