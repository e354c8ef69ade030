"""From sqlite3's errors to tarry's: what happened, what was not changed, what to do next."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import quote

from tarry.errors import (
    ForeignFileError,
    SchemaVersionError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.stores.sql.migrate import Migration, load

_PRIMARY = 0xFF
_PACKAGE = "tarry.stores.sqlite"
_UNREADABLE = (0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_Error = sqlite3.Error | UnicodeDecodeError
_Schema = set[tuple[str, str, str | None]]
"""Tables, indexes and views: type, name and statement."""


@contextmanager
def mapped(path: str) -> Iterator[None]:
    """Raise the sqlite3 errors of the block as tarry's."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error


def is_of_the_disk(error: sqlite3.Error) -> bool:
    """Say whether the disk failed, so that a sync may have; to have no room is something else."""
    return _code(error) == sqlite3.SQLITE_IOERR and not _lacks_room(error)


def _code(error: _Error) -> int:
    """Return SQLite's primary code; 0 for an error that sqlite3 makes itself."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def _lacks_room(error: _Error) -> bool:
    extended = getattr(error, "sqlite_errorcode", 0)
    return extended in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)


def translate(error: _Error, path: str) -> StoreError:
    """Return tarry's error for one of sqlite3's."""
    code = _code(error)
    if _lacks_room(error):
        return StoreFullError(f"{path}: the disk is full; this call wrote nothing; free some room")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            f"{path}: another process held the database for too long; this call wrote nothing"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFileError(f"{path} is not a SQLite database; nothing was written")
    if code == sqlite3.SQLITE_CORRUPT or _reads_wrong(error, code):
        return _damaged(error, path)
    if code == sqlite3.SQLITE_ERROR:
        return _misfit(error, path)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreRefusedError(f"{path} cannot be written ({error}); check its owner and mode")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailableError(
            f"{path} cannot be opened ({error}); check that its folder exists and may be written"
        )
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosedError(f"{path}: the store was closed")
    return StoreUnavailableError(f"{path}: {error}")


def newer(path: str, version: int, newest: int) -> SchemaVersionError:
    """Return the error for a layout that this tarry does not know yet."""
    return SchemaVersionError(
        f"{path} was written by a newer tarry (layout {version}, this one knows {newest}); "
        "nothing was written; upgrade tarry on this machine"
    )


def _damaged(error: _Error, path: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} is damaged ({error}); keep a copy and look at it with `sqlite3 {path} .recover`"
    )


def _reads_wrong(error: _Error, code: int) -> bool:
    """Say whether what was read cannot have been written: text that is none.

    sqlite3 even fails to build the message where SQLite quotes a damaged schema.
    """
    if isinstance(error, UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.OperationalError) and code == 0


def _misfit(error: _Error, path: str) -> StoreError:
    """Say why a statement does not fit the file: a newer layout, a damaged one, or neither."""
    try:
        version, found = _look(path)
    except (sqlite3.Error, UnicodeDecodeError) as another:
        unreadable = _code(another) in _UNREADABLE
        return _damaged(error, path) if unreadable else translate(another, path)
    known = load(_PACKAGE)
    newest = known[-1].number
    if version > newest:
        return newer(path, version, newest)
    names = {name for _, name, _ in _made(known)}
    ours = {each for each in found if each[1] in names}
    if ours != _made([migration for migration in known if migration.number <= version]):
        return _damaged(error, path)
    return StoreError(
        f"{path}: SQLite refused a statement ({error}); this call wrote nothing; "
        "look at the file with `tarry doctor`"
    )


def _look(path: str) -> tuple[int, _Schema]:
    """Return the layout's number that a file has, and the layout itself."""
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
        [version] = db.execute("PRAGMA user_version").fetchone()
        return version, _schema(db)


def _made(migrations: Sequence[Migration]) -> _Schema:
    """Return the layout that migrations make."""
    with closing(sqlite3.connect(":memory:")) as db:
        for migration in migrations:
            for statement in migration.statements:
                db.execute(statement)
        return _schema(db)


def _schema(db: sqlite3.Connection) -> _Schema:
    return set(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())
