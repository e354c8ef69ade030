"""The database file: made with care, refused before anything is written to what is not ours."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry.due import In
from tarry.errors import (
    ForeignFileError,
    SchemaVersionError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.request import Request
from tarry.stores.sql.migrate import Migration
from tarry.stores.sql.migrate import load as load_migrations
from tarry.stores.sqlite import file
from tarry.stores.sqlite.file import APPLICATION_ID, mounted
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef
from tarry.testing.conformance.kit import REF, claim, get, schedule

NEWEST = load_migrations("tarry.stores.sqlite")[-1].number


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tarry.db"


def opened(path: Path) -> "closing[SqliteStore]":
    return closing(SqliteStore(str(path), namespace="test"))


def filled(path: Path, count: int = 300) -> None:
    with opened(path) as store:
        requests = [Request(TaskRef("kind", str(n)), In(0), b"p" * 500) for n in range(count)]
        store.schedule(requests)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return every file of a folder with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# ---- what is made


def test_the_file_and_all_beside_it_are_the_owners_alone(path: Path, tmp_path: Path) -> None:
    umask = os.umask(0o000)
    try:
        with opened(path) as store:
            store.watch(lambda _due: None)
            schedule(store)
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    finally:
        os.umask(umask)

    assert modes.pop("tarry.db-wake") == 0o700
    assert set(modes) == {"tarry.db", "tarry.db-wal", "tarry.db-shm", "tarry.db-lock"}
    assert set(modes.values()) == {0o600}


def test_the_file_says_whose_it_is(path: Path) -> None:
    with opened(path) as store:
        assert store.migrate() == ["0001 first"]
        assert store.migrate() == []

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (NEWEST,)


def test_an_empty_file_is_taken_over(path: Path) -> None:
    path.touch()

    with opened(path) as store:
        assert schedule(store).revision > 0


def test_a_file_that_was_only_begun_is_finished(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")

    with opened(path) as store:
        assert schedule(store).revision > 0


@pytest.mark.parametrize("name", ["with space.db", "ünïcode.db", "percent%20.db", "q?m#h.db"])
def test_odd_names_are_names(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with opened(tmp_path / name) as store:
            schedule(store)

    assert (tmp_path / name).stat().st_size > 0
    assert {p.name.removesuffix("-lock") for p in tmp_path.iterdir()} == {name}


def test_another_working_folder_is_not_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)

    with closing(SqliteStore("tarry.db", namespace="test")) as store:
        first = schedule(store)
        monkeypatch.chdir(elsewhere)
        store._connections._close_idle()
        second = schedule(store)

    assert second.revision > first.revision
    assert list(elsewhere.iterdir()) == []


def test_a_link_leads_to_the_same_queue_and_wake_ups(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    with opened(path) as store:
        link.symlink_to(path)
        with opened(link) as other:
            assert other.path == store.path
            schedule(other)

        assert get(store) is not None
    assert not (tmp_path / "link.db-lock").exists()


# ---- what is refused, untouched


def text_file(path: Path) -> None:
    path.write_text("# notes of mine\n" * 200)


def short_text_file(path: Path) -> None:
    path.write_text("hello")


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customer (name TEXT)")
        db.execute("INSERT INTO customer VALUES ('Ada')")
        db.commit()


def foreign_wal_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE customer (name TEXT)")
        db.commit()
        with closing(sqlite3.connect(path)) as another:
            another.execute("SELECT * FROM customer").fetchall()
            copy = path.with_name("copy")
            shutil.copy(path, copy)
            shutil.copy(f"{path}-wal", f"{copy}-wal")
    copy.rename(path)
    path.with_name("copy-wal").rename(f"{path}-wal")


def marked_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id=252006673")


def numbered_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=7")


@pytest.mark.parametrize(
    "make",
    [text_file, short_text_file, foreign_database, marked_database, numbered_database, Path.mkdir],
)
def test_what_is_not_ours_is_refused_and_left_as_it_was(
    path: Path, tmp_path: Path, make: "object"
) -> None:
    assert callable(make)
    make(path)
    before = snapshot(tmp_path)

    with pytest.raises(ForeignFileError, match="nothing was written"):
        SqliteStore(str(path))

    assert snapshot(tmp_path) == before


def test_a_database_of_others_in_wal_mode_keeps_its_bytes(path: Path, tmp_path: Path) -> None:
    foreign_wal_database(path)
    before = snapshot(tmp_path)

    with pytest.raises(ForeignFileError, match="another program"):
        SqliteStore(str(path))

    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM customer").fetchone() == (0,)


def hot(path: Path, fill: str) -> None:
    """Leave a database as a crash does in the middle of a transaction: its journal beside it."""
    made = path.with_name("made")
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size=1")
        db.execute(fill)
        db.execute("CREATE TABLE IF NOT EXISTS customer (name TEXT)")
        db.executemany("INSERT INTO customer VALUES (?)", [("Ada" * 300,)] * 50)
        db.execute("BEGIN")
        db.execute("UPDATE customer SET name = name || '!'")
        shutil.copy(made, path)
        shutil.copy(f"{made}-journal", f"{path}-journal")
    made.unlink()


@pytest.mark.parametrize(
    "fill", ["CREATE TABLE theirs (x)", "PRAGMA application_id=252006673", "PRAGMA user_version=7"]
)
def test_a_database_of_others_that_was_cut_short_is_not_rolled_back(
    path: Path, tmp_path: Path, fill: str
) -> None:
    hot(path, fill)
    before = snapshot(tmp_path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        with pytest.raises(sqlite3.OperationalError) as caught:
            db.execute("SELECT * FROM customer")
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK

    with pytest.raises(ForeignFileError, match=r"another program; nothing was written"):
        SqliteStore(str(path))

    assert snapshot(tmp_path) == before


def test_a_file_of_ours_that_was_cut_short_is_rolled_back(path: Path, tmp_path: Path) -> None:
    hot(path, f"PRAGMA application_id={APPLICATION_ID}")

    with opened(path) as store:
        assert schedule(store).revision > 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT DISTINCT name FROM customer").fetchall() == [("Ada" * 300,)]


def test_a_newer_layout_is_refused_and_left_as_it_was(path: Path, tmp_path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={NEWEST + 1}")
    before = snapshot(tmp_path)

    with pytest.raises(SchemaVersionError, match=r"newer tarry.*nothing was written.*upgrade"):
        SqliteStore(str(path))

    assert snapshot(tmp_path)["tarry.db"] == before["tarry.db"]


def test_a_layout_that_becomes_newer_while_in_use_is_not_migrated(path: Path) -> None:
    with opened(path) as store:
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version={NEWEST + 1}")

        assert store.migrate() == ["0001 first"]
        assert schedule(store).revision > 0


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"no folder .*nowhere"):
        SqliteStore(str(tmp_path / "nowhere" / "tarry.db"))

    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailableError, match="no folder"):
        SqliteStore(str(tmp_path / "file" / "tarry.db"))


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="too long"):
        SqliteStore(str(tmp_path / ("x" * 300)))


# ---- what cannot be written


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder on a read-only mount that holds a database; skips where that cannot be had."""
    folder, mount = tmp_path / "folder", tmp_path / "mount"
    folder.mkdir()
    mount.mkdir()
    filled(folder / "tarry.db")
    if os.geteuid() != 0:
        folder.chmod(0o500)
        (folder / "tarry.db").chmod(0o400)
        yield folder
        folder.chmod(0o700)
        return
    bound = subprocess.run(["mount", "--bind", folder, mount], check=False, capture_output=True)
    if bound.returncode:
        pytest.skip("root is not stopped by modes, and may not mount here")
    subprocess.run(["mount", "-o", "remount,bind,ro", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_a_read_only_database_is_refused_with_a_reason(read_only: Path) -> None:
    before = (read_only / "tarry.db").read_bytes()

    with pytest.raises(StoreError, match=r"cannot be (written|opened)"):
        SqliteStore(str(read_only / "tarry.db"))

    assert (read_only / "tarry.db").read_bytes() == before


def test_a_database_cannot_be_made_in_a_read_only_folder(read_only: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be made"):
        SqliteStore(str(read_only / "new.db"))


# ---- damage


def damaged_header(data: bytearray) -> None:
    data[:16] = b"not a database!!"


def truncated(data: bytearray) -> None:
    del data[len(data) // 2 :]


def truncated_within_a_page(data: bytearray) -> None:
    del data[5_000:]


def garbage_in_the_schema(data: bytearray) -> None:
    data[100:4_096] = b"\xa5" * 3_996


def garbage_pages(data: bytearray) -> None:
    data[8_192:] = b"\x5a" * (len(data) - 8_192)


def one_garbage_page_in_the_middle(data: bytearray) -> None:
    middle = len(data) // 4_096 // 2 * 4_096
    data[middle : middle + 4_096] = os.urandom(4_096)


@pytest.mark.parametrize(
    "damage",
    [
        damaged_header,
        truncated,
        truncated_within_a_page,
        garbage_in_the_schema,
        garbage_pages,
        one_garbage_page_in_the_middle,
    ],
)
def test_damage_is_refused_or_found_by_a_check(path: Path, damage: "object") -> None:
    filled(path)
    data = bytearray(path.read_bytes())
    assert callable(damage)
    damage(data)
    path.write_bytes(data)

    # Anything but one of tarry's errors would be a traceback of sqlite3.
    found: list[str] = []
    try:
        with opened(path) as store:
            found = store.check()
    except StoreError as error:
        found = [str(error)]

    assert found
    assert all("damaged" in line or "not a SQLite database" in line for line in found)


def test_damage_met_by_a_verb_is_an_error_of_tarry(path: Path) -> None:
    filled(path)
    data = bytearray(path.read_bytes())
    garbage_pages(data)

    with opened(path) as store:
        path.write_bytes(data)
        store._connections._close_idle()

        with pytest.raises(ForeignFileError, match="damaged"):
            claim(store, "kind")
        with pytest.raises(ForeignFileError, match="damaged"):
            store.schedule([Request(TaskRef("kind", str(n)), In(0)) for n in range(300)])


# ---- statements that do not fit

ALTERED = (
    ("DROP VIEW tasks", "DROP INDEX task_leased"),
    ("DROP VIEW tasks", "ALTER TABLE task RENAME COLUMN due TO duf"),
)


@pytest.mark.parametrize("how", ALTERED)
def test_a_layout_that_is_not_what_tarry_made_is_damage(path: Path, how: tuple[str, ...]) -> None:
    filled(path)

    with opened(path) as store:
        with closing(sqlite3.connect(path)) as db:
            for statement in how:
                db.execute(statement)
        with (
            pytest.raises(ForeignFileError, match=r"damaged \(no such column.*\.recover"),
            store._connections.writing("full") as db,
        ):
            db.execute("SELECT colour FROM task")


def test_a_table_that_is_gone_is_damage(path: Path) -> None:
    filled(path)

    with opened(path) as store:
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP VIEW tasks")
            db.execute("DROP TABLE task")
        with pytest.raises(ForeignFileError, match=r"damaged \(no such table: .*task\)"):
            schedule(store)
        with pytest.raises(ForeignFileError, match=r"damaged \(no such table: .*task\)"):
            get(store)


def test_a_layout_that_no_longer_fits_because_it_is_newer_is_named(path: Path) -> None:
    filled(path)

    with opened(path) as store:
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP VIEW tasks")
            db.execute("ALTER TABLE task RENAME COLUMN due TO planned")
            db.execute(f"PRAGMA user_version={NEWEST + 1}")
        with pytest.raises(SchemaVersionError, match=r"newer tarry.*upgrade tarry"):
            schedule(store)


@pytest.mark.parametrize("statement", ["no such statement", "SELECT * FROM nowhere", "ROLLBACK"])
def test_a_statement_that_is_wrong_is_neither_damage_nor_worth_a_repetition(
    path: Path, statement: str
) -> None:
    def write() -> None:
        with store._connections.writing("full") as db:
            db.execute("DELETE FROM task")
            db.execute(statement)

    filled(path)
    with opened(path) as store:
        with pytest.raises(StoreError, match=r"refused a statement .*this call wrote no") as caught:
            write()

        assert type(caught.value) is StoreError
        assert not store._connections.doubt.stands()
        assert store.counts()["kind"].scheduled == 300


def test_a_layout_number_that_does_not_fit_the_layout_is_damage(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=0")

    with pytest.raises(ForeignFileError, match=r"damaged \(table lane already exists\)"):
        SqliteStore(str(path))


# ---- file systems

MOUNTS = b"""\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
40 22 0:50 / /srv/share rw,relatime shared:7 master:2 - nfs4 server:/export rw,vers=4.2
41 40 254:0 /local /srv/share/local rw - ext4 /dev/vda rw
42 22 0:51 / /mnt/with\\040space rw - cifs //server/share rw
43 22 0:52 / /mnt/\xc3\xa9t\xc3\xa9 rw - fuse.sshfs host:/ rw
44 22 0:53 / /mnt/twice rw - ext4 /dev/vdb rw
45 22 0:54 / /mnt/twice rw - nfs server:/export rw
46 22 0:55 / /mnt/back\\134slash rw - 9p host rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tarry.db", "ext4"),
        ("/var/lib/tarry.db", "ext4"),
        ("/srv/share", "nfs4"),
        ("/srv/share/tarry.db", "nfs4"),
        ("/srv/shared/tarry.db", "ext4"),
        ("/srv/share/local/tarry.db", "ext4"),
        ("/mnt/with space/tarry.db", "cifs"),
        ("/mnt/été/tarry.db", "fuse.sshfs"),
        ("/mnt/twice/tarry.db", "nfs"),
        ("/mnt/back\\slash/tarry.db", "9p"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_and_latest_mount(path: str, kind: str) -> None:
    assert mounted(path, MOUNTS) == kind


def test_without_a_list_of_mounts_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_MOUNTS", str(tmp_path / "none"))

    assert file.file_system("/tarry.db") == ""
    assert mounted("/tarry.db", b"") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph"])
def test_a_network_file_system_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"22 1 254:0 / / rw - {kind} server:/ rw\n")
    monkeypatch.setattr(file, "_MOUNTS", str(mounts))

    with pytest.raises(StoreRefusedError, match=rf"network file system \({kind}\).*local folder"):
        SqliteStore(str(path))

    assert not path.exists()


def test_this_machine_knows_its_file_systems() -> None:
    assert file.file_system("/proc/self") == "proc"


# ---- layouts

SECOND = Migration(
    NEWEST + 1,
    "second",
    ("ALTER TABLE task ADD COLUMN colour TEXT NOT NULL DEFAULT 'none'", "CREATE TABLE more (x)"),
)


def test_an_old_layout_is_brought_up_to_date_with_its_tasks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    monkeypatch.setattr(file, "load", lambda package: [*load_migrations(package), SECOND])

    with opened(path) as store:
        assert store.migrate() == [f"{NEWEST + 1:04d} second"]
        assert store.migrate() == []
        assert len(claim(store, "kind", limit=500)) == 300
        assert store.check() == []

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (NEWEST + 1,)
        assert db.execute("SELECT count(*) FROM more").fetchone() == (0,)


def test_an_old_process_goes_on_while_a_newer_one_migrates(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as old:
        schedule(old)
        monkeypatch.setattr(file, "load", lambda package: [*load_migrations(package), SECOND])
        with opened(path) as new:
            assert new.migrate() == [f"{NEWEST + 1:04d} second"]
            schedule(new, TaskRef("order.cancel", "new"))

            assert {lease.ref.key for lease in claim(old)} == {REF.key, "new"}


KILLED_IN_A_MIGRATION = """
import os, signal, sys
from tarry.stores.sql.migrate import Migration, load
from tarry.stores.sqlite import file, store

class Killing(tuple):
    def __iter__(self):
        for statement in tuple.__iter__(self):
            yield statement
            if "CREATE TABLE" in statement:
                os.kill(os.getpid(), signal.SIGKILL)

def load_killing(package):
    known = load(package)
    if sys.argv[2] == "first":
        return [Migration(1, "first", Killing(known[0].statements))]
    return [*known, Migration(known[-1].number + 1, "second", Killing(["CREATE TABLE more (x)"]))]

file.load = load_killing
store.SqliteStore(sys.argv[1])
"""


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_migration_that_was_killed_half_way_is_done_by_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    if which == "second":
        filled(path)
        monkeypatch.setattr(file, "load", lambda package: [*load_migrations(package), SECOND])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_MIGRATION, path, which], check=False, timeout=30
    )
    assert killed.returncode == -9

    with opened(path) as store:
        assert store.migrate() == ["0001 first" if which == "first" else f"{NEWEST + 1:04d} second"]
        assert store.check() == []
        schedule(store)
        assert len(claim(store, "kind", limit=500)) == (300 if which == "second" else 0)


def test_a_file_that_cannot_be_opened_leaves_nothing_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_package: str) -> list[Migration]:
        return [Migration(NEWEST + 1, "broken", ("CREATE TABLE task (x)",))]

    filled(path)
    monkeypatch.setattr(file, "load", broken)
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(StoreError, match="task already exists"):
        SqliteStore(str(path))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
