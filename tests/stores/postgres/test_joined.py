"""A verb in the caller's own transaction: one statement, which commits and rolls back with it."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from tests.network.servers import postgres
from tests.stores.postgres.conftest import MakeStore

from tarry.answers import CancelResult, MoveStatus, ScheduleStatus, SettleResult
from tarry.attempt import DONE, Retry
from tarry.due import By, In
from tarry.errors import StoreRefusedError
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.joining import Steps
from tarry.stores.postgres.store import PostgresStore
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.proof.postgres_server import PostgresServer
from tarry.transactions.joining import Joined

T = TypeVar("T")
KIND = "order.cancel"
REF = TaskRef(KIND, "42")
SOON, LATER = In(100), In(3_600_000)
LIMIT_S = 10.0

pytestmark = pytest.mark.medium("postgres")


class Counting:
    """A caller's connection, and how many statements were run by it."""

    def __init__(self, db: "psycopg.Connection[Any]") -> None:
        self.db = db
        self.statements = 0

    def run(self, steps: Steps[T]) -> T:
        rows: Sequence[Sequence[Any]] = ()
        try:
            statement = next(steps)
            while True:
                self.statements += 1
                rows = self.db.execute(statement.sql, statement.values).fetchall()
                statement = steps.send(rows)
        except StopIteration as end:
            answers: T = end.value
            return answers


async def arun(db: "psycopg.AsyncConnection[Any]", steps: Steps[T]) -> T:
    try:
        statement = next(steps)
        while True:
            cursor = await db.execute(statement.sql, statement.values)
            statement = steps.send(await cursor.fetchall())
    except StopIteration as end:
        answers: T = end.value
        return answers


@pytest.fixture
def store(make_store: MakeStore) -> PostgresStore:
    return make_store()


@pytest.fixture
def caller(url: str) -> Iterator[Counting]:
    with psycopg.connect(url) as db:
        yield Counting(db)
        db.rollback()


def request(key: str = "42", due: In = LATER, **options: Any) -> Request:
    return Request(TaskRef(KIND, key), due, b'{"order_id": 42}', **options)


def waits(store: Store, key: str = "42") -> bool:
    return store.get([TaskRef(KIND, key)]) != [None]


def test_one_schedule_is_one_statement(store: PostgresStore, caller: Counting) -> None:
    [answer] = caller.run(store.join_schedule([request()]))

    assert (answer.status, answer.ref) == (ScheduleStatus.CREATED, REF)
    assert caller.statements == 1
    assert not waits(store)
    caller.db.commit()
    [task] = store.get([REF])
    assert task is not None
    assert (task.revision, task.due, task.payload) == (
        answer.revision,
        answer.due,
        b'{"order_id": 42}',
    )


def test_what_is_rolled_back_never_was(store: PostgresStore, caller: Counting) -> None:
    caller.run(store.join_schedule([request()]))

    caller.db.rollback()

    assert not waits(store)


def test_many_schedules_with_everything_they_may_have(
    store: PostgresStore, caller: Counting
) -> None:
    requests = [request(str(n), headers=b"h", keep_ms=5, rule="every 1h") for n in range(20, 0, -1)]

    answers = caller.run(store.join_schedule([*requests, request("1", if_revision=10**12)]))
    caller.db.commit()

    assert [a.ref.key for a in answers] == [str(n) for n in range(20, 0, -1)] + ["1"]
    assert [a.status for a in answers[-2:]] == [ScheduleStatus.CREATED, ScheduleStatus.CONFLICT]
    assert caller.statements == 1


def test_a_move_and_a_cancel_join(store: PostgresStore, caller: Counting) -> None:
    store.schedule([request("1"), request("2")])

    [moved] = caller.run(store.join_reschedule([Move(TaskRef(KIND, "1"), By(1_000))]))
    cancelled = caller.run(
        store.join_cancel([Cancellation(TaskRef(KIND, key)) for key in ("2", "3")])
    )

    assert moved.status is MoveStatus.MOVED
    assert cancelled == [CancelResult.CANCELLED, CancelResult.ABSENT]
    assert waits(store, "2")
    caller.db.commit()
    assert not waits(store, "2")
    assert caller.statements == 2


def test_a_settlement_commits_with_what_the_handler_wrote(
    store: PostgresStore, caller: Counting
) -> None:
    store.schedule([request(key, In(0)) for key in ("1", "2")])
    leases = store.claim([KIND], limit=10, lease_ms=30_000, holder="w").leases
    settlements = [Settlement(leases[0], DONE), Settlement(leases[1], Retry(LATER, "no"))]

    assert caller.run(store.join_settle(settlements)) == [SettleResult.SETTLED] * 2
    caller.db.rollback()

    assert [counts.leased for counts in store.counts().values()] == [2]
    assert caller.run(store.join_settle(settlements)) == [SettleResult.SETTLED] * 2
    caller.db.commit()
    assert not waits(store, "1")
    [task] = store.get([TaskRef(KIND, "2")])
    assert task is not None
    assert task.reason == "no"
    assert caller.run(store.join_settle(settlements)) == [SettleResult.LEASE_LOST] * 2


def test_a_joined_settlement_is_as_durable_as_the_callers_commit(
    store: PostgresStore, caller: Counting
) -> None:
    store.schedule([request(due=In(0))])
    [lease] = store.claim([KIND], limit=1, lease_ms=30_000, holder="w").leases

    caller.run(store.join_settle([Settlement(lease, DONE)]))

    [setting] = caller.db.execute("SHOW synchronous_commit").fetchall()
    assert setting == ("on",)


def test_workers_are_woken_by_the_commit_and_not_before(
    store: PostgresStore, caller: Counting
) -> None:
    heard: list[int] = []
    news = threading.Event()

    def hear(due: int) -> None:
        heard.append(due)
        news.set()

    undo = store.watch(hear)
    [joined] = caller.run(store.join_schedule([request(due=SOON)]))
    [loud] = store.schedule([request("loud", In(0))])
    assert news.wait(LIMIT_S)
    assert heard == [loud.due]

    news.clear()
    caller.db.commit()

    assert news.wait(LIMIT_S)
    undo()
    assert heard == [loud.due, joined.due]


def test_what_commits_late_below_the_mark_is_still_claimed(
    store: PostgresStore, caller: Counting
) -> None:
    """Its due is behind those of tasks that were taken long ago."""
    undo = store.watch(lambda _due: None)
    caller.run(store.join_schedule([request("late", In(0))]))
    store.schedule([request("early", In(1))])
    first = _claimed(store, lambda found: len(found) == 1)

    caller.db.commit()

    second = _claimed(store, lambda found: len(found) == 1)
    undo()
    assert [*first, *second] == ["early", "late"]


def _claimed(store: Store, enough: Callable[[list[str]], bool]) -> list[str]:
    """Claim until there is enough; each claim sleeps as its answer says, as a worker does."""
    found: list[str] = []
    wait = threading.Event()
    for _ in range(200):
        claimed = store.claim([KIND], limit=10, lease_ms=30_000, holder="w")
        found += [lease.ref.key for lease in claimed.leases]
        if enough(found):
            return found
        wait.wait(0.02)
    return found


def test_an_awaited_connection_joins_as_well(store: PostgresStore, url: str) -> None:
    async def order() -> ScheduleStatus:
        async with await psycopg.AsyncConnection.connect(url) as db:
            [answer] = await arun(db, store.join_schedule([request()]))
            assert not waits(store)
            return answer.status

    assert asyncio.run(order()) is ScheduleStatus.CREATED
    assert waits(store)


def test_nothing_to_join_is_no_statement(store: PostgresStore, caller: Counting) -> None:
    assert caller.run(store.join_schedule([])) == []
    assert caller.run(store.join_cancel([])) == []
    assert caller.run(store.join_settle([])) == []
    assert caller.statements == 0


def test_a_task_is_scheduled_from_sql_alone(store: PostgresStore, caller: Counting) -> None:
    call = "SELECT tarry.later('test', 'order.cancel', '7', interval '30 minutes', %s)"
    [[first]] = caller.db.execute(call, ('{"order_id": 7}',)).fetchall()
    [[second]] = caller.db.execute(call, ('{"order_id": 7}',)).fetchall()
    caller.db.commit()

    [task] = store.get([TaskRef(KIND, "7")])
    assert task is not None
    assert (task.revision, task.payload) == (second, b'{"order_id": 7}')
    assert second > first
    [[state]] = caller.db.execute("SELECT state FROM tarry.tasks").fetchall()
    assert state == "scheduled"


@pytest.mark.parametrize("words", [("no such!", "k", "1"), ("test", "k", ""), ("test", "", "1")])
def test_sql_alone_refuses_what_tarry_would_refuse(
    store: PostgresStore, caller: Counting, words: tuple[str, str, str]
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        caller.db.execute("SELECT tarry.later(%s, %s, %s, interval '1 minute')", words)


# ---- transactions of another database


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Start another server, whose database has the same name and the same schema."""
    server = postgres()
    connect(server.url).close()
    yield server.url
    server.close()


def refused(store: PostgresStore, tx: Any) -> str:
    with pytest.raises(StoreRefusedError, match="nothing was written") as error:
        Joined(store, tx).run(lambda joins: joins.join_schedule([request()]))
    return str(error.value)


def test_a_transaction_of_another_database_is_refused(
    make_store: MakeStore, new_database: Callable[[], str]
) -> None:
    store, other = make_store(), new_database()

    with psycopg.connect(other) as db:
        assert "without 'tarry'" in refused(store, db)
    connect(other).close()
    with psycopg.connect(other) as db:
        assert "another one" in refused(store, db)

    with closing(connect(other, namespace=store.namespace)) as there:
        assert not waits(there)
    assert not waits(store)


def test_a_transaction_of_another_server_is_refused(server: PostgresServer, elsewhere: str) -> None:
    with (
        closing(connect(server.url)) as store,
        closing(connect(elsewhere)) as there,
        psycopg.connect(elsewhere) as db,
    ):
        assert isinstance(store, PostgresStore)
        assert "another one" in refused(store, db)
        db.commit()

        assert not waits(there)


def test_an_awaited_transaction_and_one_of_sqlalchemy_are_refused_too(
    store: PostgresStore, new_database: Callable[[], str]
) -> None:
    other = new_database()

    async def awaited() -> None:
        async with await psycopg.AsyncConnection.connect(other) as db:
            await Joined(store, db).arun(lambda joins: joins.join_schedule([request()]))

    with pytest.raises(StoreRefusedError, match="nothing was written"):
        asyncio.run(awaited())
    engine = create_engine(other.replace("://", "+psycopg://"), poolclass=NullPool)
    with Session(engine) as session:
        assert "without 'tarry'" in refused(store, session)


def test_a_copy_that_took_over_is_known_after_a_second_look(
    store: PostgresStore, caller: Counting
) -> None:
    store._joined._home = (1, "before")

    [answer] = caller.run(store.join_schedule([request()]))
    caller.run(store.join_cancel([Cancellation(REF)]))

    assert answer.status is ScheduleStatus.CREATED
    assert caller.statements == 3
