"""MariaDB under fire: whoever is killed, the server too, the ledger finds every promise kept."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.network.servers import HOST, Server, mariadb, needed

from tarry.testing.proof import campaigns, kills
from tarry.testing.proof.mysql_server import DATABASE, url
from tarry.testing.proof.tally import Tally

pytestmark = [pytest.mark.medium("mysql"), pytest.mark.timeout(180)]

KILLS = int(os.environ.get("TARRY_KILLS", "50")) // 2
SERVER_KILLS = int(os.environ.get("TARRY_MYSQL_SERVER_KILLS", "4"))
SEED = int(os.environ.get("TARRY_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
HISTORIES = 5


@pytest.fixture(autouse=True)
def _ledgers_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with mariadb() as server:
        yield server


@pytest.fixture
def operator(server: Server) -> Iterator["pymysql.Connection[Any]"]:
    options: dict[str, Any] = {"host": HOST, "port": server.port, "user": "root"}
    with closing(pymysql.connect(**options, database=DATABASE, autocommit=True)) as operator:
        yield operator


def idle(tally: Tally, *names: str) -> list[str]:
    """Return what never happened: a run in which nothing did proves nothing."""
    return [name for name in names if not tally.counts.get(name)]


def stays(operator: "pymysql.Connection[Any]") -> int:
    """Return how many rows are left that do not go by themselves."""
    left = 0
    with operator.cursor() as cursor:
        for table in ("tarry_task", "tarry_ended", "tarry_lane"):
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            left += cursor.fetchall()[0][0]
    return left


def test_whoever_is_killed_no_promise_breaks(
    server: Server, operator: "pymysql.Connection[Any]"
) -> None:
    tally = kills.run(SEED, KILLS, url=url(server.port))

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.counts["killed"] >= KILLS
    assert idle(tally, "created", "started again", "settled", "unanswered") == []
    assert stays(operator) == 0


def test_cut_connections_break_nothing(server: Server, operator: "pymysql.Connection[Any]") -> None:
    cut: list[int] = []

    steps = count(1)

    def rage(_step: int) -> None:
        if next(steps) % 8:
            return
        with operator.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist "
                "WHERE user = 'root' AND id <> CONNECTION_ID()"
            )
            for (number,) in cursor.fetchall():
                with suppress(pymysql.MySQLError):
                    cursor.execute(f"KILL {number}")
                    cut.append(number)

    tally = kills.run(SEED, KILLS, url=url(server.port), rough=True, progress=rage)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert cut
    assert idle(tally, "created", "settled") == []
    assert stays(operator) == 0


def test_a_server_that_is_killed_forgets_nothing_it_acknowledged() -> None:
    needed("mariadbd")

    tally = kills.server_kills(SEED, SERVER_KILLS, medium="mysql")

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.tried == tally.counts["server killed"] == SERVER_KILLS
    assert idle(tally, "created", "settled") == []


def test_a_server_that_writes_nothing_down_is_caught() -> None:
    needed("mariadbd")

    tally = kills.server_kills(SEED, 3, medium="mysql", keeps=False)

    assert tally.broken != [], f"TARRY_SEED={SEED}"


def test_histories_in_virtual_time_keep_every_promise(
    server: Server, operator: "pymysql.Connection[Any]"
) -> None:
    tally = campaigns.simulation(SEED, HISTORIES, url(server.port))

    assert tally.broken == []
    assert idle(tally, "calls", "attempts") == []
    assert stays(operator) == 0
