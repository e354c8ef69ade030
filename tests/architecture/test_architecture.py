"""What holds for the whole of tarry, whoever writes the next module."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

import tarry

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tarry"
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

PUBLIC_NAMES = {
    "Backoff",
    "CancelResult",
    "ConflictError",
    "Context",
    "Dead",
    "Done",
    "Earlier",
    "Event",
    "Later",
    "Moved",
    "PayloadError",
    "Retry",
    "Scheduled",
    "Shift",
    "Skip",
    "Snooze",
    "Tarry",
    "TarryError",
    "Task",
    "TaskRef",
    "TaskState",
    "WhenError",
}
MOST_PUBLIC_NAMES = 25

READS_THE_REAL_CLOCK = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "time.clock_gettime",
    "time.clock_gettime_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
}

# Who may import what reaches out of the process or makes runs differ; paths within src/tarry.
# The simulator replaces runtime.py: what api, engine, worker and outcome do goes through it.
_EDGES = {"cli/*", "observe/*", "runtime.py", "stores/*", "testing/*", "timers/*"}
ALLOWED_IMPORTERS = {
    "queue": _EDGES,
    "random": _EDGES,
    "secrets": _EDGES,
    "socket": _EDGES,
    "threading": _EDGES
    | {
        "app.py",  # a lock around opening the store, no thread
        "worker/serve.py",  # a worker on a thread of its own: outside of the worker
    },
    "time": {"clock.py"},
    "uuid": _EDGES,
}
MAKES_RUNS_DIFFER = {"os.getpid", "os.getrandom", "os.urandom"}

RUNS_BYTES_AS_CODE = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve"}
RUNS_TEXT_AS_CODE = {"eval", "exec"}

NAMES_THAT_SAY_NOTHING = {
    "base",
    "common",
    "helper",
    "helpers",
    "manager",
    "managers",
    "misc",
    "util",
    "utils",
}

HEAVY = {
    "MySQLdb",
    "aiohttp",
    "click",
    "psycopg",
    "pymysql",
    "pytest",
    "redis",
    "rich",
    "sqlite3",
}

TEXT_FILES = ("*.py", "*.sql", "*.md", "*.toml", "*.txt", ".ci/run")
WRITTEN_BY_US = ("src", "tests", "docs", "examples", "benchmarks", ".ci")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:home|root|work|Users)/\w|\b[A-Z]:\\\\?Users\\")


def tree_of(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"), filename=module)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Map each imported local name to the full name it stands for."""
    names = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    if alias.asname:
                        names[alias.asname] = alias.name
                    else:
                        top = alias.name.partition(".")[0]
                        names[top] = top
            case ast.ImportFrom(module=str(source), level=0):
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{source}.{alias.name}"
            case _:
                pass
    return names


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Name the top-level package of everything imported, wherever in the module it is."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield alias.name.partition(".")[0]
            case ast.ImportFrom(module=str(source), level=0):
                yield source.partition(".")[0]
            case _:
                pass


def full_name(node: ast.AST, names: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=attribute):
            owner = full_name(value, names)
            return owner and f"{owner}.{attribute}"
        case _:
            return None


def clock_reads(tree: ast.Module) -> list[str]:
    names = imported_names(tree)
    found = ((node, full_name(node, names)) for node in ast.walk(tree))
    return [
        f"line {node.lineno}: {name}"
        for node, name in found
        if name in READS_THE_REAL_CLOCK and isinstance(node, ast.Name | ast.Attribute)
    ]


def text_files() -> list[Path]:
    found = {path for folder in WRITTEN_BY_US for path in (ROOT / folder).rglob("*")}
    found.update(ROOT.glob("*"))
    return sorted(
        path
        for path in found
        if path.is_file()
        and "__pycache__" not in path.parts
        and any(fnmatch(path.relative_to(ROOT).as_posix(), pattern) for pattern in TEXT_FILES)
    )


def test_the_public_names_are_these_and_few() -> None:
    assert set(tarry.__all__) == PUBLIC_NAMES
    assert len(tarry.__all__) == len(set(tarry.__all__)) <= MOST_PUBLIC_NAMES


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES))
def test_a_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(tarry, name).__doc__


def test_nothing_else_looks_public() -> None:
    visible = {
        name
        for name, value in vars(tarry).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert visible <= PUBLIC_NAMES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    docstring = ast.get_docstring(tree_of(module))

    assert docstring
    assert docstring.strip()


@pytest.mark.parametrize("module", [module for module in MODULES if module != "clock.py"])
def test_only_clock_reads_the_real_clock(module: str) -> None:
    assert clock_reads(tree_of(module)) == []


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("import time\ntime.monotonic()", ["line 2: time.monotonic"]),
        ("import time as t\nf = t.sleep", ["line 2: time.sleep"]),
        ("from time import time_ns as n\nn()", ["line 2: time.time_ns"]),
        ("import datetime\ndatetime.datetime.now()", ["line 2: datetime.datetime.now"]),
        ("from datetime import datetime as d\nd.utcnow()", ["line 2: datetime.datetime.utcnow"]),
        ("import asyncio\nasyncio.get_running_loop().time()", []),
        ("def f(clock, time):\n    return clock.now(), time.time()", []),
        ("import time\ntime.strftime('%Y')", []),
    ],
)
def test_the_scan_finds_clock_reads_and_nothing_else(source: str, reads: list[str]) -> None:
    assert clock_reads(ast.parse(source)) == reads


@pytest.mark.parametrize("module", MODULES)
def test_threads_sockets_and_chance_stay_at_the_edges(module: str) -> None:
    misplaced = {
        name
        for name in imported_modules(tree_of(module))
        if not any(fnmatch(module, place) for place in ALLOWED_IMPORTERS.get(name, {"*"}))
    }

    assert misplaced == set()


@pytest.mark.parametrize(
    "module", [m for m in MODULES if not any(fnmatch(m, place) for place in _EDGES)]
)
def test_chance_comes_through_the_runtime(module: str) -> None:
    tree = tree_of(module)
    names = imported_names(tree)

    assert MAKES_RUNS_DIFFER.isdisjoint(full_name(node, names) for node in ast.walk(tree))


@pytest.mark.parametrize("module", MODULES)
def test_data_is_never_run_as_code(module: str) -> None:
    tree = tree_of(module)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    assert RUNS_BYTES_AS_CODE.isdisjoint(imported_modules(tree))
    assert RUNS_TEXT_AS_CODE.isdisjoint(names)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_named_after_what_it_holds(module: str) -> None:
    parts = set(Path(module).with_suffix("").parts)

    assert parts.isdisjoint(NAMES_THAT_SAY_NOTHING)


def test_import_tarry_stays_light() -> None:
    script = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from tarry import Tarry\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert HEAVY.isdisjoint(json.loads(done.stdout))


@pytest.mark.parametrize("path", text_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_knows_the_machine_it_was_written_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert [found.group() for found in MACHINE_PATH.finditer(text)] == []


def test_every_dependency_is_pinned_for_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = [*project["project"]["dependencies"], *groups["test"], *groups["lint"]]

    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")

    pinned = {line.partition("==")[0].lower() for line in pins.splitlines() if "==" in line}
    assert {re.split(r"[\[<>=]", name)[0].lower() for name in wanted} <= pinned


def test_dev_py_can_be_read_by_a_python_that_is_too_old() -> None:
    source = (ROOT / "dev.py").read_text(encoding="utf-8")

    ast.parse(source, feature_version=(3, 6))
