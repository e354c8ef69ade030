"""show, list, stats: what operators see, and what scripts read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from tarry import Tarry, TaskRef
from tarry.cli.output import blocks, clean, relative
from tarry.due import In
from tarry.lease import Lease
from tarry.request import Request

Run = Callable[..., Result]
Claim = Callable[[str], list[Lease]]
Bury = Callable[..., None]


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def keys(result: Result) -> list[str]:
    return [found["key"] for found in objects(result)]


# ---- show


def test_show_tells_everything_about_a_task(run: Run, shop: Tarry) -> None:
    shop.schedule(
        "a", "30m", key="k", payload={"n": 1}, headers={"trace": "7"}, cron="0 9 * * *", tz="UTC"
    )

    lines = dict(line.split(None, 1) for line in run("show", "a", "k").stdout.splitlines())

    assert lines["task"] == "a/k"
    assert lines["state"] == "scheduled"
    assert lines["due"].endswith("Z (in 30m)")
    assert lines["payload"] == '{"n":1}'
    assert lines["header"] == "trace  7"
    assert "made by a caller" in lines["rule"]


def test_show_as_json_is_one_object(run: Run, shop: Tarry) -> None:
    shop.schedule("a", "30m", key="k", payload={"n": 1}, headers={"trace": "7"})

    [found] = objects(run("show", "a", "k", "--json"))

    assert found["payload"] == {"n": 1}
    assert found["headers"] == {"trace": "7"}
    assert found["due"].endswith("Z")
    assert (found["state"], found["attempt"], found["rule"]) == ("scheduled", 0, None)


def test_show_in_another_zone(run: Run, shop: Tarry) -> None:
    shop.schedule("a", "2030-07-01T00:00:00Z", key="k")

    assert "2030-07-01T02:00:00.000+02:00" in run("show", "a", "k", "--tz", "Europe/Berlin").stdout
    assert "unknown time zone" in run("show", "a", "k", "--tz", "Mars/Olympus", code=2).stderr


def test_show_of_nothing_is_exit_3(run: Run, shop: Tarry) -> None:
    result = run("show", "a", "k", code=3)

    assert result.stdout == ""
    assert "there is no task a/k in namespace default" in result.stderr


def test_show_tells_why_a_task_is_dead(run: Run, bury: Bury) -> None:
    bury("a", "k", reason="line one\nline \x1b[31mtwo")

    output = run("show", "a", "k").stdout

    assert r"line one\nline \x1b[31mtwo" in output
    assert "ended" in output


def test_a_payload_that_is_no_json_is_measured(run: Run, url: str) -> None:
    class Secret:
        def encode(self, data: bytes) -> bytes:
            return b"\xff" + data

        def decode(self, data: bytes) -> bytes:
            return data[1:]

    with Tarry(url, codec=Secret()) as app:
        app.schedule("a", "1h", key="k")

    assert "<3 bytes that are no JSON>" in run("show", "a", "k").stdout
    [found] = objects(run("show", "a", "k", "--json"))
    assert found["payload"] == "<3 bytes that are no JSON>"


# ---- list


def test_list_is_a_table_by_due(run: Run, shop: Tarry, claim: Claim) -> None:
    shop.schedule("b", "2h", key="later")
    shop.schedule("a", "now", key="running")
    claim("a")

    head, first, second = run("list").stdout.splitlines()

    assert head.split() == ["STATE", "KIND", "KEY", "DUE", "IN", "REVISION", "ATTEMPT"]
    assert first.split()[:3] == ["leased", "a", "running"]
    assert second.split()[:3] == ["scheduled", "b", "later"]
    assert head.index("KEY") == second.index("later")
    assert "  2h  " in second


def test_list_of_nothing_talks_on_stderr(run: Run, shop: Tarry) -> None:
    result = run("list")

    assert (result.stdout, result.stderr) == ("", "no tasks\n")


def test_list_filters(run: Run, shop: Tarry, claim: Claim, bury: Bury) -> None:
    bury("dead", "d")
    shop.schedule("a", "5m", key="x1")
    shop.schedule("a", "5h", key="x2")
    shop.schedule("b", "5m", key="y1")
    shop.schedule("c", "now", key="z1")
    claim("c")

    assert keys(run("list", "--kind", "a", "--json")) == ["x1", "x2"]
    assert sorted(keys(run("list", "--kind", "b", "--kind", "c", "--json"))) == ["y1", "z1"]
    assert keys(run("list", "--state", "leased", "--json")) == ["z1"]
    assert keys(run("list", "--state", "dead", "--json")) == ["d"]
    assert keys(run("list", "--due-before", "10m", "--state", "scheduled", "--json")) == [
        "x1",
        "y1",
    ]
    assert keys(run("list", "--due-after", "1h", "--json")) == ["x2"]
    assert keys(run("list", "--key-prefix", "x", "--json")) == ["x1", "x2"]
    assert keys(run("list", "--due-before", "2001-01-01T00:00:00Z", "--json")) == []


def test_list_stops_at_its_limit_and_says_so(run: Run, shop: Tarry) -> None:
    shop.schedule_many(shop.build("a", "1h", key=f"{n:04}") for n in range(450))

    short = run("list", "--limit", "449", "--json")
    exact = run("list", "--limit", "450", "--json")

    assert len(objects(short)) == 449
    assert "--limit 4490" in short.stderr
    assert keys(exact) == [f"{n:04}" for n in range(450)]
    assert exact.stderr == ""


def test_namespaces_do_not_see_each_other(run: Run, shop: Tarry) -> None:
    run("schedule", "a", "1h", "--key", "k", "--namespace", "other")

    assert run("list", "--json").stdout == ""
    assert keys(run("list", "--json", "--namespace", "other")) == ["k"]


@pytest.mark.medium("sqlite")
def test_the_environment_and_a_file_name_the_store(
    run: Run, shop: Tarry, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.schedule("a", "1h", key="k")
    monkeypatch.setenv("TARRY_STORE", "sqlite:///nowhere.db")
    run("list", code=5)
    monkeypatch.delenv("TARRY_STORE")
    (folder / "tarry.toml").write_text('store = "sqlite:///shop.db"\n')

    assert keys(run("list", "--json")) == ["k"]


# ---- stats


def test_stats_counts_and_draws(run: Run, shop: Tarry, claim: Claim, bury: Bury) -> None:
    bury("a", "d1", "d2")
    shop.schedule("a", "now", key="late")
    shop.schedule("a", "7m", key="soon")
    shop.schedule("b", "now", key="runs")
    claim("b")
    shop.pause("c")

    output = run("stats").stdout
    [found] = objects(run("stats", "--json"))

    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines()[1:4]}
    assert rows["a"][:4] == ["2", "0", "2", "1"]
    assert rows["b"][:4] == ["0", "1", "0", "0"]
    assert rows["c"][-1] == "paused"
    assert "due within 1h, in steps of 5m: 2" in output
    assert "+5m  1  █" in output
    assert found["forecast"] == [1, 1, *[0] * 10]
    assert found["kinds"]["a"]["overdue"] == 1
    assert found["kinds"]["c"]["paused"] is True


def test_stats_with_other_bars(run: Run, shop: Tarry) -> None:
    shop.schedule("a", "90m", key="k")

    [found] = objects(run("stats", "--bucket", "1h", "--buckets", "3", "--json"))

    assert found["forecast"] == [0, 1, 0]
    run("stats", "--bucket", "0s", code=2)
    run("stats", "--bucket", "wide", code=2)


def test_stats_of_nothing(run: Run, shop: Tarry) -> None:
    assert "no tasks" in run("stats").stderr
    assert objects(run("stats", "--json"))[0]["kinds"] == {}


# ---- how things are written


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (0, "now"),
        (-20, "now"),
        (1, "in 1ms"),
        (-250, "250ms ago"),
        (1_999, "in 2s"),
        (1_799_998, "in 30m"),
        (-5_400_000, "1h30m ago"),
        (604_799_000, "in 1w"),
    ],
)
def test_how_far_away_is_said_shortly(away: int, text: str) -> None:
    assert relative(1_000_000_000_000 + away, 1_000_000_000_000) == text


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert clean("a\u202eb\x1b[0m") == r"a\u202eb\x1b[0m"


def test_the_smallest_bar_can_be_seen() -> None:
    assert blocks(0, 1_000) == ""
    assert len(blocks(1, 1_000)) == 1
    assert len(blocks(1_000, 1_000)) == 40


def test_what_a_hand_has_mended_is_still_one_line_of_json(shop: Tarry, run: Run) -> None:
    shop.store.schedule(
        [Request(TaskRef("k", "1"), In(60_000), b'{"n":\n1}', rule="nonsense", nominal=1)]
    )

    [line] = run("show", "k", "1", "--json").stdout.splitlines()

    shown = json.loads(line)
    assert (shown["payload"], shown["rule"]) == ({"n": 1}, "nonsense")
