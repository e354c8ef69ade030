"""What a PostgreSQL does to those who use it: they are told, and nothing is lost or spins."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from tests.network.servers import HOST, LIMIT, needs_postgres, reserved, until
from tests.stores.postgres.conftest import MakeStore, Operator

from tarry.answers import CancelResult, SettleResult
from tarry.attempt import DONE
from tarry.due import In
from tarry.errors import (
    SchemaVersionError,
    StoreBusyError,
    StoreClosedError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUrlError,
    UnsupportedError,
)
from tarry.lease import Lease
from tarry.request import Cancellation, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.postgres import schema
from tarry.stores.postgres.store import PostgresStore
from tarry.stores.store import Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.proof.postgres_server import PostgresServer, program

KIND = "order.cancel"
QUICK = "?timeout=0.5&connect_timeout=0.5"

pytestmark = pytest.mark.medium("postgres")


def put(store: Store, *keys: str, due: In | None = None) -> None:
    store.schedule([Request(TaskRef(KIND, key), due or In(0)) for key in keys])


def claim(store: Store, limit: int = 1_000, lease_ms: int = 30_000) -> list[Lease]:
    return store.claim([KIND], limit=limit, lease_ms=lease_ms, holder="w").leases


def eventually(look: Callable[[], Any], what: str) -> Any:
    found: list[Any] = []

    def there() -> bool:
        found[:] = [look()]
        return bool(found[0])

    until(there, what)
    return found[0]


# ---- places that cannot work


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host:port/db",
        "postgresql://host/db?timeout=never",
        "postgresql://host/db?schema=No%20Name",
        "postgresql://host/db?no_such_option=1",
        "postgresql://u:hunter2@host:port/db",
    ],
)
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(StoreUrlError) as caught:
        connect(url)

    assert "hunter2" not in str(caught.value)


def test_nobody_there() -> None:
    with reserved() as nobody, pytest.raises(StoreUnavailableError, match="did not answer"):
        connect(f"postgresql://u:hunter2@{HOST}:{nobody.getsockname()[1]}/db{QUICK}")


def test_somebody_who_says_nothing() -> None:
    with reserved() as silent:
        silent.listen()
        with pytest.raises(StoreUnavailableError, match="did not answer"):
            connect(f"postgresql://{HOST}:{silent.getsockname()[1]}/db{QUICK}")


def test_somebody_who_speaks_another_language() -> None:
    with reserved() as stranger:
        stranger.listen()

        def answer() -> None:
            with suppress(OSError):
                while True:
                    line, _ = stranger.accept()
                    with line:
                        line.recv(100)
                        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(StoreRefusedError, match="no PostgreSQL"):
            connect(f"postgresql://{HOST}:{stranger.getsockname()[1]}/db{QUICK}")


def test_a_database_and_a_role_that_are_not_there(server: PostgresServer) -> None:
    with pytest.raises(StoreRefusedError, match="does not exist"):
        connect(server.url_of("no_such_database"))
    with pytest.raises(StoreRefusedError, match="does not exist"):
        connect(server.url.replace("tarry@", "nobody:hunter2@"))


def test_a_wrong_password(new_database: Callable[[], str]) -> None:
    needs_postgres()
    with closing(PostgresServer()) as strict:
        with psycopg.connect(strict.url, autocommit=True) as db:
            db.execute("ALTER ROLE tarry PASSWORD 'right'")
        (strict.folder / "data" / "pg_hba.conf").write_text(
            "host all all 127.0.0.1/32 scram-sha-256\n"
        )
        strict.kill()
        strict.start()

        with pytest.raises(StoreRefusedError, match="refused the user or password") as caught:
            connect(strict.url.replace("tarry@", "tarry:hunter2@"))
        connect(strict.url.replace("tarry@", "tarry:right@")).close()

    assert "hunter2" not in str(caught.value)


def test_a_role_that_may_not_make_tables(
    new_database: Callable[[], str], operator: Operator
) -> None:
    url = new_database()
    with suppress(psycopg.errors.DuplicateObject):
        operator.execute("CREATE ROLE guest LOGIN")

    with pytest.raises(StoreRefusedError, match="tarry migrate --sql"):
        connect(url.replace("tarry@", "guest@"))


def test_the_driver_is_missing() -> None:
    """In a process of its own: what was imported once is known to all tests."""
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from tarry.errors import DriverMissingError\n"
        "from tarry.stores.connect import connect\n"
        "try: connect('postgresql://u:hunter2@host/db')\n"
        "except DriverMissingError as error: print(error)\n"
    )

    words = [sys.executable, "-c", program]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert "pip install 'tarry[postgres]'" in said
    assert "hunter2" not in said


# ---- layouts


def test_a_newer_layout_is_refused(new_database: Callable[[], str]) -> None:
    url = new_database()
    connect(url).close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("INSERT INTO tarry.layout VALUES (99, 'later')")

    with pytest.raises(SchemaVersionError, match="newer tarry"):
        connect(url)


def test_an_older_layout_works_and_is_brought_up_to_date_on_demand(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(schema.sql(schema.migrations()[0], "tarry"))

    with closing(connect(url)) as store:
        put(store, "1")
        assert len(claim(store)) == 1
        assert any("tarry migrate" in line for line in store.check())
        assert not store.capabilities.takes_over
        task = Task(ref=TaskRef(KIND, "2"), due=10**13, revision=7, created=5)
        assert store.take_over([task]) == [True]
        with pytest.raises(UnsupportedError, match="tarry migrate"):
            store.take_over([replace(task, state=TaskState.DEAD, ended=5)])
        assert store.migrate() == ["0002 for_people", "0003 take_over"]
        assert store.capabilities.takes_over
        assert store.check() == []
        assert store.migrate() == []


def test_processes_that_open_a_new_database_at_once_make_it_once(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    opened: list[Store] = []
    threads = [
        threading.Thread(target=lambda: opened.append(connect(f"{url}?timeout=20"))) for _ in "1234"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    made = [line for store in opened for line in store.migrate()]
    for store in opened:
        store.close()
    assert len(opened) == 4
    # Each may have made another one; that they are listed in turn is not promised across processes.
    assert sorted(made) == ["0001 first", "0002 for_people", "0003 take_over"]


def test_another_schema_is_another_place(make_store: MakeStore, url: str) -> None:
    here, there = make_store(), make_store("?schema=elsewhere")

    put(there, "1")

    assert claim(here) == []
    assert len(claim(there)) == 1
    assert there.check() == []


# ---- locks and snapshots


def test_a_due_task_that_somebody_holds_locked_makes_nobody_spin(
    make_store: MakeStore, url: str
) -> None:
    store = make_store()
    put(store, "held", "free")
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM tarry.task WHERE key = 'held' FOR UPDATE")

        assert [lease.ref.key for lease in claim(store)] == ["free"]
        empty = store.claim([KIND], limit=10, lease_ms=30_000, holder="w")
        assert empty.leases == []

    found = eventually(lambda: claim(store), "the task is free again")
    assert [lease.ref.key for lease in found] == ["held"]


def test_a_caller_waits_for_a_locked_task_only_so_long(make_store: MakeStore, url: str) -> None:
    store = make_store(QUICK)
    put(store, "held")
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM tarry.task WHERE key = 'held' FOR UPDATE")

        with pytest.raises(StoreBusyError, match="nothing was"):
            store.cancel([Cancellation(TaskRef(KIND, "held"))])

    assert store.cancel([Cancellation(TaskRef(KIND, "held"))]) == [CancelResult.CANCELLED]


def test_a_statement_that_the_server_ends(make_store: MakeStore, url: str) -> None:
    store = make_store()
    put(store, "held")
    link = store._links.take()
    link.say("SET statement_timeout = '100ms'; SET lock_timeout = 0", 5)
    store._links.give(link)
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM tarry.task WHERE key = 'held' FOR UPDATE")

        with pytest.raises(StoreBusyError, match="took too long"):
            store.cancel([Cancellation(TaskRef(KIND, "held"))])


def test_a_repeat_waits_for_the_try_before_it(make_store: MakeStore, url: str) -> None:
    """The first try hangs at a lock; its repeat must not act beside it."""
    store = make_store()
    put(store, "1", due=In(60_000))
    [before] = store.get([TaskRef(KIND, "1")])
    assert before is not None
    answers: list[Any] = []
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM tarry.task WHERE key = '1' FOR UPDATE")
        threads = [
            threading.Thread(
                target=lambda: answers.append(
                    store.cancel([Cancellation(TaskRef(KIND, "1"))], call="same")
                )
            )
            for _ in "12"
        ]
        for thread in threads:
            thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(url, autocommit=True) as third:
            until(lambda: third.execute(waiting).fetchall() == [(2,)], "both wait")
    for thread in threads:
        thread.join()

    assert answers == [[CancelResult.CANCELLED]] * 2


def test_leased_rows_in_front_are_walked_over_rarely(make_store: MakeStore, url: str) -> None:
    """Ten thousand leases, and an old snapshot: what a claim reads stays small."""
    store = make_store()
    with psycopg.connect(url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tarry.task")
        for start in range(0, 10_000, 1_000):
            put(store, *(f"{start + n:06d}" for n in range(1_000)))
            assert len(claim(store)) == 1_000
        put(store, "last")
        eventually(lambda: claim(store), "the newest task is found")
        store._claims._next_look = 1 << 62
        put(store, *(f"x{n}" for n in range(100)))

        read = _pages_read(store)

    # A row is looked at, locked, updated and returned; the leased ones alone are ten thousand.
    assert read < 2_500


def _pages_read(store: PostgresStore) -> int:
    """Return how many pages the next claim of 100 tasks looks at."""
    link = store._links.take()
    marks = store._claims.marks([KIND], None)
    words = (KIND, marks[0][0], marks[1][0].replace("'", "''"))
    [*_, [plan]] = link.say(
        "BEGIN; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM tarry.claim('test', NULL, "
        "ARRAY['{}'], ARRAY[{}], ARRAY['{}'], 100, 30000, 'w', 0, 1, 0, NULL, false)".format(
            *words
        ),
        10,
    )
    link.say("ROLLBACK", 5)
    store._links.give(link)
    [found] = plan
    assert found["Plan"]["Actual Rows"] == 101
    return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])


def test_claims_and_renewals_leave_every_index_alone(make_store: MakeStore, url: str) -> None:
    store = make_store()
    # What is due lies between what is not: a page whose every row is claimed at once has no room.
    refs = [TaskRef(KIND, f"{n:04d}") for n in range(1_000)]
    store.schedule([Request(ref, In(n % 10 * 3_600_000)) for n, ref in enumerate(refs)])

    # The counts of a session are told when it is idle or ends.
    def updates() -> tuple[int, int]:
        with psycopg.connect(url, autocommit=True) as db:
            row = db.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
                "WHERE schemaname = 'tarry' AND relname = 'task'"
            ).fetchone()
        assert row is not None
        return row

    before = updates()
    leases = claim(store)
    store.renew(leases, lease_ms=30_000)
    store._links.forget()
    until(lambda: updates()[0] - before[0] >= 200, "the updates are counted")

    after = updates()
    total, hot = after[0] - before[0], after[1] - before[1]
    assert hot == total


def test_a_row_that_has_moved_is_settled_by_its_key(make_store: MakeStore) -> None:
    store = make_store()
    put(store, "1", "2")
    leases = claim(store)
    store.renew(leases, lease_ms=30_000)

    answers = store.settle([Settlement(lease, DONE) for lease in leases])

    assert answers == [SettleResult.SETTLED] * 2
    assert dict(store.counts()) == {}


def test_remembered_calls_are_forgotten_in_time(make_store: MakeStore, operator: Operator) -> None:
    store = make_store()
    put(store, "1", due=In(60_000))
    operator.execute(
        "INSERT INTO tarry.call SELECT 'old' || n, 0, '{}' FROM generate_series(1, 3000) n"
    )

    for number in range(5_000):
        store.cancel([Cancellation(TaskRef(KIND, "none"))], call=f"c{number}")
        found = operator.execute("SELECT count(*) FROM tarry.call WHERE at = 0").fetchone()
        if found == (0,):
            break

    assert operator.execute("SELECT count(*) FROM tarry.call WHERE at = 0").fetchone() == (0,)


# ---- connections


def test_connections_that_are_cut_heal(make_store: MakeStore, operator: Operator) -> None:
    store = make_store()
    news = threading.Event()
    store.watch(lambda _due: news.set())
    put(store, "1")
    assert news.wait(LIMIT)
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'tarry'"
    )

    for number in range(3):
        operator.execute(cut)
        with suppress(StoreUnavailableError):
            put(store, f"lost{number}")
        news.clear()
        put(store, f"again{number}")
        assert news.wait(LIMIT), "the listener is back"


def test_more_threads_than_connections_wait_for_each_other(make_store: MakeStore) -> None:
    store = make_store("?connections=2")

    def five(number: int) -> None:
        for turn in range(5):
            put(store, f"{number}.{turn}")

    threads = [threading.Thread(target=five, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.counts()[KIND].scheduled == 40


def test_connections_that_are_all_in_use(make_store: MakeStore) -> None:
    store = make_store("?connections=1&timeout=0.2")
    link = store._links.take()

    with pytest.raises(StoreBusyError, match="connections="):
        put(store, "1")

    store._links.give(link)
    put(store, "1")


def test_a_server_that_takes_no_more_connections(make_store: MakeStore) -> None:
    with closing(PostgresServer(settings={"max_connections": "5"})) as small:
        held: list[Store] = []

        def crowd() -> None:
            for _ in range(6):
                held.append(connect(small.url))
                held[-1].counts()

        with pytest.raises(StoreUnavailableError, match="did not answer"):
            crowd()
        for store in held:
            store.close()


def test_a_closed_store_says_so(make_store: MakeStore) -> None:
    store = make_store()
    store.close()

    with pytest.raises(StoreClosedError):
        put(store, "1")


def test_a_fork_uses_connections_of_its_own(make_store: MakeStore) -> None:
    store = make_store()
    put(store, "parent")

    child = os.fork()
    if child == 0:
        try:
            put(store, "child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    put(store, "parent again")
    assert sorted(lease.ref.key for lease in claim(store)) == ["child", "parent", "parent again"]


# ---- other servers


@pytest.fixture
def standby(tmp_path: Any) -> Iterator[str]:
    """A copy of a server that only reads."""
    needs_postgres()
    with closing(PostgresServer(settings={"hot_standby": "on"})) as primary:
        connect(primary.url).close()
        primary.kill()
        (primary.folder / "data" / "standby.signal").touch()
        os.chown(
            primary.folder / "data" / "standby.signal",
            (primary.folder / "data").stat().st_uid,
            (primary.folder / "data").stat().st_gid,
        )
        primary.start()
        yield primary.url


def test_a_standby_is_refused(standby: str) -> None:
    with pytest.raises(StoreRefusedError, match="read-only standby"):
        connect(standby)


@pytest.fixture
def pooler(server: PostgresServer, tmp_path: Any) -> Iterator[int]:
    """PgBouncer in transaction mode before the server."""
    found = program("pgbouncer")
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no pgbouncer installed")
    with reserved() as place:
        port = place.getsockname()[1]
        settings = tmp_path / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={HOST} port={server.port} user=tarry\n[pgbouncer]\n"
            f"listen_addr = {HOST}\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
            "pool_mode = transaction\ndefault_pool_size = 4\nlogfile =\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        settings.chmod(0o644)
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o055)
        user = "nobody" if os.geteuid() == 0 else None
        process = subprocess.Popen([found, str(settings)], user=user, stderr=subprocess.DEVNULL)
        try:
            until(lambda: _listens(port), "the pooler listens")
            yield port
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_behind_a_pooler_everything_works_but_to_listen(
    pooler: int, url: str, make_store: MakeStore
) -> None:
    direct = make_store()
    database = url.rpartition("/")[2]
    # auth_type any lets the pooler choose the user; the server takes whoever comes.
    store = make_store(at=f"postgresql://tarry@{HOST}:{pooler}/{database}")
    news = threading.Event()
    store.watch(lambda _due: news.set())

    put(direct, "1")

    assert store.capabilities.wakeup.startswith("poll")
    assert store.facts()["sessions"] == "by way of a pooler"
    assert news.wait(LIMIT)
    [lease] = claim(store)
    assert store.settle([Settlement(lease, DONE)]) == [SettleResult.SETTLED]
