"""A full disk: every call works or says so and writes nothing; with room again all goes on."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.crash.conftest import Ground, Until, lacking

from tarry.attempt import Done
from tarry.due import In
from tarry.errors import StoreFullError
from tarry.request import Cancellation, Request, Settlement
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef
from tarry.testing.ledger import Failed, Settled, Started
from tarry.testing.proof.roles import Work

FULL = r"tarry\.db: the disk is full; this call wrote nothing; free some room"


class Disk:
    """A real file system of 2 MB, part of it taken by a ballast that can be thrown off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = folder / "ballast"

    def room(self) -> int:
        """Return how many bytes are free."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def leave(self, room: int) -> None:
        """Take all but *room* bytes."""
        with self.ballast.open("ab") as file:
            file.write(bytes(max(0, self.room() - room)))

    def make_room(self) -> None:
        """Throw the ballast off."""
        self.ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0:
        lacking("only root may mount a small disk")
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        lacking("no small disk can be mounted here")
    yield Disk(folder)
    subprocess.run(["umount", folder], check=True)


def fill(schedule: Callable[[list[Request]], object], work: Work) -> list[TaskRef]:
    """Schedule until the disk is full; returns what was acknowledged."""
    payload = msgspec.json.encode(work)
    refs = [TaskRef("async.work", str(n)) for n in range(5_000)]
    for done, ref in enumerate(refs):
        try:
            schedule([Request(ref, In(0), payload)])
        except StoreFullError:
            return refs[:done]
    pytest.fail("the disk never became full")


def make_and_fill(path: Path) -> None:
    with closing(SqliteStore(str(path))) as store:
        for n in range(5_000):
            store.schedule([Request(TaskRef("async.work", str(n)), In(0))])


def test_what_does_not_fit_is_refused_and_what_was_acknowledged_stays(disk: Disk) -> None:
    with closing(SqliteStore(str(disk.folder / "tarry.db"))) as store:
        disk.leave(300_000)
        acknowledged = fill(store.schedule, Work())
        one = acknowledged[0]

        for verb in (
            lambda: store.schedule([Request(TaskRef("async.work", "one more"), In(0))]),
            lambda: store.cancel([Cancellation(one)]),
            lambda: store.claim(["async.work"], limit=10, lease_ms=60_000, holder="h"),
        ):
            with pytest.raises(StoreFullError, match=FULL):
                verb()
        assert store.check() == []
        assert store.counts()["async.work"].scheduled == len(acknowledged)
        assert store.counts()["async.work"].leased == 0

        disk.make_room()
        leases = store.claim(["async.work"], limit=5_000, lease_ms=60_000, holder="h").leases
        assert {lease.ref for lease in leases} == set(acknowledged)
        assert all(store.settle([Settlement(lease, Done()) for lease in leases]))
        assert store.check() == []


@pytest.mark.parametrize("room", range(0, 120_000, 4_096 * 3))
def test_a_store_that_cannot_be_made_for_lack_of_room_is_made_when_there_is(
    disk: Disk, room: int
) -> None:
    path = disk.folder / "tarry.db"
    disk.leave(room)
    with pytest.raises(StoreFullError, match=FULL):
        make_and_fill(path)

    disk.make_room()
    with closing(SqliteStore(str(path))) as store:
        store.schedule([Request(TaskRef("async.work", "one more"), In(0))])
        assert store.check() == []


def test_workers_outlive_a_full_disk(disk: Disk, tmp_path: Path, until: Until) -> None:
    with closing(Ground(disk.folder, book=tmp_path / "ledger")) as ground:
        disk.leave(600_000)
        workers = [ground.worker(lease="1s", concurrency=4) for _ in range(2)]
        first = ground.schedule("plain.work", 20, Work(run_ms=20))
        until(lambda: ground.of(Settled), "a settlement while there is room")

        # From here on a lease may end because its renewal or settlement found no room.
        ground.book.write(Failed(by="", how="the disk is full"))
        acknowledged = fill(ground.witness.schedule, Work(run_ms=20))
        until(lambda: disk.room() == 0, "a full disk")
        assert ground.store.check() == []
        disk.make_room()

        until(ground.is_drained, "the end of all tasks")
        for worker in workers:
            assert ground.nursery.stop(worker)
        started = {start.ref for start in ground.of(Started)}
        assert started >= {*first, *map(str, acknowledged)}
        assert ground.judged() == []
        assert ground.store.check() == []
