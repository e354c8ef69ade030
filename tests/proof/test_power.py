"""The power is cut anywhere: what was promised is kept, and nothing is ever half done."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from tarry.attempt import DONE
from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.request import Cancellation, Request, Settlement, Successor
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.proof import power
from tarry.testing.proof.careless import CONTROLS
from tarry.testing.proof.disk import SECTOR, Disk
from tarry.testing.proof.tally import Tally
from tarry.testing.proof.vfs import Step, recorded

SLICE = 500
CUTS = int(os.environ.get("TARRY_POWER_CUTS", "3000"))
FIRST_SEED = int(os.environ.get("TARRY_SEED", "0"))
SLICES = range(FIRST_SEED, FIRST_SEED + CUTS, SLICE)
NAME = "tarry.db"


@pytest.fixture(autouse=True)
def _power_can_be_cut() -> None:
    why = power.unavailable()
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


def idle(tally: Tally, *names: str) -> list[str]:
    """Return what never happened: a run in which nothing did proves nothing."""
    return [name for name in names if not tally.counts.get(name)]


def opened(folder: Path, seed: int = 0) -> "closing[SqliteStore]":
    return closing(SqliteStore(f"{folder}/{NAME}", clock=ManualClock(), rng=random.Random(seed)))


def after_cuts(steps: list[Step], folder: Path) -> Iterator[None]:
    """Cut the power after *steps* again and again; the folder holds what is left."""
    disk = Disk({})
    for step in steps:
        disk.take(step)
    for files in cuts(disk, 50):
        for path in folder.iterdir():
            path.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with recorded(str(folder)):  # for its speed: nothing waits for the disk
            yield


def cuts(disk: Disk, times: int = 200) -> list[dict[str, bytes]]:
    return [disk.cut(random.Random(seed))[0] for seed in range(times)]


# ---- the campaign


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLICES)
def test_at_sync_full_nothing_acknowledged_is_lost(seed: int) -> None:
    tally = power.run(seed, SLICE)

    assert tally.broken == []
    assert tally.tried == SLICE
    assert tally.counts["lost"] == 0
    assert idle(tally, "acknowledged", "sectors forgotten") == []
    assert idle(tally, "syncs failed", "cuts behind a failed sync") == []
    # The making of the file, which is not in WAL mode yet; then commits, then checkpoints.
    assert idle(tally, "cuts after create db", "cuts after write journal") == []
    assert idle(tally, "cuts after sync journal", "cuts after delete journal") == []
    assert idle(tally, "cuts after create wal", "cuts after write wal") == []
    assert idle(tally, "cuts after sync wal", "cuts after delete wal") == []
    assert idle(tally, "cuts after write db", "cuts after sync db", "cuts after truncate db") == []
    verbs = ("schedule", "move", "cancel", "claim", "settle", "checkpoint", "open", "close")
    assert idle(tally, *(f"cuts during {verb}" for verb in (*verbs, "restart"))) == []


@pytest.mark.slow
def test_at_sync_normal_what_is_lost_was_not_promised_and_nothing_is_half_done() -> None:
    tally = power.run(FIRST_SEED, SLICE, sync="normal")

    assert tally.broken == []
    assert 0 < tally.counts["lost"] < tally.counts["acknowledged"]


def test_the_same_seed_cuts_the_same() -> None:
    assert power.run(7, 40) == power.run(7, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("control", "rules"),
    [
        ("a disk that does not sync", {"damaged", "forgotten", "lost"}),
        ("sync=normal taken for full", {"forgotten", "lost", "revision used twice"}),
        ("a relaxed cancel", {"forgotten", "after cancel"}),
        ("a token reused after a crash", {"token used twice"}),
        ("a failed sync taken for the last", {"damaged", "forgotten", "lost"}),
    ],
)
def test_what_is_broken_on_purpose_is_found_out(control: str, rules: set[str]) -> None:
    tally = CONTROLS[control](48, 200)

    assert rules <= {broken.rule for broken in tally.broken}


# ---- what it found


def test_a_file_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    with recorded(str(tmp_path)) as recording, opened(tmp_path):
        pass
    # SQLite has journaled the change to WAL mode, and the journal is still there.
    half = [step.what for step in recording.steps].index("delete")

    for _ in after_cuts(recording.steps[:half], tmp_path):
        with opened(tmp_path) as store:
            assert store.check() == []


def test_the_revision_of_a_next_occurrence_is_never_given_out_again(tmp_path: Path) -> None:
    ref = TaskRef("report", "daily")
    with (
        recorded(str(tmp_path)) as recording,
        opened(tmp_path) as store,
        opened(tmp_path) as worker,
    ):
        store.schedule([Request(ref, In(0), rule="every 1d")])
        [lease] = worker.claim(["report"], limit=1, lease_ms=1_000, holder="w").leases
        worker.settle([Settlement(lease, DONE, Successor(lease.task.due, lease.task.due))])
        [seen] = store.get([ref])
        steps = list(recording.steps)

    assert seen is not None
    for _ in after_cuts(steps, tmp_path):
        with opened(tmp_path, seed=1) as store:
            [fresh] = store.schedule([Request(TaskRef("report", "weekly"), In(0))])
            assert fresh.revision > seen.revision


def test_a_checkpoint_after_a_failed_sync_rests_on_a_wal_that_is_there(tmp_path: Path) -> None:
    refs = [TaskRef("kind", str(number)) for number in range(3)]
    with recorded(str(tmp_path)) as recording, opened(tmp_path) as store:
        for ref in refs:
            store.schedule([Request(ref, In(0), b"x" * 9_000)])
        store.claim(["kind"], limit=1, lease_ms=1_000, holder="w")
        recording.fails_in = 1
        with pytest.raises(StoreUnavailableError):
            store.cancel([Cancellation(refs[2])])  # may or may not have happened
        with store._connections.apart() as db:
            db.execute("PRAGMA wal_checkpoint").fetchone()
        steps = list(recording.steps)
    # The database is half written, and its sync has not come yet.
    half = max(number for number, step in enumerate(steps) if step.what == "write")

    assert steps[half].name == NAME
    for _ in after_cuts(steps[:half], tmp_path):
        with opened(tmp_path) as store:
            assert store.check() == []
            assert None not in store.get(refs[:2])


# ---- the recording, and the disk


def test_a_recording_is_all_that_happened_to_the_files(tmp_path: Path) -> None:
    with recorded(str(tmp_path)) as recording, opened(tmp_path) as store:
        for number in range(20):
            store.schedule([Request(TaskRef("kind", str(number)), In(0), b"x" * 300 * number)])
        written = {name: (tmp_path / name).read_bytes() for name in recording.names}
        steps = list(recording.steps)

    disk = Disk({})
    for step in [*steps, *(Step("sync", name, folder=True) for name in written)]:
        disk.take(step)

    assert set(written) == {NAME, f"{NAME}-wal"}
    assert disk.cut(random.Random(0)) == (written, 0)


def test_connections_to_files_elsewhere_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()

    with recorded(str(tmp_path / "here")) as recording, opened(tmp_path / "there"):
        pass

    assert recording.steps == []


def test_what_was_synced_survives_every_cut() -> None:
    disk = Disk({})
    for step in (
        Step("create", "a"),
        Step("write", "a", 0, b"x" * 3 * SECTOR),
        Step("sync", "a", folder=True),
    ):
        disk.take(step)

    assert all(files == {"a": b"x" * 3 * SECTOR} for files in cuts(disk))


def test_what_a_failed_sync_left_behind_no_later_one_makes_durable() -> None:
    disk = Disk({"a": b"." * 3 * SECTOR})
    disk.take(Step("write", "a", 0, b"x" * 2 * SECTOR))
    disk.take(Step("failed sync", "a"))
    disk.take(Step("write", "a", 2 * SECTOR, b"y" * SECTOR))
    disk.take(Step("sync", "a"))

    assert disk.cached() == {"a": b"x" * 2 * SECTOR + b"y" * SECTOR}
    left = {files["a"][::SECTOR] for files in cuts(disk)}
    assert left == {b"..y", b".xy", b"x.y", b"xxy"}


def test_what_is_written_again_after_a_failed_sync_is_durable() -> None:
    disk = Disk({"a": b"." * 2 * SECTOR})
    disk.take(Step("write", "a", 0, b"x" * 2 * SECTOR))
    disk.take(Step("failed sync", "a"))
    disk.take(Step("write", "a", 0, b"y"))
    disk.take(Step("sync", "a"))

    left = {(files["a"][:2], files["a"][SECTOR:][:2]) for files in cuts(disk)}
    assert left == {(b"yx", b".."), (b"yx", b"xx")}

    disk.take(Step("write", "a", 0, disk.cached()["a"]))
    disk.take(Step("sync", "a"))
    assert all(files == disk.cached() for files in cuts(disk))


def test_a_size_that_a_failed_sync_left_behind_is_not_forgotten_by_the_next() -> None:
    disk = Disk({"a": b"." * 3 * SECTOR})
    disk.take(Step("write", "a", 2 * SECTOR, b"x" * SECTOR))
    disk.take(Step("truncate", "a", SECTOR))
    disk.take(Step("failed sync", "a"))
    disk.take(Step("sync", "a"))

    assert all(files == {"a": b"." * SECTOR} for files in cuts(disk))


def test_each_sector_that_was_not_synced_has_a_fate_of_its_own() -> None:
    disk = Disk({"a": b"." * 3 * SECTOR})
    disk.take(Step("write", "a", 0, b"x" * 3 * SECTOR))

    left = {files["a"][::SECTOR] for files in cuts(disk)}

    assert left == {bytes(torn) for torn in product(b".x", repeat=3)}


def test_a_sector_written_twice_may_be_left_in_between() -> None:
    disk = Disk({"a": b"0" * SECTOR})
    disk.take(Step("write", "a", 0, b"1"))
    disk.take(Step("write", "a", 1, b"2"))

    assert {files["a"][:2] for files in cuts(disk)} == {b"00", b"10", b"12"}


def test_sizes_are_uncertain_until_they_are_synced() -> None:
    shorter, longer = Disk({"a": b"abc"}), Disk({"a": b""})
    shorter.take(Step("truncate", "a", 1))
    longer.take(Step("write", "a", 0, b"abc"))

    assert {files["a"] for files in cuts(shorter)} == {b"a", b"abc"}
    assert {files["a"] for files in cuts(longer)} == {b"", b"\0\0\0", b"abc"}


def test_names_come_and_go_in_order_until_the_folder_is_synced() -> None:
    disk = Disk({"old": b"o"})
    disk.take(Step("delete", "old"))
    disk.take(Step("create", "new"))

    assert {tuple(files) for files in cuts(disk)} == {("old",), (), ("new",)}

    disk.take(Step("sync", "new", folder=True))

    assert {tuple(files) for files in cuts(disk)} == {("new",)}
