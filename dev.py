#!/usr/bin/env python3
"""The commands of a developer: set up, demo, check, test. Needs Python alone; installs the rest."""

import sys

OLDEST = (3, 11)

# Keep this file readable for old Pythons: they must get as far as the next lines.
if sys.version_info < OLDEST:
    sys.exit(
        f"dev.py: this is Python {sys.version.split()[0]}; tarry needs {OLDEST[0]}.{OLDEST[1]} "
        "or newer.\n"
        "Install one (Debian, Ubuntu: apt-get install python3 python3-venv; or see python.org)\n"
        "and start again with it, for example: python3.12 dev.py test"
    )

import argparse
import hashlib
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "dev-stamp"
PINS = "requirements-dev.txt"

# Many tests wait, for a server, a kill or a lease: two to a core keep the cores at work.
WORKERS = 2 * (os.cpu_count() or 1)

LINT_STEPS = (
    ("ruff check", ["-m", "ruff", "check"]),
    ("ruff format --check", ["-m", "ruff", "format", "--check"]),
    ("mypy", ["-m", "mypy"]),
    (
        "lint-imports",
        ["-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-logo"],
    ),
)

HELP = """\
From a fresh clone, with nothing but Python:

  python3 dev.py demo            see tarry at work; ARGS go to `tarry demo`
  python3 dev.py test            everything that must be green before a change goes in:
                                 ruff check, ruff format --check, mypy, lint-imports, pytest
  python3 dev.py test -k lease   the same; ARGS go to pytest
  python3 dev.py check           without the tests
  python3 dev.py setup           only make the environment

Everything is installed into .venv beside this file, at the versions of requirements-dev.txt, and
installed again only when those, the build or its C file change. To start over, delete .venv.
Afterwards the tools can be called directly: .venv/bin/pytest -k lease, .venv/bin/tarry --help.
"""


class Failure(Exception):  # noqa: N818 - the end of a command, told to its user
    """A command cannot go on; the message says why and what to do."""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.py", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["demo", "test", "check", "setup"])
    parser.add_argument("args", nargs=argparse.REMAINDER, help="passed on, see below")
    if not argv:
        parser.print_help()
        return 2
    asked = parser.parse_args(argv)
    if asked.args and asked.command in {"check", "setup"}:
        parser.error(f"{asked.command} takes no arguments")
    try:
        return run(asked.command, asked.args)
    except Failure as failure:
        print(f"dev.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(command: str, args: list[str]) -> int:
    """Make the environment the command needs, then do what it says."""
    if command == "demo":
        install(dev=False)
        return subprocess.call([PYTHON, "-m", "tarry", "demo", *args])
    install(dev=True)
    if command == "check":
        return run_steps(LINT_STEPS)
    if command == "test":
        return run_steps((*LINT_STEPS, ("pytest", ["-m", "pytest", "-n", str(WORKERS), *args])))
    print(f"ready: {BIN.relative_to(HERE)}")
    return 0


def run_steps(steps: Sequence[tuple[str, list[str]]]) -> int:
    """Run the steps in order; stop at the first that fails, and name it."""
    for name, arguments in steps:
        print(f"\n=== {name} ===", flush=True)
        code = subprocess.call([PYTHON, *arguments], cwd=HERE)
        if code:
            print(f"\ndev.py: {name} failed (exit code {code})", file=sys.stderr)
            return code if code > 0 else 1
    return 0


def install(*, dev: bool) -> None:
    """Bring .venv up to date; do nothing when it is."""
    wanted = [fingerprint(), "dev" if dev else "core"]
    if is_ready(wanted):
        return
    if not works(PYTHON):
        create_venv()
    print(f"installing into {VENV.relative_to(HERE)} …", file=sys.stderr, flush=True)
    STAMP.unlink(missing_ok=True)
    pins = ["-r", PINS] if dev else ["-c", PINS]
    quietly(
        [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *pins, "-e", "."],
        "pip could not install what tarry needs; its own words are above.\n"
        "Without a network, or behind a proxy, see `pip config` and `pip install --help`.",
    )
    STAMP.write_text("\n".join(wanted), encoding="utf-8")


def is_ready(wanted: list[str]) -> bool:
    """Tell whether .venv already holds what is wanted; the dev tools include the core."""
    if not STAMP.is_file() or not PYTHON.exists():
        return False
    fingerprint_then, level = STAMP.read_text(encoding="utf-8").split("\n")
    return fingerprint_then == wanted[0] and level in {wanted[1], "dev"}


def fingerprint() -> str:
    """Sum up what an installation depends on: place, Python, dependencies, pins."""
    digest = hashlib.sha256(f"{HERE}\n{sys.version_info[:2]}\n".encode())
    for name in ("pyproject.toml", "setup.py", "src/tarry/timers/_wheel.c", PINS):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def works(python: Path) -> bool:
    """Tell whether this interpreter starts, has pip, and is the version that runs dev.py."""
    if not python.exists():
        return False
    ask = f"import sys, pip; print(sys.version_info[:2] == {sys.version_info[:2]})"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"


def create_venv() -> None:
    """Make a fresh .venv in the place of none, or of one that does not work."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    remedy = (
        f"Debian, Ubuntu: apt-get install python{version}-venv (or python3-venv)\n"
        "Elsewhere: install a complete Python, for example from python.org"
    )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Failure(f"this Python cannot make virtual environments.\n{remedy}")
    print(f"creating {VENV.relative_to(HERE)} with Python {version} …", file=sys.stderr, flush=True)
    quietly(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        f"this Python could not make a virtual environment; its own words are above.\n{remedy}",
    )


def quietly(command: list[str], otherwise: str) -> None:
    """Run a command; show what it said only when it fails."""
    done = subprocess.run(
        command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        raise Failure(otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
