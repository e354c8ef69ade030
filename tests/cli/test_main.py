"""The program itself: quick help, errors as exit codes, quiet ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from tarry import Tarry
from tarry.cli.main import SECTIONS
from tarry.errors import (
    ConflictError,
    DriverMissingError,
    StoreBusyError,
    StoreUnavailableError,
    UnknownOutcomeError,
    WorkerError,
)

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]

COMMANDS = [name for section in SECTIONS.values() for name in section]
NESTED = [("dead", "list"), ("dead", "revive"), ("dead", "purge")]


def test_help_imports_neither_the_app_nor_a_medium() -> None:
    script = (
        "import json, sys\n"
        "from tarry.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    loaded = set(json.loads(done.stderr))
    assert loaded.isdisjoint({"tarry.app", "msgspec", "sqlite3", "asyncio", "rich", "tarry.config"})


@pytest.mark.slow
def test_help_is_there_in_a_fifth_of_a_second() -> None:
    """Of processor time: what else the machine does at the moment is not the command's."""
    best = 1.0
    for _ in range(20):
        began = sum(os.times()[2:4])
        subprocess.run([sys.executable, "-m", "tarry", "--help"], capture_output=True, check=True)
        best = min(best, sum(os.times()[2:4]) - began)
        if best <= 0.2:
            break

    assert best <= 0.2


def test_the_sections_name_every_command_and_each_has_one_line(run: Run) -> None:
    output = run("--help").stdout

    for name in COMMANDS:
        assert f"  {name} " in output


@pytest.mark.parametrize("path", [*((name,) for name in COMMANDS), *NESTED], ids=" ".join)
def test_every_help_teaches_by_an_example(run: Run, path: tuple[str, ...]) -> None:
    output = run(*path, "--help").stdout

    assert f"\n  tarry {' '.join(path)}" in output


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").stdout.startswith("tarry ")


@pytest.mark.parametrize("args", [["nonsense"], ["list", "--nonsense"], ["cancel", "only-kind"]])
def test_a_wrong_command_line_is_exit_2(run: Run, args: list[str]) -> None:
    result = run(*args, code=2)

    assert result.stdout == ""
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConflictError("in the way"), 4, "tarry show"),
        (StoreUnavailableError("gone"), 5, "--store"),
        (StoreBusyError("busy"), 5, "try again"),
        (DriverMissingError("pip install tarry[redis]"), 5, "tarry[redis]"),
        (UnknownOutcomeError("may or may not"), 5, "before you repeat"),
        (WorkerError("stuck"), 1, "stuck"),
        (OSError(28, "No space left on device"), 1, "No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("revived 3"), 130, "interrupted: revived 3"),
        (click.Abort(), 130, "interrupted"),
    ],
)
def test_an_error_becomes_an_exit_code_and_no_traceback(
    run: Run,
    shop: Tarry,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Tarry, "get", fail)

    result = run("show", "a", "b", code=code)

    assert words in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_settings_that_cannot_be_used_are_exit_2_and_name_the_file(run: Run, folder: Path) -> None:
    (folder / "tarry.toml").write_text("stroe = 1\n")

    result = run("list", code=2)

    assert "tarry.toml" in result.stderr
    assert "nothing was changed" in result.stderr


@pytest.mark.parametrize("url", ["nonsense", "oracle://x", "sqlite:", "memory:", "sqlite:///x?a=b"])
def test_a_url_that_cannot_be_used_is_exit_2(run: Run, folder: Path, url: str) -> None:
    result = run("schedule", "a", "1h", "--store", url, code=2)

    assert "--store URL, TARRY_STORE" in result.stderr
    assert list(folder.iterdir()) == []


def test_a_file_of_somebody_else_is_exit_5(run: Run, folder: Path) -> None:
    (folder / "shop.db").write_text("my diary, no database at all, but long enough to be one " * 20)

    result = run("list", code=5)

    assert result.stderr.startswith("error:")


@pytest.mark.parametrize(
    "args",
    [
        ["list"],
        ["show", "a", "b"],
        ["stats"],
        ["cancel", "a", "b"],
        ["reschedule", "a", "b", "1h"],
        ["run-now", "a", "b"],
        ["pause", "a"],
        ["resume", "a"],
        ["dead", "list"],
        ["dead", "revive", "a", "b"],
        ["dead", "purge", "a", "b", "--yes"],
        ["doctor"],
        ["health"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_not_there_is_not_made_by_looking(
    run: Run, folder: Path, args: list[str]
) -> None:
    result = run(*args, code=5)

    assert "there is no store at" in result.stderr
    assert list(folder.iterdir()) == []


def test_colours_only_for_a_terminal_that_wants_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" in run("list", code=5, color=True).stderr
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("list", code=5, color=True).stderr


def test_a_reader_that_has_seen_enough_is_no_error(shop: Tarry, spawn: Spawn) -> None:
    shop.schedule_many(shop.build("a", "1h", key=f"{n:0>300}") for n in range(1_000))
    reading, writing = os.pipe()
    process = spawn("list", "--limit", "1000", stdout=writing)
    os.close(writing)

    assert os.read(reading, 10) == b"STATE     "
    os.close(reading)

    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_a_full_disk_behind_stdout_is_told(shop: Tarry, spawn: Spawn) -> None:
    with Path("/dev/full").open("w") as full:
        process = spawn("stats", "--json", stdout=full)
        _, err = process.communicate()

    assert process.returncode == 1
    assert "error:" in err
    assert "Traceback" not in err


def test_ctrl_c_is_exit_130(spawn: Spawn, await_line: Callable[..., str]) -> None:
    process = spawn("demo", "--seconds", "60")
    await_line(process.stdout, "cancelled")

    process.send_signal(signal.SIGINT)

    _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err


def test_output_survives_a_terminal_that_knows_few_letters(shop: Tarry, spawn: Spawn) -> None:
    shop.schedule("a", "1m", key="ключ")
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}

    listed = spawn("list", env=environ).communicate()[0]
    charted = spawn("stats", env=environ).communicate()[0]

    assert r"\u043a\u043b\u044e\u0447" in listed
    assert "###" in charted
