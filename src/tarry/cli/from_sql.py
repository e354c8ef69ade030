"""Rows of a user's own table as tasks: read in bounded pages, by a unique column."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

import click
import msgspec

from tarry.app import Tarry
from tarry.cli.exits import USAGE, fail, talk
from tarry.cli.output import clean, progress
from tarry.due import At, parse_when, zone_of
from tarry.errors import DriverMissingError, StoreUnavailableError, StoreUrlError, TarryError
from tarry.request import OnConflict, Request
from tarry.stores.connect import file_of
from tarry.stores.shown import shown_url
from tarry.task import check_kind

PAGE = 500
_SHOWN = 20
_FIELD = re.compile(r"\{(\w+)\}")
_SECONDS_END = 100_000_000_000
"""Numbers below this are seconds since 1970, above it milliseconds."""


class Wanted(msgspec.Struct, frozen=True):
    """What the command line says of the rows."""

    sql: str
    kind: str
    key: str
    due: str | None
    arguments: str
    page_by: str | None
    after: str | None
    tz: str | None
    on_conflict: str


class Source(Protocol):
    """A connection of DB-API."""

    def cursor(self) -> Any:
        """Return a cursor."""
        ...

    def rollback(self) -> None:
        """End what was read."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


def import_rows(app: Tarry, url: str, wanted: Wanted, *, dry: bool) -> dict[str, int]:
    """Schedule a task for each row; returns what became of them."""
    check_kind(wanted.kind)
    done: Counter[str] = Counter()
    with closing(_Rows(url, wanted)) as rows:
        reached = wanted.after
        try:
            with progress(rows.total, "import") as step:
                for page in rows.pages():
                    requests = [r for row in page if (r := rows.request(app, row, done))]
                    if dry:
                        done["tasks"] += len(requests)
                    else:
                        for answer in app.client.schedule(requests):
                            new = answer.status.value != "kept"
                            done["tasks" if new else "there_already"] += 1
                    reached = str(page[-1][rows.by])
                    step(len(page))
        except (KeyboardInterrupt, TarryError):
            if reached is not None:
                talk(f"to go on: --after {click.format_filename(reached)}")
            raise
    return dict(done)


class _Rows:
    """The rows of a query, page by page; nothing is locked or kept open between two pages."""

    def __init__(self, url: str, wanted: Wanted) -> None:
        self._wanted = wanted
        self._db, self._mark = _open(url)
        try:
            self._sql = wanted.sql.strip().rstrip(";")
            self.names = self._columns()
            self.by = self._place(wanted.page_by) if wanted.page_by else 0
            due = wanted.due or ("due" if "due" in self.names else None)
            self._due = self._place(due) if due else min(1, len(self.names) - 1)
            self._fields = self._arguments()
            self._key_fields()
            self.total = self._count()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Let go of the source."""
        self._db.close()

    # ---- what is asked

    def _ask(self, sql: str, values: Sequence[Any] = ()) -> tuple[list[str], list[Any]]:
        cursor = self._db.cursor()
        try:
            cursor.execute(sql, tuple(values))
            names = [str(column[0]) for column in cursor.description or ()]
            return names, list(cursor.fetchall())
        except Exception as error:
            if isinstance(error, TarryError):
                raise
            message = f"the query cannot be run: {error}; nothing was changed"
            raise StoreUrlError(message) from error
        finally:
            cursor.close()
            self._db.rollback()

    def _inner(self) -> str:
        # A driver that marks its places with % wants every other % twice.
        return self._sql.replace("%", "%%") if self._mark == "%s" else self._sql

    def _columns(self) -> list[str]:
        names, _ = self._ask(f"SELECT * FROM ({self._inner()}) AS t LIMIT {self._mark}", [0])  # noqa: S608
        if len(set(names)) != len(names):
            fail(f"two columns have the same name: {', '.join(names)}; name them with AS", USAGE)
        return names

    def _count(self) -> int:
        by = self._quoted(self.by)
        sql = f"SELECT count(*), count({by}), {self._mark} FROM ({self._inner()}) AS t"  # noqa: S608
        _, [[rows, given, _]] = self._ask(sql, [1])
        if rows != given:
            fail(
                f"{rows - given} rows have no {self.names[self.by]} to go by; see --page-by", USAGE
            )
        return int(rows)

    def pages(self) -> Iterator[list[Any]]:
        """Yield pages of rows in the order of the column they go by."""
        by = self._quoted(self.by)
        after: Any = self._wanted.after
        if after is not None and re.fullmatch(r"-?\d+", after):
            after = int(after)
        while True:
            where = "" if after is None else f"WHERE {by} > {self._mark} "
            order = f"ORDER BY {by} LIMIT {self._mark}"
            sql = f"SELECT * FROM ({self._inner()}) AS t {where}{order}"  # noqa: S608
            _, page = self._ask(sql, [*([] if after is None else [after]), PAGE + 1])
            if not page:
                return
            if len(page) > PAGE and page[PAGE][self.by] == page[PAGE - 1][self.by]:
                fail(f"{self.names[self.by]} is not unique: name another with --page-by", USAGE)
            yield page[:PAGE]
            if len(page) <= PAGE:
                return
            after = page[PAGE - 1][self.by]

    def _quoted(self, place: int) -> str:
        quote_mark = "`" if self._mark == "%s" and "pymysql" in type(self._db).__module__ else '"'
        name = self.names[place].replace(quote_mark, quote_mark * 2)
        if self._mark == "%s":
            name = name.replace("%", "%%")
        return f"{quote_mark}{name}{quote_mark}"

    # ---- from a row to a task

    def _place(self, name: str) -> int:
        if name not in self.names:
            fail(f"there is no column {name!r}; there is {', '.join(self.names)}", USAGE)
        return self.names.index(name)

    def _arguments(self) -> dict[str, int]:
        fields = {}
        for part in filter(None, (one.strip() for one in self._wanted.arguments.split(","))):
            name, _, column = part.partition("=")
            fields[name.strip()] = self._place((column or name).strip())
        return fields

    def _key_fields(self) -> None:
        if self._wanted.key not in self.names:
            fields = _FIELD.findall(self._wanted.key)
            if not fields:
                self._place(self._wanted.key)
            for field in fields:
                self._place(field)

    def _key(self, row: Any) -> str:
        if self._wanted.key in self.names:
            return str(row[self.names.index(self._wanted.key)])
        return _FIELD.sub(lambda m: str(row[self.names.index(m[1])]), self._wanted.key)

    def request(self, app: Tarry, row: Any, done: Counter[str]) -> Request | None:
        """Return the request of a row; None, and told, if it has none."""
        try:
            key = self._key(row)
            payload = {name: _plain(row[place]) for name, place in self._fields.items()}
            due = At(instant_of(row[self._due], self._wanted.tz, app.clock.now()))
            mode = OnConflict(self._wanted.on_conflict).value
            request = app.build(self._wanted.kind, "now", key=key, payload=payload)
            return msgspec.structs.replace(request, due=due, on_conflict=OnConflict(mode))
        except (TarryError, TypeError, ValueError) as error:
            done["malformed"] += 1
            if done["malformed"] <= _SHOWN:
                talk(f"row {self.names[self.by]}={clean(str(row[self.by]))}: {clean(str(error))}")
            return None


def instant_of(value: object, tz: str | None, now: int) -> int:
    """Return the instant a column has: a time, a text of one, or a number since 1970."""
    if isinstance(value, Decimal | float | int) and not isinstance(value, bool):
        return int(value if value >= _SECONDS_END else value * 1_000)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            due = parse_when(str(value), now)
            if isinstance(due, At):
                return due.instant
    if isinstance(value, datetime):
        if value.tzinfo is None:
            if tz is None:
                message = f"{value} has no zone: say which with --tz UTC"
                raise ValueError(message)
            value = value.replace(tzinfo=zone_of(tz))
        due = parse_when(value, now)
        if isinstance(due, At):
            return due.instant
    message = f"{value!r} is no time: give a timestamp, or seconds since 1970"
    raise ValueError(message)


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def _open(url: str) -> tuple[Source, str]:
    """Return a connection to a source, and how it marks a place for a value."""
    scheme = url.partition(":")[0]
    try:
        if scheme == "sqlite":
            file = file_of(url) or ""
            return sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True), "?"
        if scheme in ("postgresql", "postgres"):
            source: Source = import_module("psycopg").connect(url)
            return source, "%s"
        if scheme in ("mysql", "mariadb"):
            return _mysql(url), "%s"
    except ModuleNotFoundError as error:
        message = f"--from {scheme}: needs the driver {error.name}: pip install {error.name}"
        raise DriverMissingError(message) from error
    except Exception as error:
        message = f"--from {shown_url(url)} cannot be opened: {error}; nothing was changed"
        raise StoreUnavailableError(message) from error
    message = f"--from {shown_url(url)!r}: write sqlite:///file, postgresql://… or mysql://…"
    raise StoreUrlError(message)


def _mysql(url: str) -> Source:
    parts = urlsplit(url)
    source: Source = import_module("pymysql").connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or "") or None,
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/") or None,
    )
    return source
