"""The type checkers find every planted mistake in cases.py, and complain about nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("cases.py")
PLANTED = {
    number: set(mark[1].split())
    for number, line in enumerate(CASES.read_text().splitlines(), 1)
    if (mark := re.search(r"# E: ([a-z -]+)$", line))
}

Found = dict[int, list[tuple[str, str]]]
"""By line: what was found, as (code, message)."""


def run(*command: str) -> str:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> Found:
    pytest.importorskip("mypy")
    cache = f"--cache-dir={tmp_path_factory.mktemp('mypy')}"
    said = run("mypy", "--strict", "--output=json", cache, str(CASES))
    found: Found = {}
    for line in said.splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("severity") == "error" and Path(told["file"]).name == CASES.name:
            found.setdefault(told["line"], []).append((told["code"], told["message"]))
    return found


@pytest.fixture(scope="module")
def pyright() -> Found:
    pytest.importorskip("pyright")
    told = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, str(CASES)))
    found: Found = {}
    for one in told["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found.setdefault(line, []).append((one.get("rule", ""), one["message"]))
    return found


def shown(lines: set[int], found: Found) -> str:
    text = CASES.read_text().splitlines()
    return "\n".join(f"{n}: {text[n - 1].strip()}  {found.get(n, '')}" for n in sorted(lines))


def test_mistakes_are_planted() -> None:
    assert len(PLANTED) > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("typing")
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
class TestChecker:
    def test_finds_every_planted_mistake(
        self, checker: str, request: pytest.FixtureRequest
    ) -> None:
        found: Found = request.getfixturevalue(checker)

        missed = PLANTED.keys() - found.keys()

        assert not missed, f"{checker} does not find:\n{shown(missed, found)}"

    def test_complains_about_nothing_else(
        self, checker: str, request: pytest.FixtureRequest
    ) -> None:
        found: Found = request.getfixturevalue(checker)

        wrong = found.keys() - PLANTED.keys()

        assert not wrong, f"{checker} complains about good lines:\n{shown(wrong, found)}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("typing")
def test_mypy_finds_the_mistake_that_was_meant(mypy: Found) -> None:
    other = {
        number
        for number, meant in PLANTED.items()
        if not meant & {code for code, _ in mypy.get(number, [])}
    }

    assert not other, f"mypy finds something else:\n{shown(other, mypy)}"
