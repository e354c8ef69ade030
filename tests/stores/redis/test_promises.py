"""Redis keeps every promise of a store: in one shard, and spread over several."""

import pytest
from tests.stores.redis.conftest import MakeStore

from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises

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
