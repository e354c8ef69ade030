"""What may go wrong with a server: clear errors, bounded waits, nothing lost, nothing half done."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest
from tests.network.servers import HOST, Server, mariadb, reserved, until
from tests.stores.mysql.conftest import MakeStore, new_namespace, plain

from tarry.answers import CancelResult, ScheduleStatus, SettleResult
from tarry.attempt import DONE, RELEASE
from tarry.due import In
from tarry.errors import (
    SchemaVersionError,
    StoreBusyError,
    StoreClosedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.lease import Lease
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.mysql import layout
from tarry.stores.mysql.rows import SPAN
from tarry.stores.sql.migrate import Migration, load
from tarry.task import TaskRef
from tarry.testing.proof.mysql_server import DATABASE, url

pytestmark = pytest.mark.medium("mysql")

KIND = "order.cancel"
REF = TaskRef(KIND, "42")


def say(operator: Any, *statements: str) -> list[Any]:
    with operator.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


# ---- what cannot be opened


def test_a_wrong_password_is_refused_without_being_shown(server: Server, operator: Any) -> None:
    say(operator, "CREATE OR REPLACE USER clerk IDENTIFIED BY 'right'")

    with pytest.raises(StoreRefusedError, match="user or password") as caught:
        connect(f"mysql://clerk:wrong-secret@{HOST}:{server.port}/{DATABASE}")

    assert "wrong-secret" not in str(caught.value)


def test_a_user_without_rights_is_refused(server: Server, operator: Any) -> None:
    say(operator, "CREATE OR REPLACE USER guest IDENTIFIED BY 'g'")

    with pytest.raises(StoreRefusedError, match="nothing was written"):
        connect(f"mysql://guest:g@{HOST}:{server.port}/{DATABASE}")


def test_a_database_that_is_not_there_is_refused(server: Server) -> None:
    with pytest.raises(StoreRefusedError, match="create it"):
        connect(f"mysql://root@{HOST}:{server.port}/nowhere")


def test_nobody_at_the_port_is_no_answer() -> None:
    with closing(reserved()) as place, pytest.raises(StoreUnavailableError, match="did not answer"):
        connect(f"mysql://root@{HOST}:{place.getsockname()[1]}/{DATABASE}")


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR unknown command\r\n",
        b"\0" * 40,
        b"\xff" * 80,
    ],
    ids=["silent", "http", "redis", "zeros", "ones"],
)
def test_whoever_is_no_database_is_given_up_in_time(greeting: bytes) -> None:
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            with server.accept()[0] as line:
                line.sendall(greeting)
                line.settimeout(10)
                line.recv(1_000)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"{HOST}:{server.getsockname()[1]}"
        with pytest.raises((StoreRefusedError, StoreUnavailableError), match=address):
            connect(f"mysql://root@{address}/{DATABASE}?connect_timeout=0.3")
        thread.join()


# ---- the layout


@pytest.fixture
def empty(operator: Any) -> Iterator[str]:
    """A database of its own."""
    say(operator, "CREATE OR REPLACE DATABASE fresh")
    yield "fresh"
    say(operator, "DROP DATABASE fresh")


def test_a_newer_layout_is_refused(server: Server, operator: Any, empty: str) -> None:
    address = f"mysql://root@{HOST}:{server.port}/{empty}"
    connect(address).close()
    say(operator, f"INSERT INTO {empty}.tarry_layout VALUES (99, 1, 0)")

    with pytest.raises(SchemaVersionError, match="layout 99, made by a newer tarry"):
        connect(address)


@pytest.mark.parametrize("done", range(6))
def test_an_interrupted_migration_is_taken_up(
    server: Server, empty: str, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off after each of its statements, before that was noted."""
    address = f"mysql://root@{HOST}:{server.port}/{empty}"
    whole = load(layout.MIGRATIONS)
    [first] = whole
    done = min(done, len(first.statements) - 1)
    broken = Migration(1, "first", (*first.statements[: done + 1], "SELECT * FROM no_table"))
    monkeypatch.setattr(layout, "load", lambda _: [broken])
    with pytest.raises(StoreRefusedError):
        connect(address)
    monkeypatch.setattr(layout, "load", lambda _: whole)

    with closing(connect(address)) as store:
        assert store.migrate() == ["0001 first"]
        assert store.migrate() == []
        assert store.schedule([Request(REF, In(0))])[0].status is ScheduleStatus.CREATED


def test_tables_that_were_dropped_are_missed_clearly(
    server: Server, operator: Any, empty: str
) -> None:
    with closing(connect(f"mysql://root@{HOST}:{server.port}/{empty}")) as store:
        store.schedule([Request(REF, In(0))])
        say(operator, f"DROP TABLE {empty}.tarry_task")

        with pytest.raises(StoreRefusedError, match="tarry migrate"):
            store.schedule([Request(REF, In(0))])


# ---- locks


def test_a_ref_that_somebody_keeps_locked_is_busy_in_bounded_time(
    server: Server, make_store: MakeStore
) -> None:
    store = make_store("?timeout=1.2")
    store.schedule([Request(REF, In(60_000))])
    with closing(plain(server)) as somebody:
        say(somebody, "SELECT * FROM tarry_task WHERE `key` = '42' FOR UPDATE")

        with pytest.raises(StoreBusyError, match="nothing was written"):
            store.cancel([Cancellation(REF)])

    assert store.cancel([Cancellation(REF)]) == [CancelResult.CANCELLED]


def test_deadlocks_are_tried_again(make_store: MakeStore) -> None:
    """Callers lock refs of two kinds, each in the order of its own batch."""
    namespace = new_namespace()
    refs = [TaskRef(f"kind.{n}", "1") for n in range(4)]
    stores = [make_store(namespace=namespace) for _ in range(4)]
    stores[0].schedule([Request(ref, In(60_000)) for ref in refs])
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(15):
                mine = refs[number:] + refs[:number]
                stores[number].schedule([Request(ref, In(60_000)) for ref in mine])
                stores[number].reschedule([Move(ref, In(90_000)) for ref in mine])
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert stores[0].check() == []


def test_a_deadlock_that_the_server_finds_is_tried_again(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    tried: list[int] = []
    transact = store._exchange._transact

    def unlucky(*args: Any) -> Any:
        tried.append(1)
        if len(tried) < 3:
            raise pymysql.OperationalError(1213, "Deadlock found")
        return transact(*args)

    monkeypatch.setattr(store._exchange, "_transact", unlucky)

    assert store.schedule([Request(REF, In(0))])[0].status is ScheduleStatus.CREATED
    assert len(tried) == 3


# ---- connections


def test_more_callers_than_connections_wait_their_turn(make_store: MakeStore) -> None:
    store = make_store("?connections=1")
    store.pause(KIND, paused=False)

    def write(number: int) -> None:
        store.schedule([Request(TaskRef(KIND, f"{number}"), In(0))])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.counts([KIND])[KIND].scheduled == 8


def test_a_pool_that_is_used_up_is_busy_but_leases_are_renewed(make_store: MakeStore) -> None:
    store = make_store("?connections=1&timeout=0.2")
    store.schedule([Request(REF, In(0))])
    [lease] = store.claim([KIND], limit=1, lease_ms=5_000, holder="w").leases

    with store._links.link():
        with pytest.raises(StoreBusyError, match="all 1 connections"):
            store.schedule([Request(REF, In(0))])
        assert all(store.renew([lease], lease_ms=5_000))


def test_killed_connections_cost_an_error_and_heal(make_store: MakeStore, operator: Any) -> None:
    store = make_store()
    store.schedule([Request(REF, In(60_000))])
    mine = say(operator, "SELECT CONNECTION_ID()")[0][0]
    for (number,) in say(operator, "SELECT id FROM information_schema.processlist"):
        if number != mine:
            with closing(operator.cursor()) as cursor, suppress(pymysql.MySQLError):
                cursor.execute(f"KILL {number}")

    def heals() -> bool:
        try:
            return store.get([REF])[0] is not None
        except StoreUnavailableError:
            return False

    until(heals, "the store goes on")


def test_a_closed_store_says_so(make_store: MakeStore) -> None:
    store = make_store()
    store.close()

    with pytest.raises(StoreClosedError):
        store.get([REF])


def test_a_forked_process_uses_connections_of_its_own(make_store: MakeStore) -> None:
    store = make_store()
    store.schedule([Request(REF, In(60_000))])

    child = os.fork()
    if child == 0:
        code = 1
        try:
            answer = store.schedule([Request(TaskRef(KIND, "child"), In(60_000))])
            code = 0 if answer[0].status is ScheduleStatus.CREATED else 2
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0
    assert store.counts([KIND])[KIND].scheduled == 2


# ---- a server that only reads, and one that forgets


def test_a_read_only_server_is_refused_clearly() -> None:
    with mariadb() as server, closing(connect(url(server.port))) as store:
        with closing(plain(server, autocommit=True)) as operator:
            say(
                operator,
                "CREATE USER writer",
                f"GRANT ALL ON {DATABASE}.* TO writer",
                "SET GLOBAL read_only = 1",
            )
        store.schedule([Request(REF, In(0))])
        with closing(connect(f"mysql://writer@{HOST}:{server.port}/{DATABASE}")) as reader:
            assert reader.get([REF])[0] is not None
            with pytest.raises(StoreRefusedError, match="is read-only"):
                reader.schedule([Request(REF, In(0))])


# ---- what is drawn and what is remembered


def test_revisions_grow_though_a_row_has_drawn_all_of_its_own(
    make_store: MakeStore, operator: Any
) -> None:
    store = make_store()
    before = store.schedule([Request(REF, In(60_000))])[0].revision
    say(
        operator,
        f"UPDATE tarry_task SET drawn = {SPAN - 2}, revision = {before + SPAN - 2} "
        f"WHERE id * {SPAN} = {before}",
    )

    revisions = [store.schedule([Request(REF, In(60_000))])[0].revision for _ in range(4)]
    revisions += [store.reschedule([Move(REF, In(n))])[0].revision for n in range(4)]
    store.cancel([Cancellation(REF)])
    revisions.append(store.schedule([Request(REF, In(60_000))])[0].revision)

    assert revisions == sorted(set(revisions))
    assert revisions[0] > before + SPAN - 2


def test_what_is_remembered_is_forgotten_in_small_steps(
    make_store: MakeStore, operator: Any
) -> None:
    store = make_store()
    store._exchange._swept = 0
    say(operator, "DELETE FROM tarry_call", "INSERT INTO tarry_call VALUES ('old', 1, '')")

    store.schedule([Request(REF, In(60_000))], call="c1")

    [[old]] = say(operator, "SELECT COUNT(*) FROM tarry_call WHERE until = 1")
    assert old == 0


# ---- claims of many


def test_claims_that_go_on_take_everything_once_and_find_what_came_back(
    make_store: MakeStore,
) -> None:
    store = make_store()
    store.schedule([Request(TaskRef(KIND, f"{n:03d}"), In(0)) for n in range(450)])

    def claim(call: int) -> list[Lease]:
        claimed = store.claim([KIND], limit=100, lease_ms=60_000, holder="w", call=call)
        return claimed.leases

    first = claim(1)
    assert store.settle([Settlement(first[0], RELEASE)]) == [SettleResult.SETTLED]
    rest = [lease for call in range(2, 8) for lease in claim(call)]

    assert len({lease.ref for lease in [*first, *rest]}) == 450
    assert len(rest) == 351
    assert [lease.token for lease in claim(7)] == [lease.token for lease in rest[400:]]
    assert all(store.settle([Settlement(lease, DONE) for lease in [*first[1:], *rest]]))
    assert store.check() == []


def test_an_even_part_of_a_claim_goes_to_each_kind_also_when_it_goes_on(
    make_store: MakeStore,
) -> None:
    store = make_store()
    kinds = ["a", "b"]
    store.schedule([Request(TaskRef("a", str(n)), In(0)) for n in range(300)])
    store.schedule([Request(TaskRef("b", str(n)), In(0)) for n in range(150)])

    taken = [
        store.claim(kinds, limit=100, lease_ms=60_000, holder="w", call=call).leases
        for call in range(1, 7)
    ]

    assert [len(leases) for leases in taken] == [100, 100, 100, 100, 50, 0]
    assert [sum(lease.ref.kind == "b" for lease in leases) for leases in taken[:3]] == [50] * 3


# ---- snapshots


def test_an_old_snapshot_hides_no_task_and_makes_nobody_spin(
    make_store: MakeStore, server: Server
) -> None:
    store = make_store()
    with closing(plain(server)) as old:
        say(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT COUNT(*) FROM tarry_task")
        for start in range(0, 2_000, 500):
            refs = [TaskRef(KIND, str(start + n)) for n in range(500)]
            store.schedule([Request(ref, In(0)) for ref in refs])
            leases = store.claim([KIND], limit=500, lease_ms=30_000, holder="w").leases
            assert len(leases) == 500
            store.settle([Settlement(lease, DONE) for lease in leases])
        store.schedule([Request(REF, In(0))])

        [lease] = store.claim([KIND], limit=10, lease_ms=30_000, holder="w").leases
        store.settle([Settlement(lease, DONE)])
        empty = store.claim([KIND], limit=10, lease_ms=30_000, holder="w")

        assert lease.ref == REF
        assert (empty.leases, empty.next_due) == ([], None)
