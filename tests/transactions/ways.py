"""The ways callers have a transaction on SQLite: each commits at the end, or rolls back."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import aiosqlite
import django
from django.conf import settings
from django.db import connection, transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

Run = Callable[[str], object]
Way = Callable[[Path], AbstractContextManager[tuple[Any, Run]]]
AWay = Callable[[Path], AbstractAsyncContextManager[Any]]

# Not :memory:, which Django never closes.
_UNUSED = f"{mkdtemp()}/unused.db"
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _UNUSED}},
    DEBUG=True,
)
django.setup()


@contextmanager
def bare(path: Path) -> Iterator[tuple[Any, Run]]:
    with closing(sqlite3.connect(path)) as db, db:
        yield db, db.execute


@contextmanager
def explicit(path: Path) -> Iterator[tuple[Any, Run]]:
    """A connection whose owner writes BEGIN, and has rows and text of its own kind."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.row_factory = lambda cursor, row: {"first": row[0]}
        db.text_factory = bytes
        db.execute("BEGIN IMMEDIATE")
        with db:
            yield db, db.execute
        assert db.text_factory is bytes


@contextmanager
def session(path: Path) -> Iterator[tuple[Any, Run]]:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with Session(engine) as own, own.begin():
        yield own, own.connection().exec_driver_sql


@contextmanager
def scoped(path: Path) -> Iterator[tuple[Any, Run]]:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    own = scoped_session(sessionmaker(engine))
    with own.begin():
        yield own, own.connection().exec_driver_sql
    own.remove()


@contextmanager
def core(path: Path) -> Iterator[tuple[Any, Run]]:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.begin() as own:
        yield own, own.exec_driver_sql


@contextmanager
def _django(path: Path, tx: Any) -> Iterator[tuple[Any, Run]]:
    # What an earlier test looked at must not be found again.
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    try:
        with transaction.atomic():
            yield tx, connection.cursor().execute
    finally:
        connection.close()


def django_connection(path: Path) -> AbstractContextManager[tuple[Any, Run]]:
    return _django(path, connection)


def django_atomic(path: Path) -> AbstractContextManager[tuple[Any, Run]]:
    return _django(path, "django")


@asynccontextmanager
async def awaited_bare(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as db:
        db.row_factory = aiosqlite.Row
        yield db
        await db.commit()


@asynccontextmanager
async def awaited_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
    async with AsyncSession(engine) as own, own.begin():
        yield own


@asynccontextmanager
async def awaited_core(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
    async with engine.begin() as own:
        yield own


WAYS: list[Way] = [bare, explicit, session, scoped, core, django_connection, django_atomic]
AWAYS: list[AWay] = [awaited_bare, awaited_session, awaited_core]
