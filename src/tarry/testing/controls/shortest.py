"""The shortest history known to catch each control, kept beside this module as plans.

After a change to the controls or the simulation: python -m tarry.testing.controls.shortest
"""

import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import msgspec

from tarry.testing.controls.broken_rules import BROKEN_RULES
from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials import TUTORIALS
from tarry.testing.simulation import Plan
from tarry.testing.simulation.shrink import shortest

CONTROLS: tuple[Control, ...] = (*TUTORIALS, *BROKEN_RULES)
_FILE = "shortest.json"


def load() -> dict[str, Plan]:
    """Return the plan for each control, by its name."""
    text = (resources.files("tarry.testing.controls") / _FILE).read_bytes()
    return msgspec.json.decode(text, type=dict[str, Plan])


def find(control: Control) -> Plan:
    """Return a plan that catches *control* and says as little as can be."""
    seed = control.hunt()
    assert seed is not None, control.name
    return shortest(control.plan(seed), control.breaks, control.bench)


def refresh(controls: Iterable[Control]) -> None:
    """Find the plans anew, and write them down."""
    place = Path(__file__).with_name(_FILE)
    plans = load() if place.exists() else {}
    for control in controls:
        plans[control.name] = find(control)
        sys.stderr.write(f"{control.name}: {len(plans[control.name].steps)} steps\n")
    kept = {control.name: plans[control.name] for control in CONTROLS if control.name in plans}
    place.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    refresh(control for control in CONTROLS if not wanted or control.name in wanted)
