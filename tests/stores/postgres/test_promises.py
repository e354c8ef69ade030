"""PostgreSQL keeps every promise of a store."""

import pytest
from tests.stores.postgres.conftest import MakeStore
from tests.stores.postgres.kept import keep_links

from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises

pytestmark = pytest.mark.medium("postgres")


class TestPostgres(StorePromises):
    @pytest.fixture
    def store(
        self, make_store: MakeStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> Store:
        keep_links(monkeypatch)
        return make_store(clock=clock)

    @pytest.fixture
    def other(self, make_store: MakeStore, clock: ManualClock) -> Store:
        return make_store(namespace="other", clock=clock)
