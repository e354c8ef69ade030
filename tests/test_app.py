"""The app: opened when it is first used, closed when it is left, nothing at import."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tarry import Tarry, TaskRef
from tarry.clock import SYSTEM
from tarry.errors import (
    HandlerError,
    RefError,
    StoreClosedError,
    StoreError,
    StoreUrlError,
    WhenError,
)
from tarry.stores.memory import MemoryStore
from tarry.testing.clock import ManualClock


def test_nothing_is_opened_before_the_first_verb(tmp_path: Path) -> None:
    app = Tarry(f"sqlite:///{tmp_path}/tarry.db")

    @app.task(every="1h")
    def hourly() -> None: ...

    assert list(tmp_path.iterdir()) == []
    hourly.schedule("1h")
    assert (tmp_path / "tarry.db").exists()
    app.close()


def test_a_bad_url_is_told_at_the_first_verb() -> None:
    app = Tarry("redis-ish://x")

    with pytest.raises(StoreUrlError):
        app.get(TaskRef("k", "1"))


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Tarry(f"sqlite:///{tmp_path}/no/such/folder/t.db").schedule("k", "1h")


@pytest.mark.parametrize("namespace", ["", "a b", "x" * 65, "ü"])
def test_a_namespace_is_checked(namespace: str) -> None:
    with pytest.raises(RefError):
        Tarry("memory:", namespace=namespace)


def test_settings_are_checked() -> None:
    with pytest.raises(WhenError):
        Tarry("memory:", retry_for="long")
    with pytest.raises(WhenError, match="at most 20 s"):
        Tarry("memory:", retry_for="21s")


def test_namespaces_are_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tarry.db"
    with Tarry(url, namespace="a") as first, Tarry(url, namespace="b") as second:
        first.schedule("k", "1h", key="1")

        assert first.get(TaskRef("k", "1")) is not None
        assert second.get(TaskRef("k", "1")) is None


def test_threads_that_open_the_app_together_get_one_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[MemoryStore] = []
    barrier = threading.Barrier(8)

    def connect(*_: Any, **__: Any) -> MemoryStore:
        threading.Event().wait(0.01)
        made.append(MemoryStore())
        return made[-1]

    monkeypatch.setattr("tarry.app.connect", connect)
    app = Tarry("memory:")

    def use() -> None:
        barrier.wait()
        app.schedule("k", "1h")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


def test_leaving_the_app_closes_its_store(tmp_path: Path) -> None:
    with Tarry(f"sqlite:///{tmp_path}/tarry.db") as app:
        app.schedule("k", "1h", key="1")
        store = app.store

    with pytest.raises(StoreClosedError):
        store.get([TaskRef("k", "1")])
    assert app.get(TaskRef("k", "1")) is not None, "the next verb opens it again"
    app.close()


def test_the_app_stands_on_the_clock_it_was_given() -> None:
    clock = ManualClock(5_000)

    assert Tarry("memory:", clock=clock).schedule("k", "1s").due == 6_000
    assert Tarry("memory:").clock is SYSTEM


def test_two_apps_do_not_know_each_other() -> None:
    one, other = Tarry("memory:"), Tarry("memory:")
    one.task("k")(lambda: None)

    other.task("k")(lambda: None)

    one.schedule("k", "1h", key="1")
    assert other.get(TaskRef("k", "1")) is None


@pytest.mark.parametrize(
    "options",
    [
        {"cron": "* * *"},
        {"every": "1h", "cron": "0 3 * * *"},
        {"every": "1h", "tz": "Europe/Berlin"},
        {"cron": "0 3 * * *", "tz": "Mars/Olympus"},
        {"every": "1h", "catch_up": "some"},
        {"every": "0s"},
        {"tz": "Europe/Berlin"},
        {"catch_up": "all"},
    ],
)
def test_a_rule_that_cannot_work_is_told_when_it_is_declared(options: Any) -> None:
    with pytest.raises(HandlerError):
        Tarry("memory:").task("k", **options)(lambda: None)
