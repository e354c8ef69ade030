"""World: a store seen through a proxy by those who suffer, and directly by the judge."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from tests.network.media import Medium
from tests.network.servers import LIMIT, until
from tests.network.socket_store import TIMEOUT

from tarry import Context, Event, Tarry
from tarry.api.client import Client
from tarry.clock import SYSTEM, nap
from tarry.errors import StoreUnavailableError
from tarry.events import LeaseLost
from tarry.stores.store import Counts, Store
from tarry.testing.proxy import Coverage, Phase, Proxy

A = TypeVar("A")
E = TypeVar("E", bound=Event)

KIND = "order.cancel"
LASTS = {Phase.DELAY_REQUEST: 800, Phase.DELAY_REPLY: 5_000, Phase.REFUSE: 100}
"""Delays are longer than the store waits: whoever asked has given up before."""
SWALLOWED = {Phase.CUT_BEFORE_REQUEST, Phase.PARTIAL_REQUEST, Phase.REFUSE}
"""The phases in which the server executes nothing; in the others, sooner or later, it does."""


class World:
    """A store through a proxy, its client, and the same store without the proxy."""

    def __init__(
        self,
        medium: Medium,
        namespace: str,
        coverage: Coverage | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.medium = medium
        self.proxy = Proxy(*medium.address, coverage=coverage)
        self.direct = medium.store(medium.address, namespace, timeout=LIMIT)
        # A busy machine may need longer for the first greeting than a verb is given.
        self._through = patiently(
            lambda: medium.store(self.proxy.address, namespace, timeout=timeout)
        )
        self.store = self._through
        self.app = Tarry("memory:", namespace=namespace, retry_for=LIMIT)
        self.app.swap(self.store, SYSTEM)
        self.phase: Phase | None = None
        self._verb = ""

    def wrap(self, around: Callable[[Store], Any]) -> None:
        """Put something around the store that callers and workers use."""
        self.store = cast("Store", around(self._through))
        self.app.swap(self.store, SYSTEM)

    @property
    def client(self) -> Client:
        """What stands between callers and the store."""
        return self.app.client

    def arm(self, verb: str, phase: Phase) -> None:
        """Hit the next exchange of *verb*."""
        self._verb, self.phase = verb, phase
        self.proxy.arm(phase, verb=verb, ms=LASTS.get(phase, 0), only=self.is_about(verb))

    def is_about(self, verb: str) -> Callable[[bytes], bool]:
        """Return what says whether a request is one of *verb*."""
        return lambda request: self.medium.verb_of(request) == verb

    def served(self, verb: str) -> int:
        """Return how often the server has executed *verb*."""
        return self.medium.served(self.direct, verb)

    def arrived(self) -> None:
        """Wait until every try has arrived that ever will: the late first one, too."""
        self.proxy.wait_for_hits()
        self.proxy.heal()
        sent = self.medium.sent(self._through, self._verb)

        def all_arrived() -> bool:
            swallowed = sent[0] if self.phase in SWALLOWED else 0
            return self.served(self._verb) >= sum(sent) - swallowed

        until(all_arrived, f"{self._verb}: {sent} calls")

    def repeat(self, ask: Callable[[], A]) -> A:
        """Ask for what gets an error at first, as a careful caller does: until there is a reply."""
        with suppress(StoreUnavailableError):
            answer = ask()
            # Only who was held up himself for as long is not told that a delay was too long.
            assert self.phase in {Phase.DELAY_REQUEST, Phase.DELAY_REPLY}
            return answer
        return patiently(ask)

    def left(self, kind: str = KIND) -> Counts:
        """Count what is left of *kind*."""
        return self.direct.counts([kind])[kind]

    def close(self) -> None:
        self.app.close()
        self.direct.close()
        self.proxy.close()


def patiently(ask: Callable[[], A]) -> A:
    """Repeat *ask* until there is a reply."""
    deadline = SYSTEM.elapsed() + int(LIMIT * 1e9)
    while True:
        try:
            return ask()
        except StoreUnavailableError:
            assert SYSTEM.elapsed() < deadline, "the store does not come back"
            nap(0.01)


class Works:
    """A world's app with a handler that notes its attempts, and ears for its events."""

    def __init__(self, world: World, body: Callable[[Context], object] = lambda _ctx: None) -> None:
        self.started: list[Context] = []
        self.events: list[Event] = []
        self._news = threading.Condition()
        self.app = world.app
        self.app.listen(self._hear)

        @self.app.task(KIND)
        def handler(ctx: Context) -> object:
            with self._news:
                self.started.append(ctx)
                self._news.notify_all()
            return body(ctx)

    @contextmanager
    def working(self, lease: str = "30s") -> Iterator[None]:
        """Run a real worker meanwhile."""
        with self.app.worker(lease=lease, concurrency=4):
            yield

    def _hear(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind so far."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def wait(self, reached: Callable[[], object], what: str) -> None:
        """Wait for something that comes with an event."""
        with self._news:
            assert self._news.wait_for(reached, LIMIT), f"{what}: {self.events}"

    def wait_for(self, kind: type[E], count: int = 1) -> list[E]:
        """Wait until *count* events of *kind* have come."""
        self.wait(lambda: len(self.of(kind)) >= count, f"{count} of {kind.__name__} are to come")
        return self.of(kind)

    @property
    def lost(self) -> list[LeaseLost]:
        """The leases the worker could not settle."""
        return self.of(LeaseLost)
