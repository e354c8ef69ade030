"""Schema: tarry's tables and functions in a database: made, brought up to date, or refused.

Layouts are numbered as the migrations are. This code works with every layout from OLDEST on, so
that a database is brought up to date when its people want that, not when the first new worker
comes; a newer one is refused.
"""

from functools import cache

from tarry.errors import SchemaVersionError, StoreRefusedError
from tarry.stores.postgres.links import Link
from tarry.stores.postgres.url import Place
from tarry.stores.sql.migrate import Migration, load

OLDEST = 1
"""The oldest layout this code works with."""
TAKES_OVER = 3
"""The first layout that takes what another store had; an older one lets it be scheduled."""
_LOCK = 0x7461727279
"""The advisory lock under which one process at a time changes a layout."""
_PATIENCE = 120.0
"""Seconds a migration may take; building an index on many tasks takes its time."""


@cache
def migrations() -> list[Migration]:
    """Return all steps in order."""
    return load("tarry.stores.postgres")


def newest() -> int:
    """Return the layout this code knows."""
    return migrations()[-1].number


def sql(migration: Migration, schema: str) -> str:
    """Return a step as one transaction that anybody may run, and run once."""
    name = f'"{schema}"'
    body = migration.text.replace("tarry.", f"{name}.").rstrip()
    first = ""
    if migration.number == 1:
        first = (
            f"CREATE SCHEMA IF NOT EXISTS {name};\n"
            f"CREATE TABLE {name}.layout (\n"
            "    number int PRIMARY KEY,\n    name text NOT NULL,\n"
            "    at timestamptz NOT NULL DEFAULT now()\n"
            ");\n"
        )
    return (
        f"BEGIN;\nSELECT pg_advisory_xact_lock({_LOCK});\n{first}"
        f"INSERT INTO {name}.layout (number, name) "
        f"VALUES ({migration.number}, '{migration.name}');\n{body}\nCOMMIT;\n"
    )


def layout(link: Link, place: Place) -> int:
    """Return the layout of the database, 0 if there is none."""
    table = f"'\"{place.schema}\".layout'"
    [[there]] = link.say(f"SELECT to_regclass({table}) IS NOT NULL", place.timeout)
    if not there:
        return 0
    [[number]] = link.say(
        f'SELECT coalesce(max(number), 0) FROM "{place.schema}".layout', place.timeout
    )
    return int(number)


def pending(number: int) -> list[Migration]:
    """Return the steps from layout *number* to the newest."""
    return [step for step in migrations() if step.number > number]


def migrate(link: Link, place: Place) -> list[str]:
    """Bring the database to the newest layout; says which steps were taken here."""
    done = []
    for step in pending(0):
        if step.number <= refuse_newer(layout(link, place), place):
            continue
        if _apply(link, place, step):
            done.append(f"{step.number:04d} {step.name}")
    return done


def _apply(link: Link, place: Place, step: Migration) -> bool:
    """Take one step; says whether it was taken here: another process may be faster."""
    try:
        # Local to the transaction, which may go by way of a pooler.
        text = sql(step, place.schema).replace(
            "BEGIN;", "BEGIN;\nSET LOCAL lock_timeout = 0;\nSET LOCAL statement_timeout = 0;", 1
        )
        link.say(text, _PATIENCE)
    except StoreRefusedError as error:
        link.say("ROLLBACK", place.timeout)
        if layout(link, place) >= step.number:
            return False
        message = (
            f"{place.text} has no tables of tarry, and this role may not make them: {error}; "
            "let one that may run `tarry migrate`, or what `tarry migrate --sql` prints"
        )
        raise StoreRefusedError(message) from error
    return True


def refuse_newer(number: int, place: Place) -> int:
    """Return the layout; raises if it is newer than this code knows."""
    if number > newest():
        message = (
            f"schema {place.schema!r} at {place.text} has layout {number}, made by a newer tarry; "
            f"this one knows {newest()}: upgrade it; nothing was written"
        )
        raise SchemaVersionError(message)
    return number
