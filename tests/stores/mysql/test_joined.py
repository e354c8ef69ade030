"""Verbs in a caller's own transaction: they commit and roll back with it."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from tests.network.servers import HOST, Server, mariadb
from tests.stores.mysql.conftest import MakeStore, plain

from tarry.answers import CancelResult, MoveStatus, ScheduleStatus, SettleResult
from tarry.attempt import DONE, Dead, Retry
from tarry.due import In
from tarry.errors import StoreRefusedError
from tarry.request import Cancellation, Move, OnConflict, Request, Settlement
from tarry.stores.joining import Rows, Statement
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse
from tarry.task import TaskRef, TaskState
from tarry.testing.conformance.kit import Ear
from tarry.testing.proof.mysql_server import url
from tarry.transactions.joining import Joined

pytestmark = pytest.mark.medium("mysql")

T = TypeVar("T")
KIND = "order.cancel"
REF = TaskRef(KIND, "42")


class Caller:
    """A transaction of somebody who has tables of its own, in a database of its own."""

    def __init__(self, connection: "pymysql.Connection[Any]") -> None:
        self.connection = connection
        self.statements = 0

    def run(self, steps: Generator[Statement, Rows, T]) -> T:
        """Run the statements of a verb, as whoever joins a store does."""
        rows: Rows = ()
        send = steps.__next__
        with self.connection.cursor() as cursor:
            while True:
                try:
                    statement = send()
                except StopIteration as end:
                    answer: T = end.value
                    return answer
                self.statements += 1
                cursor.execute(statement.sql, statement.values)
                rows = cursor.fetchall() if statement.rows else ()

                def send(rows: Rows = rows) -> Statement:
                    return steps.send(rows)


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    with closing(plain(server)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
            cursor.execute("USE shop")
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (id INT)")
            cursor.execute("DELETE FROM orders")
        connection.commit()
        yield Caller(connection)


@pytest.fixture(params=["mariadb", "mysql"])
def store(make_store: MakeStore, request: pytest.FixtureRequest) -> MysqlStore:
    store = make_store()
    store._exchange.returns = request.param == "mariadb"
    return store


def orders(caller: Caller) -> int:
    with caller.connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM orders")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def test_a_joined_schedule_is_one_statement(make_store: MakeStore, caller: Caller) -> None:
    store = make_store()
    store.pause(KIND, paused=False)

    [answer] = caller.run(store.join_schedule([Request(REF, In(60_000))]))
    caller.connection.commit()

    assert caller.statements == 1
    assert answer.status is ScheduleStatus.CREATED
    [task] = store.get([REF])
    assert task is not None
    assert (task.revision, task.due) == (answer.revision, answer.due)


def test_it_is_one_statement_whatever_waits(make_store: MakeStore, caller: Caller) -> None:
    store = make_store()
    store.schedule([Request(REF, In(60_000))])

    answers = [
        caller.run(store.join_schedule([Request(REF, In(1_000), on_conflict=mode)]))[0].status
        for mode in OnConflict
    ]

    replaced = ScheduleStatus.REPLACED
    assert answers == [
        replaced,
        ScheduleStatus.KEPT,
        replaced,
        replaced,
        ScheduleStatus.CONFLICT,
    ]
    assert caller.statements == len(answers)


def test_what_is_rolled_back_never_was(store: MysqlStore, caller: Caller) -> None:
    before = store.schedule([Request(TaskRef(KIND, "1"), In(60_000))])[0]
    with caller.connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (1)")

    caller.run(store.join_schedule([Request(REF, In(0))]))
    caller.run(store.join_reschedule([Move(TaskRef(KIND, "1"), In(5))]))
    caller.run(store.join_cancel([Cancellation(TaskRef(KIND, "1"))]))
    caller.connection.rollback()

    assert orders(caller) == 0
    found = store.get([REF, TaskRef(KIND, "1")])
    assert [task and task.revision for task in found] == [None, before.revision]


def test_what_is_committed_is_one_with_the_callers_own_writes(
    store: MysqlStore, caller: Caller
) -> None:
    with caller.connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (1)")

    caller.run(store.join_schedule([Request(REF, In(0)), Request(TaskRef(KIND, "2"), In(0))]))
    assert store.get([REF]) == [None]
    caller.connection.commit()

    assert orders(caller) == 1
    assert len(store.claim([KIND], limit=5, lease_ms=5_000, holder="w").leases) == 2


def test_moves_and_cancels_are_joined(store: MysqlStore, caller: Caller) -> None:
    store.schedule([Request(REF, In(60_000)), Request(TaskRef(KIND, "2"), In(60_000))])

    [moved] = caller.run(store.join_reschedule([Move(REF, In(90_000))]))
    [cancelled] = caller.run(store.join_cancel([Cancellation(TaskRef(KIND, "2"))]))
    caller.connection.commit()

    assert moved.status is MoveStatus.MOVED
    assert cancelled is CancelResult.CANCELLED
    found = store.get([REF, TaskRef(KIND, "2")])
    assert [task and task.due for task in found] == [moved.due, None]


@pytest.mark.parametrize("outcome", [DONE, Retry(In(0)), Dead("no")], ids=["done", "retry", "dead"])
def test_a_settlement_is_joined(store: MysqlStore, caller: Caller, outcome: Any) -> None:
    store.schedule([Request(REF, In(0))])
    [lease] = store.claim([KIND], limit=1, lease_ms=60_000, holder="w").leases

    assert caller.run(store.join_settle([Settlement(lease, outcome)])) == [SettleResult.SETTLED]
    caller.connection.rollback()
    [task] = store.get([REF])
    assert task is not None
    assert task.state is TaskState.LEASED
    assert caller.run(store.join_settle([Settlement(lease, outcome)])) == [SettleResult.SETTLED]
    caller.connection.commit()

    assert caller.run(store.join_settle([Settlement(lease, outcome)])) == [SettleResult.LEASE_LOST]
    [task] = store.get([REF])
    assert (task and task.state) == {
        DONE: None,
        Retry(In(0)): TaskState.SCHEDULED,
        Dead("no"): TaskState.DEAD,
    }[outcome]


def test_an_open_transaction_holds_up_nobody_else(store: MysqlStore, caller: Caller) -> None:
    store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(3)])
    caller.run(store.join_reschedule([Move(TaskRef(KIND, "0"), In(60_000))]))

    claimed = store.claim([KIND], limit=10, lease_ms=5_000, holder="w")

    # What the transaction holds is passed by, and the claim says that something is due.
    assert sorted(lease.ref.key for lease in claimed.leases) == ["1", "2"]
    assert claimed.next_due is not None
    assert claimed.next_due <= claimed.now
    caller.connection.commit()


def test_a_commit_wakes_the_workers_of_this_process(store: MysqlStore, caller: Caller) -> None:
    ear = Ear(store)
    [answer] = caller.run(store.join_schedule([Request(REF, In(0))]))
    caller.connection.commit()

    store.committed(answer.due)

    assert ear.heard(1)[0] == answer.due
    ear.undo()


def test_another_process_sees_a_commit_at_its_next_look(
    make_store: MakeStore, caller: Caller
) -> None:
    store = make_store()
    store.pause(KIND, paused=False)
    ear = Ear(store)

    [answer] = caller.run(store.join_schedule([Request(REF, In(500))]))
    caller.connection.commit()

    assert ear.heard(1) == [answer.due]
    ear.undo()


# ---- transactions of another server


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Server]:
    """Start another server, with a database of the same name and the same tables."""
    with mariadb() as server:
        MysqlStore(parse(url(server.port))).close()
        yield server


def schedule(store: MysqlStore, tx: Any) -> None:
    Joined(store, tx).run(lambda joins: joins.join_schedule([Request(REF, In(60_000))]))


def test_a_transaction_of_another_server_is_refused(
    make_store: MakeStore, elsewhere: Server
) -> None:
    store = make_store()

    with closing(plain(elsewhere)) as db:
        with pytest.raises(StoreRefusedError, match="nothing was written"):
            schedule(store, db)
        with db.cursor() as cursor:
            cursor.execute("SELECT * FROM tarry_task")
            assert cursor.fetchall() == ()

    engine = create_engine(f"mysql+pymysql://root@{HOST}:{elsewhere.port}/tarry")
    with Session(engine) as session, pytest.raises(StoreRefusedError):
        schedule(store, session)
    engine.dispose()
    assert store.get([REF]) == [None]


def test_a_connection_is_asked_once_where_it_leads(
    make_store: MakeStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    said: list[str] = []
    with closing(plain(server)) as db:
        query = db.query

        def heard(sql: str, *more: Any) -> int:
            said.append(sql)
            return query(sql, *more)

        monkeypatch.setattr(db, "query", heard)
        schedule(store, db)
        schedule(store, db)
        db.commit()

    assert [sql.split()[0] for sql in said] == ["SELECT", "INSERT", "INSERT"]
    assert store.get([REF]) != [None]


def test_a_server_that_took_over_is_known_after_a_second_look(
    make_store: MakeStore, server: Server
) -> None:
    store = make_store()
    store._server = "before"

    with closing(plain(server)) as db:
        schedule(store, db)
        db.commit()

    assert store.get([REF]) != [None]
