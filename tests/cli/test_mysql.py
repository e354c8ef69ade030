"""Commands on a MariaDB: what is its own there; all else is said in the tests of each command."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pymysql
import pytest
from click.testing import Result
from pymysql.constants import CLIENT
from tests.cli.moving import moves_there_and_back
from tests.network.servers import HOST, Server, mariadb, reserved, until

from tarry import Tarry
from tarry.stores.mysql.url import parse

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]
AwaitLine = Callable[..., str]

pytestmark = pytest.mark.medium("mysql")
_NUMBERS = count()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    with mariadb() as server:
        yield server


@pytest.fixture
def url(mysql_server: Server) -> Iterator[str]:
    """A database of its own."""
    name = f"shop{next(_NUMBERS)}"
    port = mysql_server.port
    with (
        closing(pymysql.connect(host=HOST, port=port, user="root")) as operator,
        operator.cursor() as cursor,
    ):
        cursor.execute(f"CREATE DATABASE {name}")
        yield f"mysql://root@{HOST}:{mysql_server.port}/{name}"
        cursor.execute(f"DROP DATABASE {name}")


def test_migrate_makes_the_tables_once(run: Run) -> None:
    assert run("migrate").stdout == "applied: 0001 first\ncurrent: layout 1\n"
    assert json.loads(run("migrate", "--json").stdout) == {"applied": [], "layout": "1"}


def test_migrate_tells_what_is_left_and_changes_nothing(run: Run) -> None:
    for _ in range(2):
        assert run("migrate", "--status").stdout == "current: layout none\npending: 0001 first\n"
        assert "CREATE TABLE IF NOT EXISTS tarry_task" in run("migrate", "--sql").stdout
    run("migrate")

    assert json.loads(run("migrate", "--status", "--json").stdout) == {"layout": 1, "pending": []}
    assert run("migrate", "--sql").stdout == ""


def test_what_migrate_prints_can_be_run_by_anybody(run: Run, url: str) -> None:
    place = parse(url)
    sql = run("migrate", "--sql").stdout
    with closing(
        pymysql.connect(
            host=HOST,
            port=place.port,
            user="root",
            database=place.database,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )
    ) as operator:
        for _ in range(2):
            with operator.cursor() as cursor:
                cursor.execute(sql)
                while cursor.nextset():
                    pass
        operator.commit()

    assert run("migrate").stdout == "current: layout 1\n"
    assert run("doctor").exit_code == 0


def test_doctor_shows_what_is_promised(run: Run, shop: Tarry) -> None:
    said = run("doctor")
    found = json.loads(run("doctor", "--json").stdout)

    assert "medium                         mariadb" in said.stdout
    assert "an acknowledged task survives  process kill" in said.stdout
    assert "joins transactions             yes" in said.stdout
    assert "wake-up                        poll 100ms" in said.stdout
    assert found["ok"] is True
    assert found["facts"]["server"].startswith("MariaDB 1")


def test_a_server_that_does_not_answer_is_exit_5_and_shows_no_password(run: Run) -> None:
    with reserved() as nobody:
        where = f"mysql://root:hunter2@{HOST}:{nobody.getsockname()[1]}/shop"
        said = run("list", "--store", where, code=5)

    assert "did not answer" in said.stderr
    assert "hunter2" not in said.output


def test_everything_moves_from_a_server_to_a_file_and_back(
    run: Run, shop: Tarry, bury: Callable[..., None]
) -> None:
    moves_there_and_back(run, shop, bury)


@pytest.mark.slow
def test_a_worker_runs_what_a_command_schedules(
    run: Run, spawn: Spawn, module: Path, await_line: AwaitLine, shop: Tarry
) -> None:
    worker = spawn("worker", "shop:app")
    await_line(worker.stderr, "serves")

    run("schedule", "order.cancel", "now", "--key", "7", "--payload", '{"order_id": 7}')

    await_line(worker.stdout, "cancelled 7")
    until(lambda: not shop.store.counts(["order.cancel"])["order.cancel"].leased, "settled")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.slow
def test_the_demo_keeps_every_promise(run: Run, url: str) -> None:
    out = run("demo", "--seconds", "1", "--json", "--store", url).stdout

    summary = json.loads(out.splitlines()[-1])
    assert (summary["early"], summary["cancelled_ran"]) == (0, False)
