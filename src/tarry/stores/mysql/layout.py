"""Layout: the tables of tarry in a database, brought up to date step by step.

There are no transactions around changes of a schema here: how many statements of which migration
are done is noted after each, and one that was interrupted in between is done again; that its
table, column or index is there already is then no error.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pymysql

from tarry.errors import SchemaVersionError, StoreBusyError
from tarry.stores.mysql.errors import code_of
from tarry.stores.mysql.exchange import FAILURES, Exchange
from tarry.stores.mysql.links import Link, Links, Result
from tarry.stores.mysql.url import Place, parse
from tarry.stores.sql.migrate import Migration, load

MIGRATIONS = "tarry.stores.mysql"
Notes = Mapping[int, tuple[int, int]]
"""How many statements of each migration are done, and whether these are all."""
_NOTED = "SELECT number, done, finished FROM tarry_layout"
_NOTES = (
    "CREATE TABLE IF NOT EXISTS tarry_layout (number INT NOT NULL PRIMARY KEY, "
    "done INT NOT NULL, finished TINYINT NOT NULL) ENGINE = InnoDB"
)
_THERE = (1050, 1060, 1061, 1091, 1826)
"""A table, column, index or key that is there already, or gone already."""
_NO_TABLE = 1146
_WAIT_S = 30


class Layout:
    """What the database holds of tarry's tables, and what this version needs."""

    def __init__(self, exchange: Exchange, place: Place) -> None:
        self._exchange = exchange
        self._place = place
        self._migrations = load(MIGRATIONS)

    @property
    def newest(self) -> int:
        """The layout that this version makes."""
        return self._migrations[-1].number

    def present(self) -> int:
        """Return the layout that is there, 0 for none; refuses one of a newer version."""
        return _finished(self._exchange.patiently(self._read))

    def plan(self) -> tuple[int, list[tuple[str, str]]]:
        """Return the layout that is there, and the name and SQL of each step that is left."""
        notes = self._exchange.patiently(self._read)
        present = _finished(notes)
        return present, [
            (_title(step), _sql(step, notes.get(step.number, (0, 0))[0]))
            for step in self._migrations
            if step.number > present
        ]

    def _read(self) -> Notes:
        with self._exchange.link() as link:
            try:
                [found] = link.run([_NOTED])
            except pymysql.ProgrammingError as error:
                if code_of(error) != _NO_TABLE:
                    raise
                return {}
        notes = _notes(found)
        newest = max(notes, default=0)
        if newest > self.newest:
            message = (
                f"{self._place.text} has layout {newest}, made by a newer tarry; this one knows "
                f"{self.newest}: upgrade it; nothing was written"
            )
            raise SchemaVersionError(message)
        return notes

    def pending(self) -> list[Migration]:
        """Return the migrations that are to come."""
        present = self.present()
        return [each for each in self._migrations if each.number > present]

    def migrate(self) -> list[str]:
        """Apply what is missing; says what was done."""
        if not self.pending():
            return []
        return self._exchange.patiently(self._apply)

    def _apply(self) -> list[str]:
        applied = []
        with self._exchange.link() as link, self._alone(link):
            link.run([_NOTES])
            [found] = link.run([_NOTED])
            notes = _notes(found)
            for migration in self._migrations:
                done, finished = notes.get(migration.number, (0, 0))
                if not finished:
                    _apply(link, migration, done)
                    applied.append(_title(migration))
        return applied

    @contextmanager
    def _alone(self, link: Link) -> Iterator[None]:
        """Keep others from migrating at the same time."""
        name = f"'tarry.layout.{self._place.database.encode().hex()[:32]}'"
        # The wait for a reply is shorter than that for the lock: many may start at once.
        link.wait_for(_WAIT_S + self._place.timeout)
        try:
            [got] = link.run([f"SELECT GET_LOCK({name}, {_WAIT_S})"])
            if got.rows[0][0] != 1:
                message = (
                    f"another process has been changing the tables at {self._place.text} for "
                    f"{_WAIT_S} s; nothing was written by this one"
                )
                raise StoreBusyError(message)
            yield
            link.run([f"SELECT RELEASE_LOCK({name})"])
        finally:
            link.wait_for(self._place.timeout)


def _apply(link: Link, migration: Migration, done: int) -> None:
    for number, statement in enumerate(migration.statements[done:], start=done + 1):
        try:
            link.run([statement])
        except FAILURES as error:
            if code_of(error) not in _THERE:
                raise
        _note(link, migration, number, finished=False)
    _note(link, migration, len(migration.statements), finished=True)


def _note(link: Link, migration: Migration, done: int, *, finished: bool) -> None:
    link.run([_noting(migration, done, finished=finished)])


def _noting(migration: Migration, done: int, *, finished: bool) -> str:
    return f"REPLACE INTO tarry_layout VALUES ({migration.number}, {done}, {finished:d})"


def _notes(found: Result) -> Notes:
    return {number: (done, finished) for number, done, finished in found.rows}


def _finished(notes: Notes) -> int:
    return max((number for number, (_, finished) in notes.items() if finished), default=0)


def _title(migration: Migration) -> str:
    return f"{migration.number:04d} {migration.name}"


def _sql(migration: Migration, done: int) -> str:
    """Return what is left of a step, with the note that it is finished."""
    whole = _noting(migration, len(migration.statements), finished=True)
    return ";\n\n".join([_NOTES, *migration.statements[done:], whole]) + ";\n"


def plan(url: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the layout at *url*, and the name and SQL of each step that is left."""
    place = parse(url)
    links = Links(place)
    try:
        return Layout(Exchange(place, "", links, None), place).plan()
    finally:
        links.close()
