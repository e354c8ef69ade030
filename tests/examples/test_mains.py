"""Every example runs as a script, tells its story and ends by itself."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.conftest import anywhere
from tests.network.servers import HOST, Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOT_A_STORY = {"smtp_sink"}
LIMIT_SECONDS = 50
NOT_THERE = {
    "recovery_after_restart",  # has a test of its own
    "order_in_one_transaction",  # is about a database of the shop's
}

LAST_LINES = {
    "content_takedown": ["2026-12-01T01:00:00.000Z: online []"],
    "iot_command_timeout": [
        "99 of 100 devices answered in time",
        "in memory: 19,999 of 20,000 answered in time, ['meter-7'] did not",
    ],
    "order_auto_cancel": ["order 41 is closed, order 42 is paid"],
    "order_in_one_transaction": [
        "orders: [(41, 'closed'), (42, 'paid')]",
        "ledger: [(41, 'closed')]",
    ],
    "out_of_order_events": [
        "dead letter account.link/link:eve after 720 snoozes: user eve never came"
    ],
    "overdue_reminder": ["to ada@example.org: Loan 1 is 7 days overdue"],
    "payment_callback_backoff": [
        "policy: 2m, 4m, 8m, 16m, 32m, then dead",
        "after 14m: order 42 4x, 43 4x",
        "revived: 0 dead letters left",
    ],
    "rating_after_48h": ["after 48h: 2000 trips are rated, trip 7 with 2 stars"],
    "recovery_after_restart": [
        "  breakfast: delivered at attempt 1",
        "  lunch: delivered at attempt 2, after 1 lost",
        "  dinner: delivered at attempt 1",
    ],
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - NOT_A_STORY == LAST_LINES.keys()


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_an_example_ends_by_itself_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TARRY_")}

    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert set(LAST_LINES[name]) <= set(done.stdout.splitlines())
    assert [path.name for path in tmp_path.iterdir() if ".coverage" not in path.name] == []


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_an_example_is_named_in_the_table_of_examples(name: str) -> None:
    assert f"({name}.py)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("medium", anywhere()[1:])
@pytest.mark.parametrize("name", sorted(LAST_LINES.keys() - NOT_THERE))
def test_an_example_tells_the_same_story_on_a_server(
    name: str,
    medium: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request.getfixturevalue(f"on_{medium}")
    monkeypatch.chdir(tmp_path)
    # Not syspath_prepend: what it does to the caches of imports is not for beside other threads.
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])

    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    assert set(LAST_LINES[name]) <= set(capsys.readouterr().out.splitlines())


@pytest.mark.medium("redis")
def test_a_worker_that_was_killed_is_followed_by_another_on_redis(
    redis_server: Server, tmp_path: Path
) -> None:
    name = "recovery_after_restart"
    environ = {**os.environ, "TARRY_STORE": f"redis://{HOST}:{redis_server.port}"}

    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert set(LAST_LINES[name]) <= set(done.stdout.splitlines())
