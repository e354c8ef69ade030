"""Commands on a PostgreSQL: what is its own there."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from tests.cli.moving import moves_there_and_back
from tests.network.servers import HOST, reserved, shared_postgres, until

from tarry import Tarry

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]
AwaitLine = Callable[..., str]
_NUMBERS = count()

pytestmark = pytest.mark.medium("postgres")


@pytest.fixture
def url() -> Iterator[str]:
    """Make a database that is empty."""
    server = shared_postgres()
    name = f"cli{next(_NUMBERS)}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        yield server.url_of(name)
        db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def tables(url: str) -> dict[str, int]:
    """Return how many rows there are of what is not forgotten by itself."""
    names = ("lane", "task", "behind", "ended", "holder")
    with psycopg.connect(url) as db:
        found = {
            name: db.execute(f"SELECT count(*) FROM tarry.{name}").fetchone() for name in names
        }
    return {name: row[0] for name, row in found.items() if row and row[0]}


def test_migrate_tells_what_is_left_and_applies_it_once(run: Run, url: str) -> None:
    status = run("migrate", "--status").stdout
    sql = run("migrate", "--sql").stdout

    assert status.splitlines() == [
        "current: layout none",
        *(f"pending: {step}" for step in ("0001 first", "0002 for_people", "0003 take_over")),
    ]
    assert sql.count("BEGIN;") == sql.count("COMMIT;") == 3
    assert json.loads(run("migrate", "--json").stdout)["layout"] == "3"
    assert run("migrate").stdout == "current: layout 3\n"
    assert run("migrate", "--sql").stdout == ""


def test_what_migrate_prints_can_be_run_by_anybody(run: Run, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(run("migrate", "--sql").stdout)

    assert json.loads(run("migrate", "--status", "--json").stdout) == {"layout": 3, "pending": []}
    assert run("doctor").exit_code == 0


def test_doctor_shows_what_is_promised(run: Run, shop: Tarry) -> None:
    found = json.loads(run("doctor", "--json").stdout)

    assert found["ok"] is True
    assert "PostgreSQL" in found["facts"]["server"]
    assert "power loss" in run("doctor").stdout


def test_a_server_that_does_not_answer_is_exit_5(run: Run) -> None:
    with reserved() as nobody:
        where = f"postgresql://u:hunter2@{HOST}:{nobody.getsockname()[1]}/db"
        health = run("health", "--store", where, "--json", code=5)
        listed = run("list", "--store", where, code=5)

    assert json.loads(health.stdout)["ok"] is False
    assert "did not answer" in listed.stderr
    assert "hunter2" not in listed.output + health.output


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
def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(run: Run, url: str) -> None:
    out = run("demo", "--seconds", "1", "--json", "--store", url).stdout

    summary = json.loads(out.splitlines()[-1])
    assert (summary["early"], summary["cancelled_ran"]) == (0, False)
    assert tables(url) == {}
