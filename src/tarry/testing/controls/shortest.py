"""The shortest history known to catch each control, kept beside this module as plans.

After a change to the controls or the simulation: python -m tarry.testing.controls.shortest
"""

import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tarry.testing.controls.broken_rules import BROKEN_RULES
from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials import TUTORIALS
from tarry.testing.simulation import History, Plan, run
from tarry.testing.simulation.shrink import shortest

CONTROLS: tuple[Control, ...] = (*TUTORIALS, *BROKEN_RULES)
_FILE = "shortest.json"


def load() -> dict[str, Plan]:
    """Return the plan for each control, by its name."""
    text = (resources.files("tarry.testing.controls") / _FILE).read_bytes()
    return msgspec.json.decode(text, type=dict[str, Plan])


def find(control: Control) -> Plan:
    """Return a plan that catches *control* by its first rule, and says as little as can be."""
    strict = replace(control, rules=control.rules[:1])
    seed = strict.hunt()
    assert seed is not None, control.name

    def breaks_it_alone(history: History) -> bool:
        return strict.breaks(history) and not run(history.plan).violations

    return shortest(control.plan(seed), breaks_it_alone, control.bench)


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
