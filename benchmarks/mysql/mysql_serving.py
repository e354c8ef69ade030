"""A MariaDB of its own for each program: every commit synced, a gibibyte of memory for pages."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tarry.testing.proof.mysql_server import SYNCED, MysqlServer, unavailable

_LARGE = ("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M")


@contextmanager
def serving(*options: str) -> Iterator[MysqlServer]:
    """Lend a fresh server; *options* are its own."""
    why = unavailable()
    if why:
        raise SystemExit(why)
    with closing(MysqlServer(options=(*SYNCED, *_LARGE, *options))) as server:
        yield server
