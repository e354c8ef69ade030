"""From PyMySQL's errors to tarry's: what happened, what was not changed, what to do next."""

from pymysql import err
from pymysql.constants import CR, ER

from tarry.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)

DUPLICATE = ER.DUP_ENTRY
LOCKED = (ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK)
"""Somebody else was in the way; the transaction may be tried again."""

_NO_TABLE = ER.NO_SUCH_TABLE
_NO_DATABASE = ER.BAD_DB_ERROR
_STATEMENT_TIMEOUT = (1969, 3024)
_CREDENTIALS = (
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    1251,  # asks for a way to log in that the driver does not know
    1524,  # its way to log in is not loaded
    1698,  # only a user of the machine itself may log in so
    2059,
)
_READ_ONLY = (
    ER.OPTION_PREVENTS_STATEMENT,
    1792,  # a transaction that may only read
    1836,  # the server itself may only read
)
_FULL = (
    ER.DISK_FULL,
    ER.RECORD_FILE_FULL,
    3,  # a file could not be written
    1026,
)
_PASSING = (
    CR.CR_CONNECTION_ERROR,
    CR.CR_CONN_HOST_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    0,  # the driver's own: the connection was closed
    ER.CON_COUNT_ERROR,
    ER.TOO_MANY_USER_CONNECTIONS,
    ER.USER_LIMIT_REACHED,
    ER.SERVER_SHUTDOWN,
    ER.NORMAL_SHUTDOWN,
    ER.QUERY_INTERRUPTED,
    ER.NET_READ_ERROR,
    ER.NET_READ_INTERRUPTED,
    ER.NET_ERROR_ON_WRITE,
    ER.NET_WRITE_INTERRUPTED,
    1159,
    1927,  # MariaDB: the connection was killed
    4031,  # MySQL: it was silent for too long
)


class NoDatabaseError(Exception):
    """What answers does not speak the protocol."""


def code_of(error: Exception) -> int:
    """Return the number of a driver's error, -1 if it has none."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else -1


def translate(error: Exception, where: str) -> StoreError:
    """Return *error* in tarry's words."""
    code = code_of(error)
    said = str(error.args[1]) if len(error.args) > 1 else str(error)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, NoDatabaseError):
        return StoreRefusedError(
            f"what answers at {where} is no MySQL or MariaDB: it does not speak its protocol; "
            "nothing was written; look at the host and port of the store's URL"
        )
    for codes, kind, words in _WORDS:
        if code in codes:
            return kind(words.format(where=where, said=said))
    if code in _PASSING or isinstance(error, OSError | err.InterfaceError):
        return StoreUnavailableError(f"{where} did not answer: {said or type(error).__name__}")
    return StoreRefusedError(f"{where} refused the call: {said}")


_WORDS: tuple[tuple[tuple[int, ...], type[StoreError], str], ...] = (
    (
        _CREDENTIALS,
        StoreRefusedError,
        "{where} refused the user or password, or what tarry needs: {said}; nothing was written",
    ),
    (
        (_NO_DATABASE,),
        StoreRefusedError,
        "{where}: {said}; nothing was written; create it, or name another in the store's URL",
    ),
    (
        (_NO_TABLE,),
        StoreRefusedError,
        "{where} has no tables of tarry any more: {said}; nothing was written; run `tarry migrate`",
    ),
    (
        _READ_ONLY,
        StoreRefusedError,
        "{where} is read-only: {said}; nothing was written; name the primary in the store's URL",
    ),
    (
        _FULL,
        StoreFullError,
        "{where} has no room and refused the write: {said}; nothing was written by this call",
    ),
    (
        (*LOCKED, DUPLICATE),
        StoreBusyError,
        "others held what the call needs at {where} for too long: {said}; nothing was written",
    ),
    (
        _STATEMENT_TIMEOUT,
        StoreBusyError,
        "{where} ended a statement that took longer than it allows: {said}; nothing was written",
    ),
)
