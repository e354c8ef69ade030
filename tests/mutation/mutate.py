"""Mutation testing: change one thing in a module, and see whether its tests notice.

    .venv/bin/python -m tests.mutation.mutate                                  everything
    .venv/bin/python -m tests.mutation.mutate --module life --sample 60 --seed 1

Each mutant lives only in the memory of a forked child that runs the module's tests, so that the
working tree is never touched. A mutant is killed when a test fails or when the tests do not end in
time. One that survives must be explained in `survivors.toml`; one that is not, or an explanation
of a mutant that is killed or gone, makes the run fail.
"""

import argparse
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import hypothesis
import pytest
from tests.mutation.operators import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path(__file__).with_name("survivors.toml")
_MEMORY = 4 * 1024**3
# Of the plugins only Hypothesis's is loaded: starting the others takes longer than the tests.
_OPTIONS = [
    "-x",
    "-q",
    "--config-file=/dev/null",
    "--import-mode=importlib",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "_hypothesis_pytestplugin",
]


class Target(NamedTuple):
    """A module, and the tests that know it best."""

    module: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where its source lies."""
        return ROOT / "src" / f"{self.module.replace('.', '/')}.py"


TARGETS = {
    "life": Target("tarry.life", ("tests/test_life.py",)),
    "backoff": Target("tarry.backoff", ("tests/test_backoff.py",)),
    "due": Target("tarry.due", ("tests/test_due.py",)),
    "decide": Target("tarry.outcome.decide", ("tests/outcome/test_decide.py",)),
    "wakeup": Target("tarry.engine.wakeup", ("tests/engine/test_wakeup.py",)),
    "heartbeat": Target("tarry.worker.heartbeat", ("tests/worker/test_heartbeat.py",)),
    "recurrence": Target(
        "tarry.recurrence", ("tests/test_recurrence.py", "tests/fuzz/test_rules.py")
    ),
    "payload": Target("tarry.payload", ("tests/test_payload.py",)),
}


def main() -> int:
    options = _options()
    known = explanations()
    failed = False
    for name in options.module or TARGETS:
        target = TARGETS[name]
        if options.tests:
            target = target._replace(tests=(options.tests,))
        chosen = found = mutants(target.path.read_text(), str(target.path))
        if options.sample is not None and options.sample < len(found):
            chosen = random.Random(options.seed).sample(found, options.sample)
        began = time.monotonic()
        alive = survivors(target, chosen, options.jobs)
        open_ends = judge(name, alive, found, chosen, known, target.path)
        killed = len(chosen) - len(alive)
        _say(
            f"{name}: {len(chosen)} mutants, {killed} killed ({killed / len(chosen):.1%}), "
            f"{len(alive)} survived, {open_ends} not explained; {time.monotonic() - began:.0f} s"
        )
        failed = failed or bool(open_ends)
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", action="append", choices=list(TARGETS))
    parser.add_argument("--sample", type=int, help="only so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", help="run these tests instead of the module's own")
    return parser.parse_args()


# ---- judging


Key = tuple[str, str, str]
"""A mutant's name, which outlives moved lines: module, place, change."""


def explanations() -> dict[Key, str]:
    """Return which survivors are known, and why each may live."""
    items = tomllib.loads(EXPLAINED.read_text()).get("survivor", [])
    return {(item["module"], item["where"], item["change"]): item["why"] for item in items}


def judge(
    name: str,
    alive: Sequence[Mutant],
    found: Sequence[Mutant],
    chosen: Sequence[Mutant],
    known: dict[Key, str],
    path: Path,
) -> int:
    """Say what is not in order with those *alive* of the *chosen*; returns how much that is."""
    living = {(name, mutant.where, mutant.change): mutant.line for mutant in alive}
    unknown = [key for key in living if key not in known]
    for _, where, change in unknown:
        line = living[name, where, change]
        _say(f"{path.relative_to(ROOT)}:{line} {where}: {change}")
    # What was not chosen may live or not; what does not exist needs no explanation.
    unasked = _keys(name, found) - _keys(name, chosen)
    needless = [key for key in known if key[0] == name and key not in living.keys() | unasked]
    for key in needless:
        _say(f"explained, but killed or gone: {' | '.join(key)}")
    return len(unknown) + len(needless)


def _keys(name: str, items: Sequence[Mutant]) -> set[Key]:
    return {(name, mutant.where, mutant.change) for mutant in items}


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - it talks to the person at the terminal


# ---- running


def survivors(target: Target, chosen: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """Return the mutants that the target's tests do not notice."""
    _get_ready()
    original = compile(target.path.read_text(), str(target.path), "exec")
    _, status, usage = os.wait4(_start(target, original, cpu_seconds=60), 0)
    if status != 0:
        raise SystemExit(f"{', '.join(target.tests)} do not pass on {target.module} as it is")
    cpu_seconds = 2 + int(4 * (usage.ru_utime + usage.ru_stime))
    alive: list[Mutant] = []
    running: dict[int, Mutant] = {}
    waiting = iter(chosen)
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            running[_start(target, mutant.code(), cpu_seconds)] = mutant
        if not running:
            return alive
        pid, status = os.wait()
        mutant = running.pop(pid)
        if status == 0:
            alive.append(mutant)


def _get_ready() -> None:
    """Have everything in memory and settled that the children would otherwise do again."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    hypothesis.settings.register_profile(
        "mutation",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutation")
    gc.collect()
    gc.disable()


def _start(target: Target, code: CodeType, cpu_seconds: int) -> int:
    """Run the target's tests on *code* in a child; its exit status is 0 only if they all pass.

    One that spins runs into the limit of its processor time, which does not depend on what else
    the machine does; one that waits for ever into the other.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(30 + 20 * cpu_seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sys.meta_path.insert(0, _Finder(target, code))
        tests = [str(ROOT / name) for name in target.tests]
        os._exit(pytest.main([*_OPTIONS, f"--rootdir={ROOT}", *tests]))
    finally:
        os._exit(1)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and runs other code in its place."""

    def __init__(self, target: Target, code: CodeType) -> None:
        self._target = target
        self._code = code

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for the one module only."""
        if fullname != self._target.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._target.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the other code."""
        exec(self._code, module.__dict__)


if __name__ == "__main__":
    sys.exit(main())
