"""schedule, reschedule, cancel, run-now: what they print, change, and exit with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tarry import Tarry, TaskRef, TaskState
from tarry.lease import Lease

Run = Callable[..., Result]
Claim = Callable[[str], list[Lease]]
REF = TaskRef("order.cancel", "42")
HOUR = 3_600_000


def facts(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# ---- schedule


@pytest.mark.medium("sqlite")
def test_schedule_makes_the_store_and_says_what_it_did(run: Run, folder: Path) -> None:
    result = run("schedule", "order.cancel", "30m", "--key", "42", "--payload", '{"order_id": 42}')

    assert result.stdout.startswith("created: order.cancel/42  due 20")
    assert "Z (in 30m)  revision " in result.stdout
    assert "making a new store" in result.stderr
    assert (folder / "shop.db").stat().st_mode & 0o777 == 0o600


def test_schedule_takes_everything_a_caller_can_say(run: Run, shop: Tarry) -> None:
    options = ["--header", "trace=1=2", "--header", "user=me", "--every", "1h", "--catch-up", "all"]
    result = run("schedule", "a", "tomorrow 09:00 Europe/Berlin", "--key", "k", *options, "--json")

    task = shop.get(TaskRef("a", "k"))

    assert task is not None
    assert facts(result)["revision"] == task.revision
    assert task.headers == b'{"trace":"1=2","user":"me"}'
    assert '"all"' in task.rule
    assert str(HOUR) in task.rule


def test_schedule_keeps_a_payload_from_stdin_as_it_is(run: Run, shop: Tarry) -> None:
    text = '{"n": 123456789012345678901234567890, "x": [1.0]}'

    run("schedule", "a", "1h", "--key", "k", "--payload", "-", input=text + "\n")

    task = shop.get(TaskRef("a", "k"))
    assert task is not None
    assert task.payload == text.encode()


def test_schedule_without_a_key_tells_the_one_it_made(run: Run, shop: Tarry) -> None:
    made = facts(run("schedule", "a", "1h", "--json"))

    assert shop.get(TaskRef("a", made["key"])) is not None


def test_schedule_answers_by_mode(run: Run, shop: Tarry) -> None:
    first = facts(run("schedule", "a", "1h", "--key", "k", "--json"))
    kept = facts(run("schedule", "a", "2h", "--key", "k", "--on-conflict", "keep", "--json"))
    replaced = facts(run("schedule", "a", "2h", "--key", "k", "--json"))
    refused = run("schedule", "a", "3h", "--key", "k", "--on-conflict", "fail", code=4)
    stale = run(
        "schedule", "a", "3h", "--key", "k", "--if-revision", str(first["revision"]), code=4
    )

    assert (kept["status"], kept["due"]) == ("kept", first["due"])
    assert replaced["status"] == "replaced"
    assert "unchanged" in refused.stderr
    assert "unchanged" in stale.stderr


def test_latest_waits_no_longer_than_max_wait(run: Run, shop: Tarry) -> None:
    run("schedule", "a", "1h", "--key", "k")
    modes = ["--on-conflict", "latest", "--max-wait", "90m"]

    run("schedule", "a", "3h", "--key", "k", *modes)

    task = shop.get(TaskRef("a", "k"))
    assert task is not None
    assert task.due - task.created == 90 * 60_000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["a", "soon"], "30m"),
        (["a", "2030-01-01T00:00:00"], "naive"),
        (["a b", "1h"], "kind"),
        (["a", "1h", "--key", ""], "key"),
        (["a", "1h", "--payload", "{nope"], "no JSON"),
        (["a", "1h", "--payload", "[1]"], "object of arguments"),
        (["a", "1h", "--header", "x"], "NAME=VALUE"),
        (["a", "1h", "--every", "1h"], "needs --key"),
        (["a", "1h", "--key", "k", "--cron", "nope"], "cron"),
        (["a", "1h", "--key", "k", "--every", "1h", "--cron", "* * * * *"], "not both"),
        (["a", "1h", "--payload", '{"x": "%s"}' % ("y" * 300_000)], "bytes"),
        (["a", "1h", "--namespace", "a/b"], "namespace"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_scheduled_is_exit_2_and_changes_nothing(
    run: Run, shop: Tarry, args: list[str], words: str
) -> None:
    result = run("schedule", *args, code=2)

    assert words in result.stderr
    assert result.stdout == ""
    assert shop.store.counts() == {}


# ---- reschedule


def test_reschedule_moves_and_says_where_to(run: Run, shop: Tarry) -> None:
    shop.schedule("order.cancel", "1h", key="42")

    result = run("reschedule", "order.cancel", "42", "2h")

    assert result.stdout.startswith("moved: order.cancel/42  due 20")
    assert "(in 2h)" in result.stdout


@pytest.mark.parametrize(
    ("shift", "moved"), [("+15m", 15), ("-15m", -15), ("-1h", -60), ("-PT30M", -30)]
)
def test_a_sign_shifts_the_present_due(run: Run, shop: Tarry, shift: str, moved: int) -> None:
    before = shop.schedule("order.cancel", "2h", key="42").due

    run("reschedule", "order.cancel", "42", shift)

    task = shop.get(REF)
    assert task is not None
    assert task.due - before == moved * 60_000


def test_only_moves_in_one_direction(run: Run, shop: Tarry) -> None:
    shop.schedule("order.cancel", "1h", key="42")

    run("reschedule", "order.cancel", "42", "2h", "--only", "earlier", code=4)
    run("reschedule", "order.cancel", "42", "+5m", "--only", "earlier", code=4)
    run("reschedule", "order.cancel", "42", "30m", "--only", "earlier")
    result = run("reschedule", "order.cancel", "42", "10m", "--only", "later", "--json", code=4)

    assert facts(result)["status"] == "unchanged"


def test_reschedule_exits_by_the_answer(run: Run, shop: Tarry, claim: Claim) -> None:
    absent = run("reschedule", "order.cancel", "42", "1h", code=3)
    revision = shop.schedule("order.cancel", "now", key="42").revision
    conflict = run("reschedule", "order.cancel", "42", "1h", "--if-revision", "99999999", code=4)
    claim("order.cancel")
    running = run("reschedule", "order.cancel", "42", "1h", "--if-revision", str(revision), code=4)

    assert [r.stdout.partition(":")[0] for r in (absent, conflict, running)] == [
        "absent",
        "conflict",
        "running",
    ]
    assert "nothing was changed" in running.stderr


def test_a_time_that_cannot_be_read_moves_nothing(run: Run, shop: Tarry) -> None:
    shop.schedule("order.cancel", "1h", key="42")

    assert "duration" in run("reschedule", "order.cancel", "42", "+soon", code=2).stderr
    assert "No such option" in run("reschedule", "order.cancel", "42", "--soon", code=2).stderr


# ---- cancel


def test_cancel_says_so_and_the_task_is_gone(run: Run, shop: Tarry) -> None:
    shop.schedule("order.cancel", "1h", key="42")

    result = run("cancel", "order.cancel", "42")

    assert result.stdout == "cancelled: order.cancel/42\n"
    assert shop.get(REF) is None
    assert run("cancel", "order.cancel", "42", code=3).stdout == "absent: order.cancel/42\n"


def test_cancel_is_too_late_for_what_runs(run: Run, shop: Tarry, claim: Claim) -> None:
    revision = shop.schedule("order.cancel", "now", key="42").revision
    conflict = run("cancel", "order.cancel", "42", "--if-revision", "99999999", "--json", code=4)
    claim("order.cancel")
    running = run("cancel", "order.cancel", "42", "--if-revision", str(revision), "--json", code=4)

    assert (facts(conflict)["status"], facts(running)["status"]) == ("conflict", "running")


def test_cancel_of_a_declared_series_skips_one_occurrence(run: Run, shop: Tarry) -> None:
    @shop.task("report.send", every="1h")
    def report() -> None:
        pass

    before = report.schedule("1h").due

    result = run("cancel", "report.send", "report.send")

    task = shop.get(TaskRef("report.send", "report.send"))
    assert task is not None
    assert task.due == before + HOUR
    assert "goes on at" in result.stderr


# ---- run-now


def test_run_now_moves_to_now(run: Run, shop: Tarry, claim: Claim) -> None:
    shop.schedule("order.cancel", "1h", key="42")

    assert run("run-now", "order.cancel", "42").stdout.startswith("moved: order.cancel/42")
    assert len(claim("order.cancel")) == 1
    run("run-now", "order.cancel", "42", code=4)
    run("run-now", "order.cancel", "43", code=3)


def test_run_now_revives_the_dead(run: Run, shop: Tarry, bury: Callable[..., None]) -> None:
    bury("order.cancel", "42")

    run("run-now", "order.cancel", "42")

    task = shop.get(REF)
    assert task is not None
    assert task.state is TaskState.SCHEDULED
