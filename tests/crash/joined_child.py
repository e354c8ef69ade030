"""Workers whose handler writes a ledger and settles in one transaction; each dies at another point.

A point lies before and behind every statement and every commit. The first worker dies at the
first point, the second at the second, until one lives; then what the dead left behind is done by
workers that live. Each has a namespace of its own. Prints how many points there were.
"""

import os
import signal
import sqlite3
import sys
import threading
from importlib import import_module
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from tarry import Context, Event, Tarry
from tarry.events import AttemptEnded
from tarry.stores.connect import file_of

URL = sys.argv[1]
LEASE = "300ms"


class Points:
    """Counts what a worker has got past."""

    def __init__(self, deadly: int) -> None:
        self._left = deadly

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def sqlite(point: Points) -> Any:
    """Return a connection that may die around everything it does."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *args: Any) -> Any:
            point()
            answer = super().execute(*args)
            point()
            return answer

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any, **__: Any) -> Any:
            return super().cursor(Cursor)

        def execute(self, *args: Any) -> Any:
            return self.cursor().execute(*args)

        def commit(self) -> None:
            point()
            super().commit()
            point()

    return sqlite3.connect(file_of(URL) or "", factory=Connection, timeout=30)


def psycopg(point: Points) -> Any:
    """Return a connection to PostgreSQL that may die in the same way."""
    driver: Any = import_module("psycopg")

    class Cursor(driver.Cursor):  # type: ignore[misc] # the driver is not always there
        def execute(self, *args: Any, **kwargs: Any) -> Any:
            point()
            answer = super().execute(*args, **kwargs)
            point()
            return answer

    class Connection(driver.Connection):  # type: ignore[misc] # as above
        def commit(self) -> None:
            point()
            super().commit()
            point()

    return Connection.connect(URL, cursor_factory=Cursor)


def pymysql(point: Points) -> Any:
    """Return a connection to MariaDB that may die in the same way."""
    driver: Any = import_module("pymysql.connections")

    class Connection(driver.Connection):  # type: ignore[misc] # as above
        def query(self, *args: Any, **kwargs: Any) -> Any:
            point()
            answer = super().query(*args, **kwargs)
            point()
            return answer

        def execute(self, sql: str) -> None:
            self.cursor().execute(sql)

        def commit(self) -> None:
            point()
            super().commit()
            point()

    parts = urlsplit(URL)
    return Connection(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
    )


CONNECTIONS = {"sqlite": sqlite, "postgresql": psycopg, "mysql": pymysql, "mariadb": pymysql}


def work(number: int, point: Points, *, schedule: bool) -> None:
    """Do the one task of a namespace."""
    with Tarry(URL, namespace=f"n{number}") as app:
        done = threading.Event()

        @app.task("ledger.write", key="{number}")
        def write(ctx: Context, number: int) -> None:
            point()
            db = CONNECTIONS[URL.partition(":")[0]](point)
            try:
                db.execute(f"INSERT INTO ledger (number) VALUES ({number})")
                ctx.settle(tx=db)
                db.commit()
            finally:
                db.close()
            point()

        def ended(event: Event) -> None:
            if isinstance(event, AttemptEnded):
                done.set()

        app.listen(ended)
        if schedule:
            write.schedule("now", number)
        if write.get(number) is not None:
            with app.worker(lease=LEASE):
                done.wait(60)


def lived(number: int, deadly: int, *, schedule: bool) -> bool:
    """Work in a process of its own; says whether it was not killed."""
    process = os.fork()
    if not process:
        work(number, Points(deadly), schedule=schedule)
        os._exit(0)
    return os.waitpid(process, 0)[1] == 0


for deadly in count(1):
    if lived(deadly, deadly, schedule=True):
        break
for number in range(1, deadly):
    assert lived(number, 0, schedule=False)
sys.stdout.write(str(deadly))
