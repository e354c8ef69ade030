"""The shortest history known to catch each control, kept beside this module as plans.

After a change to the controls or the simulation: python -m tarry.testing.controls.shortest
finds those anew that no longer show what they should; with names behind it, those.
"""

import sys
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

import msgspec

from tarry.testing.controls.broken_rules import BROKEN_RULES
from tarry.testing.controls.broken_terms import BROKEN_TERMS
from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials import TUTORIALS
from tarry.testing.ledger import Answered, Asked
from tarry.testing.simulation import Fault, History, Plan, Step, run
from tarry.testing.simulation.shrink import shortest

CONTROLS: tuple[Control, ...] = (*TUTORIALS, *BROKEN_RULES, *BROKEN_TERMS)
STORIES: dict[str, tuple[str, ...]] = {
    "cancel-applied-twice": ("schedule", "created", "cancel", "schedule", "created", "cancelled"),
    "late-first-try": ("schedule", "created", "cancel", "cancelled", "schedule", "created"),
}
"""What is asked and told about the lost key, where the rule that is broken says too little.

Both controls lose a task by a single cancel, too: what is wrong is that they take a new one away.
"""
_FILE = "shortest.json"
_MOST = 3_000
"""So many seeds are tried before a control is given up."""


def load() -> dict[str, Plan]:
    """Return the plan for each control, by its name."""
    text = (resources.files("tarry.testing.controls") / _FILE).read_bytes()
    return msgspec.json.decode(text, type=dict[str, Plan])


def shows(control: Control, history: History) -> bool:
    """Say whether *control* breaks its first rule in *history*, in the way it is told of."""
    story = STORIES.get(control.name)
    return any(
        story is None or story == tuple(_words(history, found.ref))
        for found in history.violations
        if found.rule == control.rules[0]
    )


def _words(history: History, ref: str) -> Iterator[str]:
    """Yield what is asked and told about a key."""
    ops: set[int] = set()
    for entry in history.entries:
        if isinstance(entry, Asked) and entry.ref == ref:
            ops.add(entry.op)
            yield entry.verb
        elif isinstance(entry, Answered) and entry.op in ops:
            yield entry.status


def _late_cancel(seed: int) -> Plan:
    """Hold a cancel up, and schedule the key anew when its repeat was answered."""
    steps = (
        Step(at=10, who="p1", verb="schedule", delay=900),
        Step(at=50, who="a1", verb="cancel"),
        Step(at=450, who="p1", verb="schedule", delay=900),
    )
    lag = Fault(at=45, what="lag", who="a1", span=100, amount=1_200)
    return Plan(seed=seed, producers=("p1", "a1"), steps=steps, faults=(lag,))


_PLANS = {"late-first-try": _late_cancel}
"""Where to look for stories that are rare among the plans of the control itself."""


def find(control: Control) -> Plan:
    """Return a plan that shows what is wrong with *control*, and says as little as can be."""

    def shows_it_alone(history: History) -> bool:
        return shows(control, history) and not run(history.plan).violations

    plans = map(_PLANS.get(control.name, control.plan), range(_MOST))
    plan = next((one for one in plans if shows_it_alone(run(one, control.bench))), None)
    assert plan is not None, control.name
    return shortest(plan, shows_it_alone, control.bench)


def is_told(control: Control) -> bool:
    """Say whether the plan that is kept for *control* still shows what is wrong with it."""
    plan = load().get(control.name)
    return (
        plan is not None and shows(control, run(plan, control.bench)) and not run(plan).violations
    )


def refresh(controls: Iterable[Control]) -> None:
    """Find the plans anew, and write them down."""
    for control in controls:
        plan = find(control)
        plans = load() | {control.name: plan}
        kept = {one.name: plans[one.name] for one in CONTROLS if one.name in plans}
        text = msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n"
        Path(__file__).with_name(_FILE).write_bytes(text)
        sys.stderr.write(f"{control.name}: {len(plan.steps)} steps\n")


if __name__ == "__main__":
    named = set(sys.argv[1:])
    refresh(one for one in CONTROLS if (one.name in named if named else not is_told(one)))
