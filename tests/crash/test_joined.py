"""Exactly one effect for each task, wherever the worker is killed: ctx.settle(tx=…)."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest
from tests.network.servers import HOST, Server, mariadb, postgres

from tarry.stores.connect import connect
from tarry.testing.proof import mysql_server
from tarry.testing.proof.postgres_server import PostgresServer

CHILD = Path(__file__).with_name("joined_child.py")


class Ledger(Protocol):
    """A store, and a table of effects in the same database."""

    url: str

    def numbers(self) -> list[int]:
        """Return the effects there were."""


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


class PostgresLedger:
    """A database of its own on a PostgreSQL."""

    def __init__(self, server: PostgresServer) -> None:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("CREATE DATABASE ledger")
        self.url = server.url_of("ledger")
        with psycopg.connect(self.url) as db:
            db.execute("CREATE TABLE ledger (number INTEGER)")

    def numbers(self) -> list[int]:
        with psycopg.connect(self.url) as db:
            return sorted(number for [number] in db.execute("SELECT number FROM ledger"))


class MysqlLedger:
    """The one database of a MariaDB."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self.url = mysql_server.url(server.port)
        self._run("CREATE TABLE ledger (number INTEGER)")

    def numbers(self) -> list[int]:
        return sorted(number for [number] in self._run("SELECT number FROM ledger"))

    def _run(self, sql: str) -> Sequence[Any]:
        name = mysql_server.DATABASE
        with (
            closing(pymysql.connect(host=HOST, port=self._port, user="root", database=name)) as db,
            db.cursor() as cursor,
        ):
            cursor.execute(sql)
            return cursor.fetchall()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.medium("postgres")),
        pytest.param("mysql", marks=pytest.mark.medium("mysql")),
    ]
)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    match request.param:
        case "postgres":
            with closing(postgres()) as server:
                yield PostgresLedger(server)
        case "mysql":
            with mariadb() as server:
                yield MysqlLedger(server)
        case _:
            yield SqliteLedger(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_one_effect_wherever_the_worker_is_killed(ledger: Ledger) -> None:
    done = subprocess.run(
        [sys.executable, str(CHILD), ledger.url], stdout=subprocess.PIPE, text=True, check=True
    )

    points = int(done.stdout)
    assert points > 8
    assert ledger.numbers() == list(range(1, points + 1))
    with closing(connect(ledger.url)) as store:
        assert store.check() == []
