"""Exactly one effect for each task, wherever the worker is killed: ctx.settle(tx=…)."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tarry.stores.connect import connect

CHILD = Path(__file__).with_name("joined_child.py")


class SqliteLedger:
    """A file with the tasks and a table of their effects."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.db"
        self.url = f"sqlite:///{self._path}?sync=normal&shared=yes"
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute("CREATE TABLE ledger (number INTEGER)")

    def numbers(self) -> list[int]:
        with closing(sqlite3.connect(self._path)) as db:
            return sorted(number for [number] in db.execute("SELECT number FROM ledger"))


LEDGERS = {"sqlite": SqliteLedger}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("medium", LEDGERS)
def test_one_effect_wherever_the_worker_is_killed(medium: str, tmp_path: Path) -> None:
    ledger = LEDGERS[medium](tmp_path)

    done = subprocess.run(
        [sys.executable, str(CHILD), ledger.url], stdout=subprocess.PIPE, text=True, check=True
    )

    points = int(done.stdout)
    assert points > 8
    assert ledger.numbers() == list(range(1, points + 1))
    with closing(connect(ledger.url)) as store:
        assert store.check() == []
