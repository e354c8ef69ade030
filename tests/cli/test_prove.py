"""tarry prove: real campaigns with a small budget, replays, and an end that leaves nothing."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import Result
from msgspec.structs import replace
from redis import Redis
from tests.cli.conftest import stays

from tarry.testing.proof import campaigns
from tarry.testing.proof.campaign import Campaign
from tarry.testing.proof.replay import FAULTS, mishaps_of, tell
from tarry.testing.simulation import Fault, Plan, Step, draw
from tarry.testing.simulation import run as simulated

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]

KEYS = {
    *("histories", "model_histories", "kills", "stalls", "server_kills"),
    *("power_cuts", "syscalls"),
    *("violations", "controls", "rules", "counts", "skipped", "seconds", "first_seed"),
    *("interrupted", "store", "processes", "cores", "python", "tarry"),
}


@pytest.fixture
def scraps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files made where a test can see whether they were removed."""
    path = folder / "scraps"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_proof_in_json_says_what_was_tried_and_what_was_not(
    spawn: Spawn, folder: Path, scraps: Path
) -> None:
    proof = spawn("prove", "--store", "memory:", "--budget", "2s", "--json")

    out, err = proof.communicate()

    assert proof.returncode == 0, err
    said = json.loads(out)
    assert set(said) == KEYS
    assert said["histories"] >= 20
    assert said["model_histories"] > 0
    assert said["violations"] == []
    assert len(said["controls"]) > 20
    assert None not in said["controls"].values()
    assert set(said["skipped"]) == {
        "kills",
        "stalls",
        "server-kills",
        "power-cuts",
        "system-calls",
    }
    assert said["kills"] == 0
    assert "without" not in err
    assert f"seeds from {said['first_seed']} on" in err
    assert str(folder) not in out
    assert list(scraps.iterdir()) == []
    assert list(folder.iterdir()) == [scraps]


@pytest.mark.slow
def test_real_processes_are_killed_and_the_report_is_written(
    spawn: Spawn, folder: Path, scraps: Path
) -> None:
    chosen = ["--only", "kills,power-cuts", "--first", "7"]
    proof = spawn("prove", *chosen, "--budget", "1s", "--report", "proof.md")

    out, err = proof.communicate()

    assert proof.returncode == 0, err
    assert out.startswith("0 violations: ")
    page = (folder / "proof.md").read_text()
    assert page.startswith("# Proof\n\n**0 violations: ")
    assert "seeds from 7 on" in page
    assert "- kills: " in page
    assert "## Violations\n\nNone.\n" in page
    assert list(scraps.iterdir()) == []


@pytest.mark.slow
def test_a_store_is_tried_in_files_of_their_own(spawn: Spawn, folder: Path) -> None:
    chosen = ["--only", "simulation,model", "--store", "sqlite:///disk.db"]
    proof = spawn("prove", *chosen, "--budget", "1s", "--json")

    out, err = proof.communicate()

    assert proof.returncode == 0, err
    said = json.loads(out)
    assert said["histories"] >= 20
    assert said["model_histories"] > 0
    assert said["store"] == "sqlite"
    assert list(folder.iterdir()) == []


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Have one campaign, which does *what* in a process of its own."""
    (folder / "planted.py").write_text(
        "from pathlib import Path\n"
        "from tarry.testing.proof.tally import Broken, Tally\n"
        "def work(first, count, url):\n"
        f"    found, folder = [], Path({str(folder)!r})\n"
        f"    {what}\n"
        "    return Tally(1, {}, found)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    planted = Campaign("planted", "units", "plants something", "planted:work")
    monkeypatch.setattr(campaigns, "CAMPAIGNS", (planted,))


def test_a_violation_ends_in_exit_code_1_and_its_command_is_in_the_report(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, monkeypatch, "found = [Broken('early', 'task 7', f'tarry prove --seed {first}')]")
    monkeypatch.setattr("tarry.cli.prove._LINE_NS", 0)
    monkeypatch.setattr("tempfile.tempdir", str(folder))

    result = run("prove", "--budget", "1ms", "--first", "4711", code=1)

    assert "- **early** (planted): task 7\n  `tarry prove --seed 4711`" in result.stdout
    assert "left its traces in" in result.stderr
    assert re.search(r"^\d+ s: \d units, \d violations$", result.stderr, re.MULTILINE)


def test_a_report_that_cannot_be_written_is_printed(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, monkeypatch, "(folder / 'away').rmdir()")
    (folder / "away").mkdir()

    result = run("prove", "--budget", "1ms", "--report", "away/proof.md", code=1)

    assert result.stdout.startswith("# Proof\n\n**0 violations: 1 units in ")
    assert "error: the report was not written: " in result.stderr
    assert "away/proof.md" in result.stderr


def test_a_person_at_a_terminal_sees_a_bar(spawn: Spawn) -> None:
    ours, theirs = pty.openpty()
    proof = spawn("prove", "--only", "simulation", "--budget", "500ms", stderr=theirs)
    os.close(theirs)

    shown = b""
    with suppress(OSError):  # what a terminal says when nobody holds its other end
        while data := os.read(ours, 4_096):
            shown += data
    proof.communicate()
    os.close(ours)

    assert proof.returncode == 0
    assert b"proving  [" in shown
    assert b" tried, 0 violations" in shown


# ---- replays


def test_a_replay_is_the_same_to_the_byte(run: Run, spawn: Spawn) -> None:
    first = run("prove", "--seed", "4711").stdout

    again = spawn("prove", "--seed", "4711", env={**os.environ, "PYTHONHASHSEED": "7"})

    assert again.communicate()[0] == first
    assert again.returncode == 0
    assert first.startswith("History 4711: ")
    assert "\nThe plan\n" in first
    assert "  asks: claim\n" in first
    assert first.endswith("\nEvery promise was kept.\n")


def test_a_replay_as_json_holds_the_plan_and_the_ledger(run: Run) -> None:
    said = json.loads(run("prove", "--seed", "3", "--json").stdout)

    assert set(said) == {"seed", "plan", "entries", "violations"}
    assert said["plan"]["seed"] == 3
    assert set(said["entries"][0]) == {"ms", "entry"}


def test_a_control_is_replayed_and_cut_short(run: Run) -> None:
    whole = run("prove", "--control", "two-step-claim", "--seed", "0", code=1).stdout

    cut = run("prove", "--control", "two-step-claim", "--seed", "0", "--shortest", code=1).stdout

    assert "\nBROKEN: double start: " in whole
    assert "\nBROKEN: double start: " in cut
    assert len(cut) < len(whole)


def test_every_fault_of_a_plan_has_its_words() -> None:
    drawn = {fault.what for seed in range(400) for fault in draw(seed).faults}

    assert drawn == set(FAULTS)


def test_what_goes_wrong_is_told_with_its_subject() -> None:
    faults = (
        Fault(at=559, what="kill", who="w1", span=81),
        Fault(at=25, what="lag", who="a1", span=200, amount=1_200),
        Fault(at=70, what="clock", amount=-700),
        Fault(at=80, what="crash", span=20),
    )
    poison = Step(at=10, who="p1", verb="schedule", script=("ok", "kill"))

    assert list(mishaps_of(Plan(steps=(poison, poison), faults=faults))) == [
        "w1 is killed at 559 ms, for 81 ms",
        "a1 gets messages up to 1200 ms late at 25 ms, for 200 ms",
        "the store's clock is stepped by -700 ms at 70 ms",
        "the medium crashes at 80 ms, for 20 ms",
        "the handler of async.work/1 kills its worker",
    ]


def test_a_pause_is_told_of_its_kind() -> None:
    pause = Step(at=10, who="p1", verb="pause")
    batch = Step(at=400, who="p1", verb="batch", delay=5)
    plan = Plan(steps=(pause, replace(pause, at=200), batch, replace(pause, at=600, verb="resume")))

    told = [line.split("  ")[-1] for line in tell(simulated(plan))]

    assert told.count("pause async.work") == 2
    assert told.count("asks: pause async.work") == 2
    assert [line for line in told if line.startswith("is told: it")] == [
        "is told: it was not paused",
        "is told: it was paused",
        "is told: it was paused",
    ]
    batched = "schedule every key of async.work in 5 ms, on conflict replace; attempts of 0 ms: ok"
    assert batched in told
    assert "the end; the store is empty" in told


def test_leases_that_were_lost_are_counted_in_words() -> None:
    poison = Step(at=10, who="p1", verb="schedule", script=("kill",))

    told = "\n".join(tell(simulated(Plan(steps=(poison,), workers=("w1",)))))

    assert "attempts of 0 ms: kills its worker\n" in told
    assert "attempt 2, 1 lease lost (lease 2)\n" in told
    assert "attempt 3, 2 leases lost (lease 3)\n" in told
    assert "the end; what the store still holds:\n" in told
    assert "async.work/1 dead, revision 1, " in told


def test_a_history_on_a_store_can_be_replayed(run: Run, folder: Path) -> None:
    said = run("prove", "--seed", "5", "--store", "sqlite:///disk.db").stdout

    assert "History 5: a file on one machine" in said
    assert list(folder.iterdir()) == []


# ---- what cannot be done


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--budget", "soon"], "is not a duration"),
        (["--budget", "0s"], "longer than nothing"),
        (["--budget", "0"], "longer than nothing"),
        (["--only", "murder"], "'murder' is no campaign; there are: controls, simulation"),
        (["--only", ","], "error: there is no campaign; there are: controls, simulation"),
        (["--report", "no/such/place.md"], "no/such is no folder that can be written to"),
        (["--seed", "1", "--report", "x.md"], "a replay has no --report: leave it out"),
        (["--control", "ring-queue", "--budget", "8h"], "a replay has no --budget"),
        (["--control", "ring-queue", "--shortest"], "add --seed N"),
        (["--only", "kills", "--store", "memory:"], "kills: memory lives in one process"),
        (["--control", "nonsense"], "there is no control 'nonsense'"),
        (["--control", "nonsense", "--seed", "1"], "there is no control 'nonsense'"),
        (["--control", "ring-queue", "--seed", "1", "--store", "memory:"], "leave --store out"),
        (["--store", "nonsense"], "is no store URL"),
    ],
)
def test_a_wrong_command_line_is_told(run: Run, args: list[str], said: str) -> None:
    assert said in run("prove", *args, code=2).stderr


def test_a_folder_that_is_not_there_is_told(run: Run) -> None:
    args = ["--only", "model", "--store", "sqlite:////no/such/folder/x.db"]
    assert "is no folder" in run("prove", *args, code=5).stderr


def test_a_missing_tool_is_told_with_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    said = run("prove", "--only", "system-calls", code=2).stderr

    assert "strace is not installed" in said
    assert "apt-get install strace" in said


def without(packages: list[str], *args: str) -> subprocess.CompletedProcess[str]:
    """Run `tarry prove` where some packages are not installed."""
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({packages})); sys.argv[0] = 'tarry'\n"
        "from tarry.cli.main import main; main()"
    )
    command = [sys.executable, "-c", script, "prove", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("args", [["--only", "simulation"], ["--seed", "1"]])
def test_a_missing_package_is_told_with_what_to_install(args: list[str]) -> None:
    done = without(["greenlet"], *args)

    assert done.returncode == 2
    assert "greenlet is not installed: pip install 'tarry[prove]'" in done.stderr


def test_where_nothing_can_be_tried_nothing_is_proven() -> None:
    done = without(["greenlet", "hypothesis"], "--store", "memory:", "--budget", "1ms")

    assert done.returncode == 1
    assert "**0 violations, 8 campaigns skipped: nothing in 0 s**" in done.stdout
    assert "without controls nothing is proven: greenlet is not installed" in done.stderr
    assert "without simulation nothing is proven: greenlet is not installed" in done.stderr


# ---- the end


def children(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have."""
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in thread.read_text().split():
            yield int(child)
            yield from children(int(child))


def await_children(pid: int, count: int) -> list[int]:
    """Wait until there are *count* of them; there is no event for that."""
    for _ in range(3_000):
        with suppress(OSError):  # one of them ended meanwhile
            found = list(children(pid))
            if len(found) >= count:
                return found
        threading.Event().wait(0.01)
    raise AssertionError


def await_ends(handles: list[int]) -> None:
    """Wait until all of them have ended; the time-out of the test is the limit."""
    for handle in handles:
        assert select.select([handle], [], [])[0]
        os.close(handle)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
@pytest.mark.slow
def test_however_it_ends_no_process_is_left_behind(
    spawn: Spawn, scraps: Path, number: signal.Signals, code: int
) -> None:
    proof = spawn("prove", "--only", "kills,simulation", "--budget", "10m")
    handles = []
    for pid in await_children(proof.pid, 6):
        try:
            handles.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue  # killed, as is the custom here
    proof.send_signal(number)
    out, err = proof.communicate()

    await_ends(handles)
    assert len(handles) > 2
    assert proof.returncode == code
    if number != signal.SIGKILL:
        assert err.endswith("interrupted\n")
        assert " (interrupted)\n" in out
        assert "| simulation | " in out
        assert list(scraps.iterdir()) == []


def test_the_shortest_history_of_a_control_is_told_without_a_seed(run: Run) -> None:
    said = run("prove", "--control", "pop-then-run", code=1).stdout

    assert "BROKEN: lost" in said


# ---- on a server


@pytest.mark.slow
@pytest.mark.medium("redis")
def test_a_server_is_tried_in_namespaces_of_their_own(
    spawn: Spawn, redis_url: str, operator: Redis
) -> None:
    operator.set("somebody's", "own")
    chosen = ["--only", "model,kills", "--store", redis_url, "--budget", "1s"]

    out, err = spawn("prove", *chosen, "--json").communicate()

    said = json.loads(out)
    assert said["violations"] == [], err
    assert (said["store"], said["model_histories"] > 0, said["kills"] > 0) == ("redis", True, True)
    assert stays(operator) == [b"somebody's"]


@pytest.mark.slow
@pytest.mark.medium("redis")
def test_what_is_interrupted_leaves_no_namespace_on_a_server(
    spawn: Spawn, redis_url: str, operator: Redis
) -> None:
    proof = spawn("prove", "--only", "kills", "--store", redis_url, "--processes", "1")
    # A process for the slice, the nursery, producers and workers: the campaign is under way.
    await_children(proof.pid, 8)

    proof.terminate()
    _, err = proof.communicate()

    assert proof.returncode == 130, err
    assert stays(operator) == []


@pytest.mark.medium("redis")
def test_what_does_not_apply_to_a_server_is_told(run: Run, redis_url: str) -> None:
    def refused(campaign: str) -> str:
        return run("prove", "--only", campaign, "--store", redis_url, code=2).stderr

    assert "power-cuts: it is about files, and this store is none" in refused("power-cuts")
    assert "system-calls: it is about files, and this store is none" in refused("system-calls")
    assert "server-kills: it kills a Redis that it starts itself" in refused("server-kills")
