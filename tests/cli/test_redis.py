"""Commands on a Redis: what is its own there; all else is said in the tests of each command."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from redis import Redis
from tests.cli.conftest import stays
from tests.cli.moving import moves_there_and_back
from tests.network.servers import HOST, Server, reserved, until

from tarry import Tarry

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]
AwaitLine = Callable[..., str]

pytestmark = pytest.mark.medium("redis")


@pytest.fixture
def url(redis_url: str) -> str:
    return redis_url


def test_migrate_has_nothing_to_do(run: Run, operator: Redis) -> None:
    assert run("migrate").stdout == "current: layout needs none\n"
    assert json.loads(run("migrate", "--json").stdout)["applied"] == []


def test_doctor_shows_what_is_promised(run: Run, shop: Tarry, redis_server: Server) -> None:
    said = run("doctor")
    found = json.loads(run("doctor", "--json").stdout)

    assert "medium                         redis" in said.stdout
    assert re.search(r"an acknowledged task survives  process kill", said.stdout)
    assert found["ok"] is True
    assert re.search(f"{HOST}:{redis_server.port}: (redis|valkey) ", json.dumps(found["facts"]))


def test_doctor_sees_a_server_that_throws_tasks_away(
    run: Run, shop: Tarry, operator: Redis
) -> None:
    operator.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert "it throws tasks away" in run("doctor", code=6).stdout
    finally:
        operator.config_set("maxmemory-policy", "noeviction")


def test_a_server_that_does_not_answer_is_exit_5(run: Run) -> None:
    with reserved() as nobody:
        where = f"redis://{HOST}:{nobody.getsockname()[1]}"
        health = run("health", "--store", where, "--json", code=5)
        listed = run("list", "--store", where, code=5)

    assert json.loads(health.stdout)["ok"] is False
    assert "did not answer" in listed.stderr


def test_a_password_is_shown_nowhere(run: Run) -> None:
    with reserved() as nobody:
        where = f"redis://:hunter2@{HOST}:{nobody.getsockname()[1]}"
        said = run("list", "--store", where, code=5)

    assert "hunter2" not in said.output


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
def test_bench_measures_and_leaves_nothing_behind(run: Run, url: str, operator: Redis) -> None:
    sizes = ["--seconds", "0.3", "--burst", "300"]

    results = json.loads(run("bench", url, *sizes, "--json").stdout)["results"]

    assert all(result["value"] > 0 for result in results)
    assert stays(operator) == []


@pytest.mark.slow
def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(
    run: Run, url: str, operator: Redis
) -> None:
    out = run("demo", "--seconds", "1", "--json", "--store", url).stdout

    summary = json.loads(out.splitlines()[-1])
    assert (summary["early"], summary["cancelled_ran"]) == (0, False)
    assert stays(operator) == []


def test_everything_moves_from_a_server_to_a_file_and_back(
    run: Run, shop: Tarry, bury: Callable[..., None]
) -> None:
    moves_there_and_back(run, shop, bury)
