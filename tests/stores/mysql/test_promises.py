"""MariaDB keeps every promise of a store; so does the way that MySQL needs, tried on MariaDB."""

import pytest
from tests.stores.mysql.conftest import MakeStore

from tarry.stores.mysql.store import MysqlStore
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises
from tarry.testing.conformance.calls import Calls
from tarry.testing.conformance.scheduling import Scheduling
from tarry.testing.conformance.settling import Settling
from tarry.testing.conformance.two_slots import TwoSlots

pytestmark = pytest.mark.medium("mysql")


@pytest.fixture
def emptied(make_store: MakeStore, clock: ManualClock) -> MysqlStore:
    """Promises name their namespace and their calls themselves: what others left must go."""
    store = make_store(namespace="test", clock=clock)
    store.abandon()
    store._exchange.ask("DELETE FROM tarry_call", "DELETE FROM tarry_claim")
    return store


class TestMariadb(StorePromises):
    @pytest.fixture
    def store(self, emptied: MysqlStore) -> Store:
        return emptied

    @pytest.fixture
    def other(self, make_store: MakeStore, clock: ManualClock) -> Store:
        return make_store(clock=clock)


class TestWithoutReturning(Scheduling, TwoSlots, Settling, Calls):
    """MySQL's writes answer with no rows: what differs is how answers are read."""

    @pytest.fixture
    def store(self, emptied: MysqlStore) -> Store:
        emptied._exchange.returns = False
        return emptied
