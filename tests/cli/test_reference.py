"""What the documents tell a reader to type is understood."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tarry.cli.main import SECTIONS, cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
COMMANDS = sorted(
    {
        line.removeprefix("$ ").partition(" | ")[0]
        for page in DOCS
        if page.exists()
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ tarry ")
    }
)
REFERENCE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def understood(command: str) -> click.Command:
    """Parse a command line without running it."""
    group: click.Group = cli
    words = shlex.split(command, comments=True)[1:]
    while True:
        found = group.get_command(click.Context(group), words[0])
        assert found is not None, words[0]
        words = words[1:]
        if not isinstance(found, click.Group):
            found.make_context(found.name, words)
            return found
        group = found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_documents_is_understood(command: str) -> None:
    try:
        assert understood(command)
    except click.exceptions.Exit:
        assert "--help" in command


@pytest.mark.parametrize("name", [name for section in SECTIONS.values() for name in section])
def test_every_command_and_option_is_in_the_reference(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert re.search(rf"`(tarry )?{name}\b|\|{name}\b|\$ tarry {name}", REFERENCE)
    assert command is not None
    options = [o for p in command.params for o in p.opts if o.startswith("--")]
    assert [option for option in options if option not in REFERENCE] == []
