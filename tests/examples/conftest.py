"""Loads an example afresh for each test, as a worker would import it; on every medium."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.network.servers import HOST, UNSYNCED, Server, mariadb, redis, shared_postgres

from tarry.clock import Clock
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse as parse_mysql
from tarry.stores.postgres.store import PostgresStore
from tarry.stores.postgres.url import parse as parse_postgres
from tarry.stores.redis.store import RedisStore
from tarry.stores.redis.url import parse
from tarry.stores.store import Store
from tarry.testing.proof.mysql_server import url as url_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Load = Callable[[str], ModuleType]
VIRTUAL = "tarry.testing.virtual"
_NUMBERS = count()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis(tmp_path_factory.mktemp("redis"), *UNSYNCED) as server:
        yield server


@contextmanager
def _on(base: type[Any], place: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let apps use one medium, whatever store they name; virtual time runs there, too."""
    opened: list[Store] = []
    run = next(_NUMBERS)

    def connect(_url: str, *, namespace: str, clock: Clock | None) -> Store:
        opened.append(base(place, namespace=f"{namespace}.{run}", clock=clock))
        return opened[-1]

    class InVirtualTime(base):  # type: ignore[misc] # the class of a store
        def __init__(self, *, namespace: str, clock: Clock, rng: object) -> None:
            del rng
            super().__init__(place, namespace=f"{namespace}.{next(_NUMBERS)}", clock=clock)
            opened.append(self)

        def next_due(self, kinds: Sequence[str]) -> int | None:
            due: int | None = self.claim(kinds, limit=0, lease_ms=1, holder="virtual").next_due
            return due

    import_module(VIRTUAL)
    monkeypatch.setattr(sys.modules[VIRTUAL], "MemoryStore", InVirtualTime)
    monkeypatch.setattr("tarry.app.connect", connect)
    yield
    assert opened, "the story was told elsewhere"
    for store in opened:
        store.close()


@pytest.fixture
def on_redis(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let apps use a real Redis."""
    place = parse(f"redis://{HOST}:{redis_server.port}")
    with _on(RedisStore, place, monkeypatch):
        yield


@pytest.fixture
def on_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let apps use a real PostgreSQL."""
    with _on(PostgresStore, parse_postgres(shared_postgres().url), monkeypatch):
        yield


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    with mariadb() as server:
        yield server


@pytest.fixture
def on_mysql(mysql_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let apps use a real MariaDB."""
    with _on(MysqlStore, parse_mysql(url_of(mysql_server.port)), monkeypatch):
        yield


def anywhere() -> list[Any]:
    """Return the media as parameters."""
    servers = ("mysql", "postgres", "redis")
    return ["memory", *(pytest.param(name, marks=pytest.mark.medium(name)) for name in servers)]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded: list[ModuleType] = []

    def fresh(name: str) -> ModuleType:
        spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        loaded.append(module)
        return module

    yield fresh

    for module in loaded:
        if hasattr(module, "app"):
            module.app.close()
        sys.modules.pop(module.__name__, None)
    assert not list(tmp_path.glob("*.db")), "importing or testing an example opened its store"
