"""What tarry is compared with: bare statements on a raw connection with the store's own PRAGMAs.

Checkpoints between rounds are not counted, those of tarry are.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import measure

from tarry.stores.connect import connect
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.record import SQL

_PLAIN = "CREATE TABLE plain (id INTEGER PRIMARY KEY, key TEXT, due INTEGER, payload BLOB)"

Row = tuple[object, ...]


class Bare:
    """A raw connection as the store at *path* opens its own, and rounds of statements on it."""

    def __init__(self, path: Path, sync: str) -> None:
        # Makes the layout and the lane of the kind.
        with closing(connect(measure.url(path))) as store:
            store.schedule([measure.waiting(0, measure.now_ms() + measure.HOUR_MS)])
        self.db = Connections(str(path))._open(sync.upper())  # noqa: SLF001 - its very PRAGMAs
        self._count = 0

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def numbers(self, operations: int) -> range:
        """Return numbers that were not used yet."""
        self._count += operations
        return range(self._count - operations, self._count)

    def timed(self, step: Callable[[Row], None], rows: Sequence[Row]) -> float:
        """Return the seconds that *step* took for all rows."""
        began = time.perf_counter()
        for row in rows:
            step(row)
        took = time.perf_counter() - began
        self.db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        return took


class OwnStatements(Bare):
    """The statements of one `schedule`: BEGIN IMMEDIATE, block, insert, COMMIT."""

    def __call__(self, operations: int) -> float:
        execute = self.db.execute
        [lane] = execute("SELECT id FROM lane").fetchone()
        now = measure.now_ms()
        due = now + measure.HOUR_MS
        rows: list[Row] = [
            (lane, str(n), due, n, now, 0, False, 0, "", b"", b'{"n":%d}' % n)
            for n in self.numbers(operations)
        ]
        block, insert = SQL["block"], SQL["insert"]

        def step(row: Row) -> None:
            execute("BEGIN IMMEDIATE")
            execute(block).fetchone()
            execute(insert, row)
            execute("COMMIT")

        return self.timed(step, rows)


class PlainInsert(Bare):
    """One row into a table without an index, autocommit."""

    def __init__(self, path: Path, sync: str) -> None:
        super().__init__(path, sync)
        self.db.execute(_PLAIN)

    def __call__(self, operations: int) -> float:
        execute = self.db.execute
        due = measure.now_ms() + measure.HOUR_MS
        rows: list[Row] = [(str(n), due, b'{"n":%d}' % n) for n in self.numbers(operations)]

        def step(row: Row) -> None:
            execute("INSERT INTO plain (key, due, payload) VALUES (?, ?, ?)", row)

        return self.timed(step, rows)


class PlainUpdate(Bare):
    """One row of a table without an index, by its id, autocommit."""

    def __init__(self, path: Path, sync: str, rows: int) -> None:
        super().__init__(path, sync)
        self.db.execute(_PLAIN)
        self._rows = rows
        fill: list[Row] = [(n, str(n), 0, b'{"n":%d}' % n) for n in range(rows)]
        with self.db:
            self.db.execute("BEGIN")
            self.db.executemany("INSERT INTO plain VALUES (?, ?, ?, ?)", fill)

    def __call__(self, operations: int) -> float:
        execute = self.db.execute
        due = measure.now_ms()
        rows: list[Row] = [(due + n, n % self._rows) for n in self.numbers(operations)]

        def step(row: Row) -> None:
            execute("UPDATE plain SET due = ? WHERE id = ?", row)

        return self.timed(step, rows)
