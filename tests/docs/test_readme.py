"""The README keeps its word: a short example that runs as pasted, and two commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT, blocks

from tarry.stores.connect import connect

README = ROOT / "README.md"
MOST_CODE_LINES = 12
MOST_LINES = 155


def example() -> str:
    return next(block.text for block in blocks(README) if block.info == "python")


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_first_example_is_short() -> None:
    code = [line for line in example().splitlines() if line.strip()]

    assert len(code) <= MOST_CODE_LINES


def test_the_first_example_runs_as_pasted_and_ends_by_itself(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TARRY_")}

    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=example(),
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = next(block.text for block in blocks(README) if block.info == "text")
    assert done.stdout == shown
    assert all(path.name.startswith("tarry.db") for path in tmp_path.iterdir())


def test_a_second_run_in_the_same_folder_says_the_same(tmp_path: Path) -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", example()],
            cwd=tmp_path,
            capture_output=True,
            timeout=30,
            check=True,
        ).stdout
        for _ in range(2)
    ]

    assert runs[0] == runs[1]


def test_exactly_two_commands_set_everything_up() -> None:
    text = README.read_text(encoding="utf-8")
    commands = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for block in blocks(README)
        if block.language in {"console", "sh"}
        for line in block.text.splitlines()
    ]

    assert commands == ["python3 dev.py demo", "python3 dev.py test"]
    assert set(re.findall(r"dev\.py (\w+)", text)) == {"demo", "test"}


@pytest.mark.parametrize(
    ("url", "row"),
    [
        ("memory:", "| `memory:` "),
        ("sqlite:///some.db", "| `sqlite:///file` "),
        ("sqlite:///some.db?sync=normal", "| `sqlite:///file?sync=normal` "),
    ],
)
def test_the_table_of_stores_says_what_the_stores_declare(
    url: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = connect(url)
    store.close()

    [line] = [
        line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith(row)
    ]

    _, _, _, survives, shared, *_ = (cell.strip() for cell in line.split("|"))
    assert survives == store.capabilities.survives
    assert shared == ("yes" if store.capabilities.shared else "no")
