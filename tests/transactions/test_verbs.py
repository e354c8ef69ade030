"""schedule, reschedule and cancel join the transaction of the caller, in every way there is."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from tests.transactions import ways

from tarry import CancelResult, ConflictError, Tarry, Task
from tarry.errors import StoreRefusedError, TransactionError, UnsupportedError
from tarry.stores.connect import connect

Orders = Callable[[], list[Any]]
way = pytest.mark.parametrize("way", ways.WAYS, ids=lambda way: way.__name__)
away = pytest.mark.parametrize("away", ways.AWAYS, ids=lambda away: away.__name__)


def declare(app: Tarry) -> Any:
    @app.task("order.cancel", key="{order_id}")
    def cancel_order(order_id: int) -> None: ...

    return cancel_order


class Stop(Exception):  # noqa: N818 - rolls back
    pass


@way
def test_the_task_commits_with_the_order(
    app: Tarry, path: Path, orders: Orders, way: ways.Way
) -> None:
    task = declare(app)

    with way(path) as (tx, run):
        run("INSERT INTO orders VALUES (42)")
        answer = task.using(tx=tx).schedule("30m", 42)
        assert task.get(42) is None

    found = task.get(42)
    assert orders() == [42]
    assert (found.due, found.revision) == (answer.due, answer.revision)
    assert app.store.check() == []


@way
def test_a_rollback_takes_the_verbs_back(
    app: Tarry, path: Path, orders: Orders, way: ways.Way
) -> None:
    task = declare(app)
    task.schedule("30m", 1)
    task.schedule("30m", 2)
    before = [task.get(1), task.get(2)]

    with pytest.raises(Stop), way(path) as (tx, run):  # noqa: PT012 - to roll back is the point
        run("INSERT INTO orders VALUES (42)")
        task.using(tx=tx).schedule("30m", 42)
        assert task.using(tx=tx).reschedule("2h", 1)
        assert task.using(tx=tx).cancel(2) is CancelResult.CANCELLED
        raise Stop

    assert orders() == []
    assert [task.get(1), task.get(2), task.get(42)] == [*before, None]


@way
def test_what_was_said_in_one_transaction_adds_up(app: Tarry, path: Path, way: ways.Way) -> None:
    task = declare(app)

    with way(path) as (tx, _):
        joined = task.using(tx=tx)
        first = joined.schedule("30m", 42)
        with pytest.raises(ConflictError):
            joined.using(on_conflict="fail").schedule("1h", 42)
        moved = joined.reschedule("2h", 42)
        assert joined.using(if_revision=first.revision).cancel(42) is CancelResult.CONFLICT
        joined.schedule("1h", 43)
        joined.cancel(43)

    assert moved.revision > first.revision
    assert task.get(42).revision == moved.revision
    assert task.get(43) is None


def test_a_savepoint_takes_back_what_was_joined_behind_it(app: Tarry, path: Path) -> None:
    task = declare(app)
    engine = create_engine(f"sqlite:///{path}")

    with Session(engine) as session, session.begin():
        kept = task.using(tx=session).schedule("1h", 1)
        with pytest.raises(Stop), session.begin_nested():  # noqa: PT012 - as above
            task.using(tx=session).schedule("2h", 1)
            task.using(tx=session).schedule("1h", 2)
            raise Stop
        last = task.using(tx=session).schedule("1h", 3)
    with (  # noqa: PT012 - as above
        ways.django_connection(path) as (tx, _),
        pytest.raises(Stop),
        transaction.atomic(),
    ):
        task.using(tx=tx).schedule("1h", 4)
        raise Stop
    engine.dispose()

    assert [task.get(1).revision, task.get(3).revision] == [kept.revision, last.revision]
    assert (task.get(2), task.get(4)) == (None, None)


@away
def test_coroutines_join_what_is_awaited(app: Tarry, path: Path, away: ways.AWay) -> None:
    task = declare(app)
    task.schedule("30m", 1)
    task.schedule("30m", 2)

    async def main() -> None:
        with pytest.raises(Stop):  # noqa: PT012 - as above
            async with away(path) as tx:
                await task.using(tx=tx).aschedule("30m", 41)
                await task.using(tx=tx).acancel(1)
                raise Stop
        async with away(path) as tx:
            await task.using(tx=tx).aschedule("30m", 42)
            assert await task.using(tx=tx).areschedule("2h", 1)
            assert await task.using(tx=tx).acancel(2)
            with pytest.raises(TransactionError, match="a-twin"):
                task.using(tx=tx).schedule("30m", 43)

    asyncio.run(main())
    found: list[Task | None] = [task.get(n) for n in (41, 42, 1, 2, 43)]
    assert [one is not None for one in found] == [False, True, True, False, False]


def test_by_name_the_verbs_join_too(app: Tarry, path: Path) -> None:
    with ways.bare(path) as (tx, _):
        answer = app.schedule("report", "1h", key="7", tx=tx)
        assert app.reschedule(answer.ref, "2h", tx=tx)
        other = app.schedule("report", "1h", key="8", tx=tx)
        assert app.cancel(other.ref, tx=tx)

    assert app.get(answer.ref) is not None
    assert app.get(other.ref) is None


@way
def test_a_commit_wakes_the_workers(app: Tarry, path: Path, way: ways.Way) -> None:
    task = declare(app)
    app.store.schedule([task.build("1h", 1)])
    other = connect(app.url)
    woken = threading.Event()
    other.watch(lambda _: woken.set())

    with way(path) as (tx, _):
        task.using(tx=tx).schedule("now", 42)
        assert not woken.is_set()

    try:
        assert woken.wait(20)
    finally:
        other.close()


def test_a_worker_attempts_what_a_bare_connection_committed(app: Tarry, path: Path) -> None:
    ran = threading.Event()

    @app.task("ring")
    def ring() -> None:
        ran.set()

    with app.worker():
        with ways.bare(path) as (tx, _):
            ring.using(tx=tx).schedule("now")
        assert ran.wait(20)


# ---- what is refused, before anything is written


def refused(app: Tarry, tx: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        app.schedule("order.cancel", "30m", key="42", tx=tx)
    assert app.store.counts() == {} or app.store.counts()["order.cancel"].scheduled == 0


def test_another_file_is_refused(app: Tarry, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        refused(app, db, StoreRefusedError, r"other\.db.*shop\.db.*nothing was written")
    with closing(sqlite3.connect(":memory:")) as db:
        refused(app, db, StoreRefusedError, "in memory")


def test_the_file_by_another_name_is_the_same_file(app: Tarry, path: Path) -> None:
    task = declare(app)
    link = path.with_name("link.db")
    link.symlink_to(path)

    with ways.bare(link) as (tx, _):
        task.using(tx=tx).schedule("30m", 42)

    assert task.get(42) is not None


def test_autocommit_is_refused(app: Tarry, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        refused(app, db, TransactionError, "autocommit")
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with engine.connect() as own:
        refused(app, own, TransactionError, "autocommit")
    with create_engine(f"sqlite:///{path}").connect() as own:
        refused(app, own.execution_options(isolation_level="AUTOCOMMIT"), TransactionError, "auto")
    engine.dispose()
    refused(app, connection, TransactionError, r"atomic\(\)")
    refused(app, "django", TransactionError, r"atomic\(\)")


def test_what_is_no_transaction_is_refused(app: Tarry) -> None:
    refused(app, object(), TransactionError, "tx=object is no transaction; give a connection of")
    refused(app, "flask", TransactionError, "only transaction with a name")


def test_a_driver_of_another_medium_is_refused(app: Tarry) -> None:
    pytest.importorskip("psycopg")
    engine = create_engine("postgresql+psycopg://nowhere/db")
    with Session(engine) as session:
        refused(app, session, TransactionError, "driver psycopg.*sqlite store.*sqlite3")


def test_the_wrong_colour_is_refused(app: Tarry, path: Path) -> None:
    task = declare(app)

    async def main() -> None:
        with ways.bare(path) as (tx, _), pytest.raises(TransactionError, match="without the a"):
            await task.using(tx=tx).aschedule("30m", 42)

    asyncio.run(main())
    assert task.get(42) is None


def test_a_store_that_cannot_join_says_so(path: Path) -> None:
    with Tarry("memory:") as app, ways.bare(path) as (tx, _):
        refused(app, tx, UnsupportedError, "memory store cannot be part of a transaction")


def test_verbs_of_two_steps_do_not_join(app: Tarry, path: Path) -> None:
    task = declare(app)

    @app.task("report", every="1h")
    def report() -> None: ...

    with ways.bare(path) as (tx, _):
        with pytest.raises(UnsupportedError, match="run_now"):
            task.using(tx=tx).run_now(42)
        report.using(tx=tx).schedule("1h")
    with ways.bare(path) as (tx, _), pytest.raises(UnsupportedError, match="recurs"):
        report.using(tx=tx).cancel()
