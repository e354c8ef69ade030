"""The proof's own machinery: whatever happens to a slice is told, and nothing is left running."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.testing.proof import ground, orchestra
from tarry.testing.proof.campaign import Campaign, Slice
from tarry.testing.proof.campaigns import CAMPAIGNS
from tarry.testing.proof.orchestra import Orchestra, Part
from tarry.testing.proof.perform import Watch, Wish, choose, missing, perform
from tarry.testing.proof.report import Report

PLANTED = """
import os, signal, threading
from tarry.testing.proof.campaign import Caught, Slice
from tarry.testing.proof.tally import Broken, Tally

def seeds(first, count, url):
    return Tally(count, {str(seed): 1 for seed in range(first, first + count)})

def breaks(first, count, url):
    return Tally(count, {}, [Broken("lost", f"task 7 | at {os.environ['TMPDIR']}/x",
                                    f"tarry prove --seed {first}")])

def elsewhere(first, count, url):
    return Tally(count, {}, [Broken("lost", "", f"tarry prove --seed {first} --store URL")])

def seven(first, count, url):
    done = range(7)[first : first + count]
    return Slice(len(done), caught={f"control-{n}": Caught(n, "early") for n in done})

def controls(first, count, url):
    caught = {"ring-queue": Caught(3, "early"), "no-start-gate": None}
    return Slice(0, caught=caught)

def gets_away(first, count, url):
    return Slice(1 if first == 0 else 0, caught={"slippery": None} if first == 0 else {})

def raises(first, count, url):
    print("said on the way")
    raise ValueError("not today")

def dies(first, count, url):
    os.kill(os.getpid(), signal.SIGKILL)

def hangs(first, count, url):
    threading.Event().wait()
"""

Play = Callable[..., Report]


def campaign(work: str, *, finite: bool = False, most: int = 3) -> Campaign:
    return Campaign(
        work, f"{work} units", "planted", f"planted:{work}", least=1, most=most, finite=finite
    )


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run planted campaigns in real processes, one slice each unless there is more time."""
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def play(
        *campaigns: Campaign,
        budget_ms: int = 1,
        processes: int = 2,
        watch: Watch = lambda _: None,
    ) -> Report:
        wish = Wish(budget_ms, first=100, processes=processes)
        return perform(campaigns, wish, {"absent": "its tool is missing"}, watch)

    return play


def test_a_violation_is_told_with_the_command_that_replays_it(play: Play) -> None:
    report = play(campaign("breaks"), campaign("seeds"))

    assert not report.is_clean()
    [found] = report.violations
    assert (found.campaign, found.rule) == ("breaks", "lost")
    assert found.replay == "tarry prove --seed 100"
    assert report.data()["violations"] == [found]
    assert "`tarry prove --seed 100`" in report.markdown()
    verdict = "1 violation, 1 campaign skipped: 1 breaks units, 1 seeds units in "
    assert report.verdict().startswith(verdict)
    assert report.note == ""


def test_no_path_of_the_machine_is_in_the_report(play: Play) -> None:
    report = play(campaign("breaks"))

    assert report.violations[0].said == "task 7 | at x"
    assert report.folder not in report.markdown()


def test_every_campaign_is_played_however_small_the_budget(play: Play) -> None:
    report = play(campaign("seeds"), campaign("seven"), campaign("gets_away"), processes=1)

    assert [part.done.tried for part in report.parts] == [1, 0, 0]
    assert report.data()["skipped"] == {"absent": "its tool is missing"}
    assert "| absent | skipped: its tool is missing |" in report.markdown()


def test_slices_follow_each_other_and_grow_to_what_two_seconds_take() -> None:
    part = Part(campaign("seeds", most=500), 100, "memory:")

    orders = [part.order(), part.order()]
    part.take(orders[0], Slice(1), took=10_000_000)
    orders.append(part.order())
    part.take(orders[1], Slice(1), took=1)
    orders.append(part.order())

    assert [(order.first, order.count) for order in orders] == [
        (100, 1),
        (101, 1),
        (102, 200),
        (302, 399),
    ]


def test_a_finite_campaign_is_played_to_its_end(play: Play) -> None:
    report = play(campaign("seven", finite=True))

    assert list(report.controls) == [f"control-{n}" for n in range(7)]
    assert report.parts[0].done.tried == 7
    assert report.is_clean()
    row = "| control-3 | early | 3 | `tarry prove --control control-3 --seed 3` |"
    assert row in report.markdown()


def test_a_control_that_gets_away_is_a_failure(play: Play) -> None:
    report = play(campaign("gets_away", finite=True))

    assert not report.is_clean()
    assert report.violations == []
    assert report.data()["controls"] == {"slippery": None}
    assert ", 1 control not caught, " in report.verdict()
    assert "| slippery | **not caught** |" in report.markdown()


def test_controls_that_were_not_reached_are_not_caught(play: Play) -> None:
    report = play(campaign("controls", finite=True))

    names = {control.name for control in ground.controls()}
    assert not report.is_clean()
    assert set(report.data()["controls"]) == names
    assert report.data()["controls"]["ring-queue"] == 3
    assert report.data()["controls"]["two-step-claim"] is None
    said = f"0 violations, 1 control not caught, {len(names) - 2} controls not reached, "
    assert report.verdict().startswith(said)
    assert "| two-step-claim | not reached |" in report.markdown()
    assert "| no-start-gate | **not caught** |" in report.markdown()


@pytest.mark.parametrize("name", ["controls", "simulation"])
def test_without_its_negative_controls_or_the_simulation_nothing_is_proven(
    play: Play, name: str
) -> None:
    report = play(campaign("seeds"))
    assert report.is_clean()

    report.skipped = {name: "its tool is missing"}

    assert not report.is_clean()
    assert report.gaps == {name: "its tool is missing"}


def test_a_command_that_needs_the_url_of_the_store_says_so(play: Play) -> None:
    report = play(campaign("elsewhere"))

    assert report.note.startswith("In these commands URL stands for the store's")
    assert f"`tarry prove --seed 100 --store URL`\n\n{report.note}\n" in report.markdown() + "\n"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("raises", "from 100 on: ValueError: not today"),
        ("dies", "1 from 100 on: its process ended with -9"),
    ],
)
def test_a_slice_that_crashes_is_a_violation_and_the_others_go_on(
    play: Play, work: str, said: str
) -> None:
    report = play(campaign(work), campaign("seeds", most=1), budget_ms=200, processes=1)

    found = report.violations[0]
    assert (found.campaign, found.rule, found.said) == (work, "crashed", said)
    assert report.parts[1].done.tried > 0
    assert Path(report.folder, "log").exists()


def test_a_slice_that_hangs_is_given_up(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestra, "PATIENCE_NS", 300_000_000)

    report = play(campaign("hangs"), processes=1)

    assert [found.rule for found in report.violations] == ["hung"]


def test_a_clean_run_leaves_nothing_behind(play: Play, tmp_path: Path) -> None:
    play(campaign("seeds"))

    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_run_that_fails_leaves_nothing_behind_either(play: Play, tmp_path: Path) -> None:
    def fail(_: Orchestra) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        play(campaign("hangs"), watch=fail)

    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_campaigns_are_chosen_by_name() -> None:
    names = [one.name for one in choose(CAMPAIGNS, ["kills", "simulation", "kills"])]

    assert names == ["kills", "simulation"]
    with pytest.raises(ConfigError, match=r"'murder' is no campaign; there are: controls, sim"):
        choose(CAMPAIGNS, ["kills", "murder"])
    with pytest.raises(ConfigError, match=r"^there is no campaign; there are: controls, sim"):
        choose(CAMPAIGNS, [])


def test_what_cannot_be_run_on_a_store_is_told() -> None:
    said = missing(CAMPAIGNS, "memory:")

    assert set(said) >= {"kills", "stalls", "power-cuts", "system-calls"}
    assert "one process" in said["kills"]
    assert "files" in said["power-cuts"]
