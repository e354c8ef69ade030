"""A damaged file is refused, or found by a check, or it holds the tasks it held before."""

import random
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tarry.attempt import Dead
from tarry.due import At
from tarry.errors import StoreError, StoreRefusedError
from tarry.request import Request, Settlement
from tarry.stores.sqlite.store import SqliteStore
from tarry.stores.store import Filter
from tarry.task import Task, TaskRef, TaskState

KINDS = ("a", "b")
FAR = 4_000_000_000_000
FLIPS = 320

STORED_ONCE = {
    *("payload", "headers", "rule", "reason", "revision", "created", "nominal"),
    *("attempt", "snoozes", "lost", "declared", "cancelled", "keep_ms", "ended"),
}
"""SQLite has no checksums: only what also stands in an index can be seen to be wrong.

The due does as long as the task waits.
"""

Tasks = dict[tuple[TaskState, TaskRef], Task]


def opened(path: Path) -> "closing[SqliteStore]":
    return closing(SqliteStore(str(path), namespace="test"))


def fill(path: Path) -> None:
    """Make a file with tasks that wait, that are leased, that are dead."""
    with opened(path) as store:
        store.schedule(
            [
                Request(TaskRef(kind, f"key-{n}"), At(FAR + n if n > 20 else 5), b'{"n": %d}' % n)
                for kind in KINDS
                for n in range(150)
            ]
        )
        leases = store.claim(KINDS, limit=20, lease_ms=10**11, holder="h").leases
        store.settle([Settlement(lease, Dead("hopeless")) for lease in leases[5:10]])


def tasks_of(store: SqliteStore) -> Tasks:
    found: Tasks = {}
    for state in (TaskState.SCHEDULED, TaskState.LEASED, TaskState.DEAD):
        for task in store.scan(Filter(state), limit=1_000).tasks:
            found[state, task.ref] = task
    return found


def flipped(data: bytes, seed: int) -> bytes:
    """Return *data* with a bit, a byte, a run of bytes or a bit of the header changed."""
    dice = random.Random(seed)
    damaged = bytearray(data)
    how = dice.choice(("bit", "byte", "run", "header"))
    at = dice.randrange(100 if how == "header" else len(data))
    for place in range(at, min(at + (64 if how == "run" else 1), len(data))):
        damaged[place] ^= dice.randrange(1, 256) if how != "bit" else 1 << dice.randrange(8)
    return bytes(damaged)


def changed(before: Tasks, after: Tasks) -> set[str]:
    """Return the names of the fields that differ; refs, states and dues must be the same."""
    assert before.keys() == after.keys()
    return {
        field
        for (state, ref), task in before.items()
        for field in Task.__struct_fields__
        if getattr(task, field) != getattr(after[state, ref], field)
        if field != "due" or state is TaskState.SCHEDULED
    }


def look(path: Path, whole: Tasks) -> str:
    """Open a damaged file as a user would; returns what became of it."""
    try:
        with opened(path) as store:
            if store.check():
                use(store)
                return "found by the check"
            wrong = changed(whole, tasks_of(store))
    except StoreRefusedError as error:
        return "refused" if str(path) in str(error) else f"a puzzle: {error}"
    assert wrong <= STORED_ONCE
    return "a value stored once is wrong" if wrong else "unharmed"


def use(store: SqliteStore) -> None:
    """Try the verbs on what is damaged: each works, or fails with an error of tarry's."""
    for verb in (
        lambda: store.claim(KINDS, limit=500, lease_ms=1_000, holder="h"),
        lambda: store.schedule([Request(TaskRef("a", f"key-{n}"), At(5)) for n in range(150)]),
        lambda: tasks_of(store),
        store.counts,
        store.facts,
    ):
        with suppress(StoreError):
            verb()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "tarry.db"
    fill(path)
    return path


@pytest.mark.parametrize("part", range(4))
def test_bytes_that_flip_are_seen_or_do_no_harm(sound: Path, quick_disk: Path, part: int) -> None:
    with opened(sound) as store:
        whole = tasks_of(store)
    data = sound.read_bytes()

    verdicts: Counter[str] = Counter()
    for seed in range(part * FLIPS // 4, (part + 1) * FLIPS // 4):
        path = quick_disk / f"{seed}.db"
        path.write_bytes(flipped(data, seed))
        verdicts[look(path, whole)] += 1

    assert set(verdicts) == {
        "refused",
        "found by the check",
        "unharmed",
        "a value stored once is wrong",
    }


def test_a_due_that_differs_from_its_index_is_found(sound: Path, quick_disk: Path) -> None:
    data = sound.read_bytes()
    due = (FAR + 100).to_bytes(6, "big")
    assert data.count(due) == 4  # two kinds, each in the table and in the index

    path = quick_disk / "tarry.db"
    path.write_bytes(data.replace(due, (FAR + 99_100).to_bytes(6, "big"), 1))

    with opened(path) as store:
        assert any("damaged" in line for line in store.check())
