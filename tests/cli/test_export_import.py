"""export and import: tasks move between stores, and come from a table of the user's own."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace

from tarry import Tarry, Task, TaskRef, TaskState
from tarry.cli import export as exporting
from tarry.cli import from_sql, import_
from tarry.lease import Lease
from tarry.stores.store import Filter, Store

Run = Callable[..., Result]
OTHER = ("--store", "sqlite:///other.db")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, import_, from_sql):
        monkeypatch.setattr(module, "PAGE", 5)


@pytest.fixture
def full(shop: Tarry, bury: Callable[..., None]) -> Store:
    """Return a store that has a bit of everything."""
    for n in range(12):
        shop.schedule("order.cancel", f"{n + 1}h", key=f"o{n}", payload={"order_id": n})
    shop.schedule("report", "1h", key="r", every="1h", headers={"trace": "ä"})
    odd = b"\x00\xffno json"
    shop.client.take_over(
        [
            Task(
                ref=TaskRef("odd", "k\u00e4y"),
                due=10**13,
                revision=0,
                created=5,
                payload=odd,
                headers=odd,
            ),
            Task(
                ref=TaskRef("tried", "1"),
                due=10**13,
                revision=0,
                created=5,
                attempt=3,
                lost=1,
                snoozes=2,
            ),
        ]
    )
    bury("payment.notify", "88", reason="card refused")
    return shop.store


def everything(store: Store) -> list[Task]:
    found = []
    for state in (TaskState.SCHEDULED, TaskState.DEAD):
        found += store.scan(Filter(state), limit=500).tasks
    return sorted((replace(task, revision=0) for task in found), key=lambda task: task.ref)


def others() -> list[Task]:
    with Tarry("sqlite:///other.db") as app:
        return everything(app.store)


def test_everything_moves_and_is_as_it_was(full: Store, run: Run) -> None:
    assert run("export", "tasks.ndjson").exit_code == 0

    result = run("import", "tasks.ndjson", *OTHER)

    assert (result.exit_code, result.stdout) == (0, "imported: tasks 15, dead letters 1\n")
    assert others() == everything(full)
    assert not Path("tasks.ndjson.progress").exists()


def test_an_import_can_be_repeated(full: Store, run: Run) -> None:
    run("export", "tasks.ndjson")
    run("import", "tasks.ndjson", *OTHER)

    result = run("import", "tasks.ndjson", "--json", *OTHER)

    assert json.loads(result.stdout) == {"status": "imported", "there_already": 16}
    assert others() == everything(full)


def test_what_waits_is_replaced_if_asked_to(full: Store, run: Run) -> None:
    run("export", "tasks.ndjson")
    run("schedule", "order.cancel", "9d", "--key", "o1", *OTHER)

    result = run("import", "tasks.ndjson", "--on-conflict", "replace", *OTHER)

    assert result.exit_code == 0
    assert others() == everything(full)


def test_stdout_to_stdin(full: Store, run: Run) -> None:
    exported = run("export", "-", "--kind", "order.cancel", "--state", "scheduled")

    result = run("import", "-", *OTHER, input=exported.stdout)

    assert result.stdout == "imported: tasks 12\n"


def test_what_runs_is_left_out_and_counted(
    full: Store, shop: Tarry, claim: Callable[[str], list[Lease]], run: Run
) -> None:
    shop.schedule("running", "now", key="1")
    claim("running")

    result = run("export", "tasks.ndjson", "--json")

    assert json.loads(result.stdout) == {"exported": 16, "running": 1}
    assert "1 attempts were running" in result.stderr


def test_a_file_is_not_written_over(full: Store, run: Run) -> None:
    Path("tasks.ndjson").write_text("mine")

    run("export", "tasks.ndjson", code=2)
    assert Path("tasks.ndjson").read_text() == "mine"
    assert run("export", "tasks.ndjson", "--force").exit_code == 0


@pytest.mark.parametrize("lines", [0, 3, 8, 14, 30])
def test_an_export_goes_on_where_it_was_cut(full: Store, run: Run, lines: int) -> None:
    run("export", "tasks.ndjson")
    whole = Path("tasks.ndjson").read_bytes()
    kept = whole.splitlines(keepends=True)[:lines]
    Path("tasks.ndjson").write_bytes(b"".join(kept) + b'{"kind":"half a li')

    result = run("export", "tasks.ndjson", "--resume")

    assert result.exit_code == 0
    assert Path("tasks.ndjson").read_bytes() == whole
    assert "finished" in run("export", "tasks.ndjson", "--resume").stderr


def test_an_export_that_was_cut_is_told(full: Store, run: Run) -> None:
    run("export", "tasks.ndjson")
    lines = Path("tasks.ndjson").read_bytes().splitlines(keepends=True)
    Path("tasks.ndjson").write_bytes(b"".join(lines[:-1]))

    assert "not finished" in run("import", "tasks.ndjson", *OTHER).stderr


BAD = [
    ("garbage", "malformed"),
    ('{"kind":"a","due":"2030-01-01T00:00:00Z"}', "key"),
    ('{"kind":"a","key":"1","due":"30m"}', "delay"),
    ('{"kind":"a","key":"1","due":"2030-01-01T00:00:00"}', "zone"),
    ('{"kind":"a b","key":"1","due":"2030-01-01T00:00:00Z"}', "kind"),
    ('{"kind":"a","key":"1","due":"2030-01-01T00:00:00Z","pay":1}', "pay"),
    ('{"kind":"a","key":"1","due":"2030-01-01T00:00:00Z","attempt":-1}', "below zero"),
    ('{"kind":"a","key":"1","due":"2030-01-01T00:00:00Z","rule":{"every":"x"}}', "rule|every|int"),
    (
        '{"kind":"a","key":"1","due":"2030-01-01T00:00:00Z","payload_base64":"?"}',
        "base64|padding|data",
    ),
]


def test_a_bad_line_is_named_and_changes_nothing_else(run: Run) -> None:
    good = '{"kind":"a","key":"%s","due":"2030-01-01T00:00:00Z","payload":{"n": 1}}'
    lines = [good % "first", "", *(bad for bad, _ in BAD), good % "last"]
    Path("mine.ndjson").write_text("\n".join(lines))

    result = run("import", "mine.ndjson", *OTHER, code=1)

    assert result.stdout == f"imported: malformed {len(BAD)}, tasks 2\n"
    told = [line for line in result.stderr.splitlines() if line.startswith("line ")]
    assert [line.partition(":")[0] for line in told] == [f"line {n + 3}" for n in range(len(BAD))]
    assert [task.ref.key for task in others()] == ["first", "last"]


def test_a_dry_run_changes_nothing(full: Store, run: Run) -> None:
    run("export", "tasks.ndjson")

    result = run("import", "tasks.ndjson", "--dry-run", *OTHER)

    assert result.stdout == "checked: tasks 16\n"
    assert not Path("other.db").exists()


def test_an_import_goes_on_where_it_was_interrupted(
    full: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("export", "tasks.ndjson")
    real, calls = import_._Lines._place, []

    def place(self: Any, tasks: list[Task]) -> None:
        calls.append(len(tasks))
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, tasks)

    monkeypatch.setattr(import_._Lines, "_place", place)
    run("import", "tasks.ndjson", *OTHER, code=130)
    # What was imported and is done by now is not done again.
    first = others()[0]
    run("cancel", first.ref.kind, first.ref.key, *OTHER)

    result = run("import", "tasks.ndjson", *OTHER)

    assert "going on behind line 10" in result.stderr
    assert result.stdout == "imported: tasks 15, dead letters 1\n"
    assert len(others()) == 15


def test_what_to_import_must_be_said(run: Run) -> None:
    run("import", *OTHER, code=2)
    run("import", "a.ndjson", "--sql", "select 1", *OTHER, code=2)
    run("migrate", *OTHER)
    run("export", "-", "--resume", *OTHER, code=2)


# ---- rows of a table


@pytest.fixture
def table() -> str:
    with closing(sqlite3.connect("orders.db")) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, created TEXT, who TEXT, grp INT)")
        db.executemany(
            "INSERT INTO orders VALUES (?, '2030-01-01 00:00:00', ?, ?)",
            [(n, f"{n}%", n // 7) for n in range(1, 13)],
        )
    return "sqlite:///orders.db"


SQL = "select id, datetime(created, '+30 minutes'), who, grp from orders where who like '%'"


def rows(table: str, *more: str) -> tuple[str, ...]:
    return (
        *("import", "--from", table, "--kind", "order.cancel", "--key", "order:{id}"),
        *("--args", "order_id=id,who", *OTHER, *more),
    )


def test_rows_become_tasks(run: Run, table: str) -> None:
    result = run(*rows(table, "--tz", "Asia/Shanghai", "--sql", f"{SQL};"))

    assert (result.exit_code, result.stdout) == (0, "imported: tasks 12\n")
    task = others()[0]
    assert task.ref.key == "order:1"
    assert json.loads(task.payload) == {"order_id": 1, "who": "1%"}
    assert task.due == 1893429000000


def test_rows_that_wait_already_stay(run: Run, table: str) -> None:
    run(*rows(table, "--tz", "UTC", "--sql", SQL))

    result = run(*rows(table, "--tz", "Asia/Shanghai", "--sql", SQL, "--json"))

    assert json.loads(result.stdout) == {"status": "imported", "there_already": 12}


def test_rows_go_on_behind_a_value(run: Run, table: str) -> None:
    result = run(*rows(table, "--tz", "UTC", "--sql", SQL, "--after", "7"))

    assert result.stdout == "imported: tasks 5\n"


def test_an_interruption_says_how_to_go_on(
    run: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Tarry.build, []

    def build(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(self, *args, **options)

    monkeypatch.setattr(Tarry, "build", build)
    result = run(*rows(table, "--tz", "UTC", "--sql", SQL), code=130)

    assert "--after 5" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sql", SQL), "has no zone"),
        (("--sql", SQL, "--due", "who"), "not a time"),
        (("--sql", "select id, null as due from orders"), "no column 'who'"),
        (("--sql", SQL, "--tz", "UTC", "--page-by", "grp"), "not unique"),
        (("--sql", "select nullif(id, 3) as id, created, who from orders"), "1 rows have no id"),
        (("--sql", "selec"), "cannot be run"),
        (("--sql", SQL, "--due", "whenever"), "no column 'whenever'"),
    ],
)
def test_rows_that_do_not_fit_are_told(
    run: Run, table: str, options: tuple[str, ...], said: str
) -> None:
    result = run(*rows(table, *options), code=None)

    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert others() == []


def test_a_source_that_is_not_there_is_told(run: Run) -> None:
    run(*rows("sqlite:///nowhere.db", "--sql", SQL), code=5)
    run(*rows("redis://localhost", "--sql", SQL), code=2)
