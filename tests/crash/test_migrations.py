"""Processes that are killed while they make or migrate a file leave one that the next can use.

There is one layout so far: a fresh file is made again and again; that an older layout is taken
further is shown with a second migration of the test's own.
"""

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tarry.due import In
from tarry.request import Request
from tarry.stores.sql.migrate import Migration, load
from tarry.stores.sqlite import file
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef

ROUNDS = 40
KNOWN = load("tarry.stores.sqlite")
SECOND = Migration(
    KNOWN[-1].number + 1,
    "second",
    (
        "ALTER TABLE task ADD COLUMN colour TEXT NOT NULL DEFAULT 'none'",
        "CREATE TABLE more (x)",
        "INSERT INTO more SELECT payload FROM task",
        "CREATE INDEX more_x ON more (x)",
    ),
)

KILL_OPENERS = """
import os, random, shutil, signal, sys
from pathlib import Path
from tarry.clock import SYSTEM, nap
from tarry.stores.sqlite import file
from tarry.stores.sqlite.store import SqliteStore
from tests.crash import test_migrations as this

folder, seed, second = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "older"
dice = random.Random(seed)
if second:
    file.load = lambda package: [*this.KNOWN, this.SECOND]

def opener(path):
    pid = os.fork()
    if not pid:
        SqliteStore(str(path), sync="normal")
        os._exit(0)
    return pid

def died(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

def taken(path):
    path.unlink(missing_ok=not second)
    shutil.copy(folder / "round-0.db", path) if second else None
    began = SYSTEM.elapsed()
    died(opener(path))
    return (SYSTEM.elapsed() - began) / 1e9

# The quickest of a few: on a busy machine one of them may take very long.
usual = min(taken(folder / "measure.db") for _ in range(4))
killed = 0
for path in sorted(folder.glob("round-*.db")):
    if not second:
        path.unlink()
    openers = [opener(path) for _ in range(dice.choice((1, 2)))]
    for pid in openers:
        nap(dice.random() * usual)
        os.kill(pid, signal.SIGKILL)
    killed += sum([died(pid) for pid in openers])
print(killed)
"""


@pytest.mark.parametrize("layout", ["fresh", "older"])
def test_who_is_killed_on_opening_a_file_leaves_it_to_the_next(
    quick_disk: Path, monkeypatch: pytest.MonkeyPatch, layout: str, pytestconfig: pytest.Config
) -> None:
    sound = quick_disk / "measure.db"
    with closing(SqliteStore(str(sound), sync="normal")) as store:
        store.schedule([Request(TaskRef("kind", str(n)), In(0), b"p" * 300) for n in range(300)])
    paths = [quick_disk / f"round-{n}.db" for n in range(ROUNDS)]
    for path in paths:
        shutil.copy(sound, path)
    if layout == "fresh":
        sound.unlink()

    done = subprocess.run(
        [sys.executable, "-c", KILL_OPENERS, quick_disk, "1", layout],
        check=True,
        capture_output=True,
        cwd=pytestconfig.rootpath,
        timeout=50,
    )

    assert int(done.stdout) > ROUNDS // 8
    if layout == "older":
        monkeypatch.setattr(file, "load", lambda _package: [*KNOWN, SECOND])
    unfinished = 0
    for path in paths:
        with closing(SqliteStore(str(path), sync="normal")) as store:
            unfinished += bool(store.migrate())
            assert store.check() == []
            store.schedule([Request(TaskRef("kind", "new"), In(0))])
            claimed = store.claim(["kind"], limit=500, lease_ms=1_000, holder="h").leases
            assert len(claimed) == (1 if layout == "fresh" else 301)
    # Some were killed before their migration was done, some after it.
    assert 0 < unfinished < ROUNDS
