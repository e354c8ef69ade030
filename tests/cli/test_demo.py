"""tarry demo and tarry bench: real work on a scratch store, and nothing left behind."""

import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tarry import Tarry

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]


@pytest.mark.slow
def test_the_demo_tells_its_story_and_keeps_every_promise(spawn: Spawn, folder: Path) -> None:
    demo = spawn("demo", "--seconds", "2")

    out, err = demo.communicate()

    assert demo.returncode == 0, err
    assert "\x1b[" not in out
    for word in (
        "scheduled",
        "moved: earlier",
        "moved: later",
        "cancelled",
        "skip: paid",
        "retry:",
    ):
        assert word in out
    assert "snooze:" in out
    assert "dead: 410 Gone" in out
    assert "9 tasks run in 12 attempts" in out
    assert "0 early; order.cancel/1003 was cancelled and never ran." in out
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_the_demo_as_json_on_a_store_leaves_it_clean(run: Run, shop: Tarry) -> None:
    result = run("demo", "--seconds", "1", "--json", "--store", "sqlite:///shop.db")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    counts = Counter(event["event"] for event in events)
    assert counts["scheduled"] == 10
    assert (counts["retry"], counts["snooze"], counts["dead"], counts["skip"]) == (2, 1, 1, 1)
    assert events[-1]["event"] == "summary"
    assert (events[-1]["early"], events[-1]["cancelled_ran"]) == (0, False)
    shop.close()
    assert shop.store.counts() == {}
    assert leftovers() == 0


def leftovers() -> int:
    db = sqlite3.connect("shop.db")
    try:
        tables = ("task", "behind", "ended")
        return sum(db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)
    finally:
        db.close()


@pytest.mark.slow
def test_bench_measures_and_cleans_up(run: Run, shop: Tarry) -> None:
    sizes = ["--seconds", "0.3", "--burst", "300"]
    result = run("bench", "sqlite:///shop.db", *sizes, "--json")

    found = {r["name"]: r for r in json.loads(result.stdout)["results"]}
    assert set(found) == {
        "schedule",
        "schedule_many",
        "aschedule",
        "burst",
        "lateness p50",
        "lateness p99",
    }
    assert all(r["value"] > 0 for r in found.values())
    assert leftovers() == 0


@pytest.mark.slow
def test_bench_without_a_store_takes_a_temporary_one(run: Run, folder: Path) -> None:
    result = run("bench", "--seconds", "0.2", "--burst", "50")

    assert result.stdout.splitlines()[0].split() == ["MEASURE", "VALUE", "UNIT", "HOW"]
    assert len(result.stdout.splitlines()) == 7
    assert list(folder.iterdir()) == []


def test_a_store_that_cannot_be_used_is_told(run: Run) -> None:
    assert "error:" in run("demo", "--store", "nonsense", code=2).stderr
    assert "error:" in run("bench", "sqlite:////no/such/folder/x.db", code=5).stderr
