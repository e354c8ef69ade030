"""The teaching text about the negative controls is what really happens in them.

After a change: python tests/docs/test_controls_told.py
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tarry.testing.controls.control import Control
from tarry.testing.controls.shortest import CONTROLS, is_told
from tarry.testing.controls.tutorials import TUTORIALS
from tarry.testing.proof.replay import known, ledger_of, mishaps_of, verdict_of

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/how-delayed-tasks-go-wrong.md"
BEGIN = "<!-- controls: written by tests/docs/test_controls_told.py -->\n"
END = "<!-- end of controls -->\n"
MOST = 24
"""Longer histories are cut: the rest only shows how it goes on."""


def chapters() -> Iterator[str]:
    yield "## The algorithms of the tutorials\n"
    for control in CONTROLS:
        if control is CONTROLS[len(TUTORIALS)]:
            yield "## The rules of tarry's design, broken one at a time\n"
        yield chapter(control)


def chapter(control: Control) -> str:
    history = known(control.name)
    told = dedent("\n".join(ledger_of(history, claims=False))).splitlines()
    if len(told) > MOST:
        told = [*told[:MOST], "        …"]
    rule = f"BROKEN: {control.rules[0]}: "
    [broken, *_] = [line for line in verdict_of(history) if line.startswith(rule)]
    mishaps = "; ".join(mishaps_of(history.plan)) or "nothing at all"
    lines = [
        f"### {control.name}",
        f"**{control.title[0].upper()}{control.title[1:].rstrip('.')}.** {control.wrong}",
        "",
        "```text",
        *told,
        "",
        broken,
        "```",
        f"What went wrong in the world meanwhile: {mishaps}.",
        f"In full: `tarry prove --control {control.name}`",
        "",
    ]
    return "\n".join(lines)


def written() -> str:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + "\n".join(chapters()) + END + rest.split(END)[1]


def test_the_page_tells_what_happens() -> None:
    assert PAGE.read_text(encoding="utf-8") == written()


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_the_shortest_history_breaks_the_control_and_not_tarry(control: Control) -> None:
    assert is_told(control)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
