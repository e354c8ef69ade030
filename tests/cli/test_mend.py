"""dead, pause, resume, migrate, doctor, health."""

import json
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tarry import Tarry, TaskRef
from tarry.lease import Lease
from tarry.stores.store import Store

Run = Callable[..., Result]
Claim = Callable[[str], list[Lease]]
Bury = Callable[..., None]


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Let a person answer the questions."""

    def person(answer: bool) -> list[str]:
        asked: list[str] = []

        def confirm(question: str, **_: object) -> bool:
            asked.append(question)
            return answer

        monkeypatch.setattr("tarry.cli.options.somebody_is_there", lambda: True)
        monkeypatch.setattr("click.confirm", confirm)
        return asked

    return person


# ---- dead


def test_dead_list_tells_the_reasons(run: Run, bury: Bury) -> None:
    bury("a", "x", "y", reason="no\nroom")
    bury("b", "z")

    output = run("dead", "list").stdout.splitlines()

    assert output[0].split()[-1] == "REASON"
    assert [line.split()[2] for line in output[1:]] == ["x", "y", "z"]
    assert output[1].endswith(r"no\nroom")
    assert [o["key"] for o in objects(run("dead", "list", "--kind", "b", "--json"))] == ["z"]
    assert "these are the first 1" in run("dead", "list", "--limit", "1").stderr


def test_dead_list_of_nothing(run: Run, shop: Tarry) -> None:
    assert run("dead", "list").stderr == "no dead letters\n"


def test_revive_one_and_exit_by_the_answer(run: Run, shop: Tarry, bury: Bury) -> None:
    bury("a", "x")

    assert run("dead", "revive", "a", "x").stdout == "revived: a/x\n"
    assert run("dead", "revive", "a", "x", code=3).stdout == "absent: a/x\n"
    bury("a", "y")
    shop.schedule("a", "1h", key="y")
    assert run("dead", "revive", "a", "y", code=4).stdout == "skipped: a/y\n"


def test_revive_many_says_how_many(run: Run, shop: Tarry, bury: Bury) -> None:
    bury("a", *(str(n) for n in range(450)))
    bury("b", "z")
    shop.schedule("a", "1h", key="7")

    result = run("dead", "revive", "--kind", "a", "--yes")

    assert sorted(result.stdout.strip().split(", ")) == ["revived 449", "skipped 1"]
    assert shop.store.counts()["b"].dead == 1
    assert objects(run("dead", "revive", "--all", "--yes", "--json")) == [
        {"skipped": 1, "revived": 1}
    ]


def test_purge_asks_and_refuses_without_a_person(run: Run, shop: Tarry, bury: Bury) -> None:
    bury("a", "x", "y")

    one = run("dead", "purge", "a", "x", code=2)
    many = run("dead", "purge", "--all", code=2)

    assert "add --yes" in one.stderr
    assert "Purge 2 dead letters of namespace default?" in many.stderr
    assert shop.store.counts()["a"].dead == 2


def test_a_person_may_say_no(
    run: Run, shop: Tarry, bury: Bury, person: Callable[[bool], list[str]]
) -> None:
    bury("a", "x")
    asked = person(False)

    result = run("dead", "purge", "--kind", "a", code=1)

    assert asked == ["Purge 1 dead letters of a?"]
    assert "nothing was changed" in result.stderr
    assert shop.store.counts()["a"].dead == 1


def test_a_person_may_say_yes(
    run: Run, shop: Tarry, bury: Bury, person: Callable[[bool], list[str]]
) -> None:
    bury("a", "x")
    person(True)

    assert run("dead", "purge", "a", "x").stdout == "purged: a/x\n"
    assert "a" not in shop.store.counts()


def test_purge_one_revision_or_nothing(run: Run, bury: Bury) -> None:
    bury("a", "x")

    run("dead", "purge", "a", "x", "--revision", "99999999", "--yes", code=3)
    run("dead", "purge", "a", "x", "--yes", "--json")
    run("dead", "purge", "a", "x", "--yes", code=3)
    assert run("dead", "purge", "--all").stdout == "no dead letters\n"


def test_an_interrupted_bulk_says_how_far_it_came(
    run: Run, shop: Tarry, bury: Bury, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury("a", *(str(n) for n in range(450)))
    calls = []
    purge = type(shop.store).purge

    def interrupted(self: Store, refs: list[Any], **kwargs: Any) -> Any:
        calls.append(len(refs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return purge(self, refs, **kwargs)

    monkeypatch.setattr(type(shop.store), "purge", interrupted)

    result = run("dead", "purge", "--all", "--yes", code=130)

    assert "purged 200; run it again to go on" in result.stderr


@pytest.mark.parametrize(
    "args", [[], ["a"], ["a", "x", "--all"], ["--all", "--kind", "a"], ["--all", "--revision", "1"]]
)
def test_which_dead_letters_must_be_clear(run: Run, shop: Tarry, args: list[str]) -> None:
    assert "say which" in run("dead", "revive", *args, "--yes", code=2).stderr
    assert "say which" in run("dead", "purge", *args, "--yes", code=2).stderr


# ---- pause and resume


def test_pause_and_resume(run: Run, shop: Tarry, claim: Claim) -> None:
    shop.schedule("a", "now", key="k")

    assert run("pause", "a").stdout == "paused: a\n"
    assert "already" in run("pause", "a").stderr
    assert claim("a") == []
    assert objects(run("resume", "a", "--json")) == [
        {"status": "resumed", "kind": "a", "changed": True}
    ]
    assert "was not paused" in run("resume", "a").stderr
    assert len(claim("a")) == 1
    run("pause", "a b", code=2)


# ---- migrate


@pytest.mark.medium("sqlite")
def test_migrate_makes_the_layout_and_says_what_it_did(run: Run, folder: Path) -> None:
    first = run("migrate").stdout
    again = run("migrate", "--json")

    assert first.startswith("applied: 0001 ")
    assert objects(again)[0]["applied"] == []
    assert (folder / "shop.db").exists()


@pytest.mark.medium("sqlite")
def test_a_store_of_a_newer_tarry_is_refused(run: Run, shop: Tarry, folder: Path) -> None:
    shop.close()
    db = sqlite3.connect(folder / "shop.db")
    db.execute("PRAGMA user_version=999")
    db.close()

    assert "newer tarry" in run("migrate", code=5).stderr


# ---- doctor


@pytest.mark.medium("sqlite")
def test_doctor_finds_nothing_and_shows_what_is_promised(run: Run, shop: Tarry) -> None:
    result = run("doctor")
    [found] = objects(run("doctor", "--json"))

    assert "an acknowledged task survives  power loss" in result.stdout
    assert "layout" in result.stdout
    assert "all is well" in result.stderr
    assert found["ok"] is True
    assert found["facts"]["SQLite"] == sqlite3.sqlite_version


@pytest.mark.medium("sqlite")
def test_doctor_sees_who_else_may_use_the_file(run: Run, shop: Tarry, folder: Path) -> None:
    (folder / "shop.db").chmod(0o644)
    folder.chmod(0o777)

    [found] = objects(run("doctor", "--json", code=6))

    assert any("mode 0644" in line and "chmod 600" in line for line in found["found"])
    assert any("writable for everybody" in line for line in found["found"])
    folder.chmod(stat.S_IRWXU)


@pytest.mark.medium("sqlite")
def test_doctor_sees_sockets_of_dead_workers(run: Run, shop: Tarry, folder: Path) -> None:
    wake = folder / "shop.db-wake"
    wake.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind("shop.db-wake/1-dead.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as alive:
        alive.bind("shop.db-wake/2-alive.sock")

        [found] = objects(run("doctor", "--json", code=6))

    assert [line for line in found["found"] if "1 sockets of dead workers" in line]


def test_doctor_passes_on_what_the_store_finds(
    run: Run, shop: Tarry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(shop.store), "check", lambda _: ["the file is damaged"])

    assert "found: the file is damaged" in run("doctor", code=6).stdout


def test_doctor_names_tasks_that_the_code_no_longer_knows(
    run: Run, shop: Tarry, module: Path, fresh_modules: None
) -> None:
    @shop.task("report.send", every="1h")
    def kept() -> None:
        pass

    @shop.task("gone.series", every="1h")
    def gone() -> None:
        pass

    kept.schedule("1h")
    gone.schedule("1h")
    shop.schedule("gone.kind", "1h", key="k")

    found = objects(run("doctor", "shop:app", "--json", code=6))[0]["found"]

    assert any("kind gone.kind" in line for line in found)
    assert any("gone.series/gone.series recurs" in line for line in found)
    assert not any("report.send" in line for line in found)


# ---- health


def test_health_is_well_while_nothing_is_late(run: Run, shop: Tarry) -> None:
    shop.schedule("a", "now", key="k")

    assert run("health").stdout == "ok\n"


def test_health_complains_of_what_is_late_unless_it_is_paused(run: Run, shop: Tarry) -> None:
    shop.schedule("a", "now", key="k")
    task = shop.get(TaskRef("a", "k"))
    assert task is not None

    [found] = objects(run("health", "--max-overdue", "0s", "--json", code=None))
    late = run("health", "--max-overdue", "0s", code=1)
    shop.pause("a")
    paused = run("health", "--max-overdue", "0s")

    assert found["overdue"] in ({}, {"a": "0s"})
    assert late.stdout.startswith("overdue: a  since ")
    assert paused.stdout == "ok\n"


def test_health_takes_its_limit_from_the_environment(
    run: Run, shop: Tarry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_MAX_OVERDUE", "soon")

    assert "TARRY_MAX_OVERDUE" in run("health", code=2).stderr


@pytest.mark.medium("sqlite")
def test_health_of_a_store_that_does_not_answer_is_exit_5(run: Run, folder: Path) -> None:
    result = run("health", "--json", code=5)

    assert objects(result)[0]["ok"] is False
