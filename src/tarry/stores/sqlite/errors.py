"""From sqlite3's errors to tarry's: what happened, what was not changed, what to do next."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tarry.errors import (
    ForeignFileError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)

_PRIMARY = 0xFF


@contextmanager
def mapped(path: str) -> Iterator[None]:
    """Raise the sqlite3 errors of the block as tarry's."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return tarry's error for one of sqlite3's."""
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & _PRIMARY
    if code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFullError(f"{path}: the disk is full; this call wrote nothing; free some room")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            f"{path}: another process held the database for too long; this call wrote nothing"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFileError(f"{path} is not a SQLite database; nothing was written")
    if code == sqlite3.SQLITE_CORRUPT or _reads_wrong(error, code):
        return ForeignFileError(
            f"{path} is damaged ({error}); keep a copy and look at it with "
            f"`sqlite3 {path} .recover`"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreRefusedError(f"{path} cannot be written ({error}); check its owner and mode")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailableError(
            f"{path} cannot be opened ({error}); check that its folder exists and may be written"
        )
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosedError(f"{path}: the store was closed")
    return StoreUnavailableError(f"{path}: {error}")


def _reads_wrong(error: sqlite3.Error | UnicodeDecodeError, code: int) -> bool:
    """Say whether what was read cannot have been written: text that is none, another layout.

    sqlite3 even fails to build the message where SQLite quotes a damaged schema.
    """
    if isinstance(error, UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.OperationalError) and code in (0, sqlite3.SQLITE_ERROR)
