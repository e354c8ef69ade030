"""Trial: producers and a worker on a Redis store while something breaks, judged by their ledger."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.network.load import Ledger, Noting, Producer, deed, left
from tests.network.servers import until
from tests.network.world import KIND
from tests.stores.redis.conftest import new_namespace

from tarry import Context, Tarry
from tarry.clock import SYSTEM
from tarry.errors import StoreUnavailableError
from tarry.stores.redis.store import RedisStore
from tarry.stores.redis.url import parse
from tarry.testing.ledger import Drained, Failed, Violation, check

PRODUCERS = 2
_MANY = 1_000_000
_PATIENCE = 60.0


class NotedRedis(Noting, RedisStore):
    """A Redis store whose claims and settlements are noted."""


class Trial:
    """A namespace of its own, in which all that is asked and answered is noted."""

    def __init__(self, url: str, namespace: str = "") -> None:
        self.namespace = namespace or new_namespace()
        self.ledger = Ledger()
        self.store = NotedRedis(parse(url), namespace=self.namespace)
        self.store.note_in(self.ledger)
        self.app = Tarry("memory:", namespace=self.namespace, retry_for="20s")
        self.app.swap(self.store, SYSTEM)
        self._enough = threading.Event()

        @self.app.task(KIND)
        def handler(ctx: Context) -> object:
            self.store.started(ctx)
            return deed(ctx)

    @contextmanager
    def running(self, lease: str = "20s") -> Iterator[None]:
        """Let producers and a worker work meanwhile; afterwards everything has its attempt."""
        producers = [
            Producer(self.app.client, self.ledger, number, _MANY) for number in range(PRODUCERS)
        ]
        with self.app.worker(lease=lease, concurrency=4), ThreadPoolExecutor(PRODUCERS) as pool:
            going = [pool.submit(each.produce, enough=self._enough.is_set) for each in producers]
            try:
                yield
            finally:
                self._enough.set()
            for each in going:
                each.result(_PATIENCE)
            until(self._drained, "everything has had its attempt", _PATIENCE)
        self.ledger.write(Drained())
        self.ledger.entries += left(self.store)

    def _drained(self) -> bool:
        try:
            counts = self.store.counts([KIND])[KIND]
        except StoreUnavailableError:
            return False
        return not counts.scheduled and not counts.leased

    def goes_on(self, count: int = 50) -> None:
        """Wait until so many more attempts have begun."""
        before = self.ledger.counts()["Started"]
        until(lambda: self.ledger.counts()["Started"] >= before + count, "work goes on", _PATIENCE)

    def crashed(self, how: str) -> None:
        """Note that the medium broke, and may have forgotten what it need not keep."""
        self.ledger.write(Failed(by="", how=how))

    def judge(self) -> list[Violation]:
        """Return every promise that was broken."""
        return check(self.ledger.entries)

    def close(self) -> None:
        self.app.close()
