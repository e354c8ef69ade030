"""A store in a file that has a table of its caller's too."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tarry import Tarry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def app(path: Path) -> Iterator[Tarry]:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with Tarry(f"sqlite:///{path}?shared=yes&sync=normal") as app:
        app.store  # noqa: B018 - opened before there is a transaction
        yield app


@pytest.fixture
def orders(path: Path) -> Callable[[], list[Any]]:
    def read() -> list[Any]:
        with closing(sqlite3.connect(path)) as db:
            return [row[0] for row in db.execute("SELECT id FROM orders ORDER BY id")]

    return read
