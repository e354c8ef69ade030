"""From a URL to a store."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tarry.errors import RefError, StoreError, StoreUrlError
from tarry.stores.connect import connect, file_of
from tarry.stores.memory import MemoryStore
from tarry.stores.sqlite.store import SqliteStore
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import schedule


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of each test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("url", ["memory:", "memory://", "memory:///"])
def test_memory(url: str) -> None:
    store = connect(url, namespace="shop")

    assert isinstance(store, MemoryStore)
    assert store.namespace == "shop"
    assert file_of(url) is None


@pytest.mark.parametrize("url", ["memory:x", "memory://host", "memory:///name", "memory:?a=b"])
def test_memory_takes_nothing(url: str) -> None:
    with pytest.raises(StoreUrlError, match="takes nothing behind it"):
        connect(url)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///tarry.db", "tarry.db"),
        ("sqlite:///./tarry.db", "tarry.db"),
        ("sqlite:///sub/tarry.db", "sub/tarry.db"),
        ("sqlite:///sub/../tarry.db", "tarry.db"),
        ("sqlite:/tarry.db", "tarry.db"),
        ("sqlite:///no-ending", "no-ending"),
        ("sqlite:///with space.db", "with space.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("sqlite:///a%2Bb+c.db", "a+b+c.db"),
        ("sqlite:///50%25.db", "50%.db"),
        ("sqlite:///q%3Fm%23h.db", "q?m#h.db"),
        ("sqlite:///%C3%BC.db", "ü.db"),
        ("sqlite:///ü.db", "ü.db"),
        ("sqlite:///sub%2Ftarry.db", "sub/tarry.db"),
        ("sqlite:///colon:here@there.db", "colon:here@there.db"),
        ("sqlite:///tarry.db?", "tarry.db"),
        ("sqlite:///tarry.db?sync=full", "tarry.db"),
        ("sqlite:///tarry.db?sync=normal", "tarry.db"),
    ],
)
def test_a_relative_file(folder: Path, url: str, name: str) -> None:
    (folder / "sub").mkdir()

    with closing(connect(url)) as store:
        assert isinstance(store, SqliteStore)
        assert Path(store.path) == (folder / name).resolve()
        assert (folder / name).is_file()

    named = file_of(url)
    assert named is not None
    assert Path(named).resolve() == (folder / name).resolve()


def test_an_absolute_file(tmp_path: Path) -> None:
    path = tmp_path / "absolute.db"

    with closing(connect(f"sqlite:///{path}")) as store:
        assert isinstance(store, SqliteStore)
        assert Path(store.path) == path.resolve()
    assert file_of(f"sqlite:///{path}") == str(path)


@pytest.mark.parametrize(
    ("url", "survives"),
    [
        ("sqlite:///tarry.db", "power loss"),
        ("sqlite:///tarry.db?sync=full", "power loss"),
        ("sqlite:///tarry.db?sync=normal", "process kill"),
    ],
)
def test_the_option_of_durability(url: str, survives: str) -> None:
    with closing(connect(url)) as store:
        assert store.capabilities.survives == survives


@pytest.mark.parametrize(
    "query",
    ["sync=off", "sync=", "sync=FULL", "sync", "mode=ro", "sync=full&timeout=5", "sync=full&x"],
)
def test_other_options_are_refused_before_anything_is_made(folder: Path, query: str) -> None:
    with pytest.raises(
        StoreUrlError, match=r"only options of sqlite are sync=full.normal and shared=yes.no"
    ):
        connect(f"sqlite:///tarry.db?{query}")

    assert list(folder.iterdir()) == []


def test_an_option_that_is_said_twice_is_refused(folder: Path) -> None:
    with pytest.raises(StoreUrlError):
        connect("sqlite:///tarry.db?sync=normal&sync=full")

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:/",
        "sqlite://",
        "sqlite:///",
        "sqlite://tarry.db",
        "sqlite://host/tarry.db",
        "sqlite:tarry.db",
        "sqlite:///?sync=full",
    ],
)
def test_a_url_without_a_file_shows_how_one_is_written(folder: Path, url: str) -> None:
    for call in (connect, file_of):
        with pytest.raises(StoreUrlError, match=r"names no file; write sqlite:///tarry\.db.*////"):
            call(url)

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///tarry.db#1", "sqlite:///a%00b.db", "sqlite://[/a.db"])
def test_what_cannot_be_a_name_is_refused(folder: Path, url: str) -> None:
    with pytest.raises(StoreUrlError):
        connect(url)

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("url", ["", "tarry.db", "/var/lib/tarry.db", "sqlite"])
def test_what_is_no_url_shows_the_forms(url: str) -> None:
    with pytest.raises(StoreUrlError, match=r"no store URL; write one of: memory:  sqlite:///"):
        connect(url)


@pytest.mark.parametrize(
    "url", ["oracle://host/db", "http://host", "sqlite3:///tarry.db", ":memory:", "C:\\tarry.db"]
)
def test_an_unknown_medium_shows_the_known_ones(url: str) -> None:
    with pytest.raises(StoreUrlError, match=r"not a medium this tarry knows.*memory:  sqlite:///"):
        connect(url)


def test_an_error_of_a_url_is_a_value_error_and_a_store_error() -> None:
    with pytest.raises(ValueError, match="no store URL"):
        connect("nonsense")
    with pytest.raises(StoreError):
        connect("nonsense")


@pytest.mark.parametrize("url", ["memory:", "sqlite:///tarry.db"])
def test_the_namespace_and_the_clock_are_handed_on(url: str) -> None:
    clock = ManualClock()

    with closing(connect(url, namespace="shop", clock=clock)) as store:
        assert store.namespace == "shop"
        assert schedule(store).due == clock.now()


@pytest.mark.parametrize("url", ["memory:", "sqlite:///tarry.db"])
def test_a_namespace_is_checked_first(folder: Path, url: str) -> None:
    with pytest.raises(RefError):
        connect(url, namespace="not allowed")

    assert list(folder.iterdir()) == []


def test_a_medium_is_imported_only_when_it_is_named() -> None:
    script = (
        "import sys; from tarry.stores.connect import connect; connect('memory:');"
        "print('sqlite3' in sys.modules, 'tarry.stores.sqlite.store' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.split() == ["False", "False"]
