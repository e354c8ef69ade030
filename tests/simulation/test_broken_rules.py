"""The rules of the design, broken one at a time: each must be caught, and tarry must not."""

import pytest

from tarry.testing.controls.broken_rules import BROKEN_RULES
from tarry.testing.controls.broken_terms import BROKEN_TERMS
from tarry.testing.controls.control import Control
from tarry.testing.simulation import draw, run

BROKEN = (*BROKEN_RULES, *BROKEN_TERMS)
MOST = 1_500
"""Each is caught within this many histories."""


@pytest.mark.parametrize("control", BROKEN, ids=lambda control: control.name)
def test_a_broken_rule_is_caught_where_tarry_is_not(control: Control) -> None:
    seed = control.hunt(most=MOST)

    assert seed is not None
    assert run(draw(seed)).violations == []


@pytest.mark.parametrize("control", BROKEN, ids=lambda control: control.name)
def test_tarry_keeps_its_promises_where_a_broken_rule_is_looked_for(control: Control) -> None:
    for seed in range(30):
        assert run(control.plan(seed)).violations == []


def test_the_controls_have_names_of_their_own() -> None:
    assert len({control.name for control in BROKEN}) == len(BROKEN) == 31
