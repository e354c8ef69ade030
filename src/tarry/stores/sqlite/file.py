"""The database file: made with care, and refused before anything is written to what is not ours."""

import os
import re
import sqlite3
from pathlib import Path
from urllib.parse import quote

from tarry.clock import SYSTEM, nap
from tarry.errors import (
    ForeignFileError,
    StoreBusyError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.stores.sql.migrate import load
from tarry.stores.sqlite.connection import BUSY_MS, Connections
from tarry.stores.sqlite.errors import mapped, newer

APPLICATION_ID = 0x74617279  # "tary"
_PACKAGE = "tarry.stores.sqlite"
_NETWORK = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4"),
    *("smb3", "smbfs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
}
_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def prepare(path: str, *, shared: bool = False) -> None:
    """Make sure that *path* is a tarry database or nothing yet; create it with mode 0600.

    *shared*: or a database of another program that has room for ours beside its own tables.

    An existing file is looked at through SQLite only: opening and closing it ourselves would drop
    the POSIX locks that other connections of this process hold on it.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        message = f"{path} cannot be made: there is no folder {folder}"
        raise StoreUnavailableError(message)
    _refuse_network(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _refuse_foreign(path, shared=shared)
    except OSError as error:
        message = f"{path} cannot be made: {error.strerror}"
        raise StoreUnavailableError(message) from error


def _refuse_foreign(path: str, *, shared: bool) -> None:
    if not Path(path).is_file():
        message = f"{path} is not a regular file; nothing was written"
        raise ForeignFileError(message)
    if Path(path).stat().st_size == 0:
        return
    with mapped(path):
        try:
            version = _layout(path, "ro", shared=shared)
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            # Whoever made the file died half-way: to undo that is the first thing a reader does,
            # but only in a file that is ours, or nothing yet.
            _refuse_unseen(path, shared=shared)
            version = _layout(path, "rw", shared=shared)
    refuse_newer(path, version)


def _refuse_unseen(path: str, *, shared: bool) -> None:
    """Look at the file as it lies there, without the journal beside it."""
    try:
        _layout(path, "ro&immutable=1", shared=shared)
    except sqlite3.DatabaseError as error:
        # Before its first page was written it is not even a database.
        if _code(error) != sqlite3.SQLITE_NOTADB:
            raise


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)


def _layout(path: str, mode: str, *, shared: bool) -> int:
    """Return the file's layout, 0 if it is nothing yet; raises if it is another program's."""
    application, tables, version = _identity(path, mode)
    if application == APPLICATION_ID or not (application or tables or version):
        return version
    if not shared:
        message = (
            f"{path} is a database of another program; nothing was written; if it is yours and "
            f"tasks are to commit with its rows: sqlite:///{path}?shared=yes"
        )
        raise ForeignFileError(message)
    taken = tables & _names()
    if application or version or taken:
        what = f"a table {min(taken)}" if taken else "an application_id or user_version"
        message = (
            f"{path} cannot be shared: it has {what} of its own, where tarry's is to be; "
            "nothing was written"
        )
        raise ForeignFileError(message)
    return version


def _names() -> set[str]:
    """Return what the tables, indexes and views of this layout are called."""
    made = re.compile(r"CREATE (?:TABLE|INDEX|VIEW) (\w+)")
    steps = [statement for migration in load(_PACKAGE) for statement in migration.statements]
    return {name for statement in steps for name in made.findall(statement)}


def _identity(path: str, mode: str) -> tuple[int, set[str], int]:
    """Return the file's application id, the names in its schema and its layout."""
    db = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}", uri=True, timeout=5, isolation_level=None
    )
    try:
        # All of one moment: another process may be making the file right now.
        db.execute("BEGIN")
        [application] = db.execute("PRAGMA application_id").fetchone()
        tables = {name for [name] in db.execute("SELECT name FROM sqlite_master")}
        [version] = db.execute("PRAGMA user_version").fetchone()
    finally:
        db.close()
    return application, tables, version


def refuse_newer(path: str, version: int) -> None:
    """Raise if the file's layout is newer than this tarry knows."""
    newest = load(_PACKAGE)[-1].number
    if version > newest:
        raise newer(path, version, newest)


def _refuse_network(path: str) -> None:
    kind = file_system(path)
    if kind in _NETWORK:
        message = (
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold; "
            "use a local folder, or a server medium"
        )
        raise StoreRefusedError(message)


def file_system(path: str) -> str:
    """Return the type of the file system *path* lies on, "" where that cannot be seen."""
    try:
        mounts = Path(_MOUNTS).read_bytes()
    except OSError:
        return ""
    return mounted(os.path.realpath(path), mounts)


def mounted(path: str, mounts: bytes) -> str:
    """Return the type of the file system that holds *path*, by a list of mounts as in Linux."""
    best, found = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(b" - ")
        escaped = left.split()[4]
        mount = os.fsdecode(_ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), escaped))
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, right.split()[0].decode()
    return found


def plan(path: str, *, shared: bool = False) -> tuple[int, list[tuple[str, str]]]:
    """Return the layout of the file, and the name and SQL of each step that is left."""
    version = 0
    if Path(path).is_file() and Path(path).stat().st_size:
        with mapped(path):
            version = _layout(path, "ro", shared=shared)
        refuse_newer(path, version)
    left = [migration for migration in load(_PACKAGE) if migration.number > version]
    return version, [
        (f"{step.number:04d} {step.name}", ";\n".join((*step.statements, ""))) for step in left
    ]


def migrate(connections: Connections) -> list[str]:
    """Bring the file to the newest layout, each step in a transaction of its own."""
    version = _begin(connections)
    done = []
    for migration in load(_PACKAGE):
        if migration.number <= version:
            continue
        with connections.writing("full") as db:
            [version] = db.execute("PRAGMA user_version").fetchone()
            refuse_newer(connections.path, version)
            if migration.number <= version:
                continue
            for statement in migration.statements:
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={migration.number}")
        done.append(f"{migration.number:04d} {migration.name}")
    return done


def _begin(connections: Connections) -> int:
    """Switch the file to WAL mode if it is not yet; returns its layout.

    SQLite itself does not wait for another process that does the same at this moment.
    """
    deadline = SYSTEM.elapsed() + BUSY_MS * 1_000_000
    while True:
        try:
            with connections.reading() as db:
                [mode] = db.execute("PRAGMA journal_mode").fetchone()
                if mode != "wal":
                    db.execute("PRAGMA journal_mode=WAL")
                [version] = db.execute("PRAGMA user_version").fetchone()
                return int(version)
        except StoreBusyError:
            if SYSTEM.elapsed() > deadline:
                raise
        nap(0.005)
