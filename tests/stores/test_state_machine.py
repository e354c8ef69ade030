"""Every store agrees with the memory store, whatever is done to both."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.network import servers
from tests.stores.postgres.kept import keep_links

from tarry.answers import RenewResult
from tarry.lease import Lease
from tarry.stores.connect import connect
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.proof import mysql_server
from tarry.testing.state_machine import compare

MakeStore = Callable[[ManualClock], Store]


@contextmanager
def memory(_folder: Path) -> Iterator[MakeStore]:
    yield lambda clock: MemoryStore(namespace="test", clock=clock)


@contextmanager
def sqlite(folder: Path) -> Iterator[MakeStore]:
    from tarry.stores.sqlite.store import SqliteStore

    numbers = count()
    yield lambda clock: SqliteStore(
        str(folder / f"{next(numbers)}.db"), namespace="test", clock=clock
    )


@contextmanager
def redis(folder: Path, options: str = "") -> Iterator[MakeStore]:
    """A server of its own, and a namespace of its own for each history."""
    numbers = count()
    with servers.redis(folder) as server:
        url = f"redis://{servers.HOST}:{server.port}{options}"
        yield lambda clock: connect(url, namespace=f"n{next(numbers)}", clock=clock)


@contextmanager
def postgres(_folder: Path) -> Iterator[MakeStore]:
    """A namespace of its own for each history."""
    url = servers.shared_postgres().url
    numbers = count()
    prefix = os.urandom(4).hex()
    yield lambda clock: connect(url, namespace=f"n{prefix}.{next(numbers)}", clock=clock)


@contextmanager
def mysql(_folder: Path) -> Iterator[MakeStore]:
    """A server of its own, and a namespace of its own for each history."""
    numbers = count()
    with servers.mariadb() as server:
        yield lambda clock: connect(
            mysql_server.url(server.port), namespace=f"n{next(numbers)}", clock=clock
        )


MEDIA: dict[str, Callable[[Path], AbstractContextManager[MakeStore]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "redis": redis,
    "redis, 16 shards": partial(redis, options="?shards=16"),
    "mysql": mysql,
}


FEW = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


PARTS = {"mysql": 2, "postgres": 2}
"""Of six: their answers take longest."""


@pytest.mark.parametrize(
    ("medium", "part"), [(name, part) for name in MEDIA for part in range(PARTS.get(name, 6))]
)
@pytest.mark.timeout(300)
def test_a_store_agrees_with_the_model(
    medium: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In six parts of fifty histories each, so that they can run side by side."""
    del part
    if medium == "postgres":
        keep_links(monkeypatch)

    with MEDIA[medium](tmp_path) as make:
        run_state_machine_as_test(compare(make), settings=FEW)


class LongLeases(MemoryStore):
    """A store with a planted mistake."""

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        return super().renew(leases, lease_ms=lease_ms + 1)


class OwnRevisions(MemoryStore):
    """A store whose revisions grow in steps of their own."""

    def _draw(self) -> int:
        self._revision += 7
        return self._revision


def test_a_planted_mistake_is_found() -> None:
    thorough = settings(
        FEW, max_examples=500, derandomize=True, database=None, phases=[Phase.generate]
    )

    with pytest.raises(AssertionError):
        run_state_machine_as_test(compare(lambda clock: LongLeases(clock=clock)), settings=thorough)


def test_revisions_need_only_grow() -> None:
    run_state_machine_as_test(
        compare(lambda clock: OwnRevisions(clock=clock)), settings=settings(FEW, max_examples=10)
    )


def test_a_store_is_closed_when_its_history_is_over() -> None:
    opened: list[Store] = []
    closed: list[Store] = []

    def make(clock: ManualClock) -> Store:
        opened.append(MemoryStore(clock=clock))
        return opened[-1]

    run_state_machine_as_test(
        compare(make, close=closed.append), settings=settings(FEW, max_examples=5)
    )

    assert opened == closed != []
