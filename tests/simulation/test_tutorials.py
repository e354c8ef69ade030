"""The algorithms of popular tutorials are caught: the checker sees what it is there to see."""

import os
import subprocess
import sys

import msgspec
import pytest

from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials import TUTORIALS
from tarry.testing.controls.tutorials.ring_queue import RING_QUEUE
from tarry.testing.ledger import Failed, Started
from tarry.testing.simulation import draw, run

MOST = 600
"""So many histories are enough to catch any of them."""
WITHOUT_FAULT = ("zset-to-set", "hash-and-zset", "two-step-claim", "one-slot-per-key")

every_control = pytest.mark.parametrize("control", TUTORIALS, ids=lambda control: control.name)


def caught_seed(control: Control) -> int:
    seed = control.hunt(most=MOST)
    assert seed is not None, f"{control.name} was not caught"
    return seed


def told() -> str:
    """Return what the histories that catch the controls say, as one text."""
    stories = [run(draw(caught_seed(control)), control.bench) for control in TUTORIALS]
    return msgspec.json.encode([[story.entries, story.times] for story in stories]).decode()


@every_control
def test_a_tutorial_is_caught_by_a_rule_it_is_known_to_break(control: Control) -> None:
    history = control.caught(caught_seed(control))

    assert history is not None
    found = [violation for violation in history.violations if violation.rule in control.rules]
    assert found
    for violation in found:
        assert violation.entries
        assert all(entry in history.entries for entry in violation.entries)


@every_control
def test_tarry_keeps_its_promises_where_the_tutorial_was_caught(control: Control) -> None:
    seed = caught_seed(control)

    assert run(draw(seed)).violations == []


@pytest.mark.parametrize("name", WITHOUT_FAULT)
def test_some_tutorials_need_no_fault(name: str) -> None:
    [control] = [control for control in TUTORIALS if control.name == name]

    caught = (history for seed in range(MOST) if (history := control.caught(seed)))

    assert any(
        not any(isinstance(entry, Failed) for entry in history.entries) for history in caught
    )


def test_the_ring_fires_whole_turns_early_and_forgets() -> None:
    histories = [run(RING_QUEUE.plan(seed), RING_QUEUE.bench) for seed in range(30)]

    found = [violation for history in histories for violation in history.violations]
    early = [
        entry.due - entry.now
        for violation in found
        for entry in violation.entries
        if violation.rule == "early" and isinstance(entry, Started)
    ]
    assert early
    assert min(early) > 800, "a turn takes a second, and the worker polls"
    assert "lost" in {violation.rule for violation in found}


def test_what_catches_them_is_the_same_run_to_the_byte() -> None:
    script = "from tests.simulation.test_tutorials import told; print(told())"
    again = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )

    assert again.stdout.strip() == told()
