"""The simulation: the same seed is the same run, to the byte; and tarry keeps its promises."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from tarry.testing.ledger import Answered, Asked, Failed, Finished, Left, Settled, Started
from tarry.testing.simulation import Fault, History, Plan, Step, draw, run, simulate
from tarry.testing.simulation.drawing import WEATHERS

SHARE = 500
"""How many histories each of these tests runs; `tarry prove` runs as many as one likes."""
PARTS = int(os.environ.get("TARRY_HISTORIES", "20_000")) // SHARE


def digest(first: int, last: int) -> str:
    told = hashlib.sha256()
    for seed in range(first, last):
        history = simulate(seed)
        told.update(msgspec.json.encode([history.plan, history.entries, history.times]))
    return told.hexdigest()


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_promise(part: int) -> None:
    for seed in range(part * SHARE, (part + 1) * SHARE):
        history = simulate(seed)

        assert history.violations == [], f"tarry prove --seed {seed}"


@pytest.mark.parametrize("seed", [100307839])
def test_a_history_that_was_misjudged_stays_clean(seed: int) -> None:
    """A pause that overlapped its resume came second: what waited for the operator was not late."""
    assert simulate(seed).violations == []


def test_the_same_seed_is_the_same_run_to_the_byte() -> None:
    script = "from tests.simulation.test_simulation import digest; print(digest(0, 40))"
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for hashing in ("0", "1", "random")
    }

    assert told == {digest(0, 40)}


def test_a_plan_can_be_written_down_and_run_again() -> None:
    plan = draw(11)

    again = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)

    assert run(again).entries == run(plan).entries


def test_every_weather_and_every_fault_is_met() -> None:
    """A green run is no idle run."""
    plans = [draw(seed) for seed in range(400)]
    struck = {fault.what for plan in plans for fault in plan.faults}
    entered = {
        entry.how
        for weather in WEATHERS
        for seed in range(40)
        for entry in run(draw(seed, weather)).entries
        if isinstance(entry, Failed)
    }

    assert struck == {
        *("kill", "leave", "stall", "cut", "deaf", "lag", "step"),
        *("slow", "mute", "contend", "crash", "odd", "clock"),
    }
    assert entered == {
        *("killed", "stalled", "request lost", "reply lost", "slow", "still slow", "odd answer"),
        *("clock stepped", "medium crashed", "power cut"),
    }


def test_everything_that_may_be_asked_for_happens() -> None:
    """As above: a rule that nothing comes near proves nothing."""
    histories = [simulate(seed) for seed in range(300)]
    entries = [entry for history in histories for entry in history.entries]
    verbs = {entry.verb for entry in entries if isinstance(entry, Asked)}
    answers = {
        (asked.verb, entry.status)
        for history in histories
        for asked, entry in answered(history)
        if asked.if_revision or asked.max_wait_ms or asked.declared or asked.verb == "purge"
    }
    reasons = {entry.reason[:7] for entry in entries if isinstance(entry, Left)}

    assert verbs >= {"schedule", "move", "cancel", "revive", "purge", "pause", "resume", "claim"}
    assert answers >= {
        *(("schedule", "created"), ("schedule", "replaced"), ("schedule", "kept")),
        *(("schedule", "conflict"), ("move", "moved"), ("move", "conflict")),
        *(("cancel", "cancelled"), ("cancel", "conflict")),
        *(("purge", "purged"), ("purge", "absent")),
    }
    assert "expired" in reasons


def answered(history: History) -> Iterator[tuple[Asked, Answered]]:
    asked = {entry.op: entry for entry in history.entries if isinstance(entry, Asked)}
    for entry in history.entries:
        if isinstance(entry, Answered):
            yield asked[entry.op], entry


def test_a_handler_that_takes_too_long_is_attempted_again_and_given_up() -> None:
    for kind in ("async.work", "plain.work"):
        step = Step(at=0, who="p1", verb="schedule", kind=kind, run=600)
        history = run(Plan(workers=("w1",), retries=1, timeout=100, steps=(step,)))

        ends = [entry.outcome for entry in history.entries if isinstance(entry, Finished)]
        assert ends == ["retry", "dead"]
        assert history.violations == []


def test_a_worker_that_lost_its_threads_to_handlers_that_hang_is_started_anew() -> None:
    steps = tuple(
        Step(at=number, who="p1", verb="schedule", kind="plain.work", key=f"{number}", run=3_000)
        for number in range(20)
    )

    history = run(Plan(workers=("w1",), retries=0, timeout=100, steps=steps))

    starts = [entry for entry in history.entries if isinstance(entry, Started)]
    assert len({start.ref for start in starts}) == 20
    assert len({start.by for start in starts}) == 2
    assert history.violations == []


def test_a_worker_that_is_killed_leaves_its_task_to_another_one() -> None:
    plan = Plan(
        workers=("w1", "w2"),
        steps=(Step(at=0, who="p1", verb="schedule", run=600),),
        faults=(
            Fault(at=300, what="kill", who="w1", span=5_000),
            Fault(at=301, what="stall", who="w2", span=1),
        ),
    )

    history = run(plan)

    starts = [entry for entry in history.entries if isinstance(entry, Started)]
    assert [start.lost for start in starts] in ([0], [0, 1])
    assert history.violations == []


def test_a_stalled_worker_cannot_settle() -> None:
    plan = Plan(
        workers=("w1", "w2"),
        lease=300,
        steps=(Step(at=0, who="p1", verb="schedule", run=150),),
        faults=(
            Fault(at=50, what="stall", who="w1", span=2_000),
            Fault(at=2_200, what="mute"),
        ),
    )

    histories = [run(msgspec.structs.replace(plan, seed=seed)) for seed in range(20)]

    answers = {
        entry.answer
        for history in histories
        for entry in history.entries
        if isinstance(entry, Settled)
    }
    assert answers == {"settled", "lease_lost"}
    assert [history.violations for history in histories] == [[]] * 20
