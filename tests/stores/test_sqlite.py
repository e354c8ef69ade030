"""The SQLite store keeps every promise of a store, and says in which way."""

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tarry.answers import CancelResult
from tarry.attempt import DONE
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import RefError, StoreBusyError, StoreClosedError, StoreError
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.sqlite.record import SQL
from tarry.stores.sqlite.store import SqliteStore
from tarry.stores.store import RECLAIM_LIMIT, Filter
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises
from tarry.testing.conformance.kit import (
    KIND,
    LEASE_MS,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    move,
    schedule,
    settle,
    shown,
    start,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tarry.db"


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(path), namespace="test", clock=clock)) as store:
        yield store


@pytest.fixture
def other(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(path), namespace="other", clock=clock)) as store:
        yield store


class TestSqliteStore(StorePromises):
    pass


def test_a_namespace_is_checked_before_the_file_is_made(path: Path) -> None:
    with pytest.raises(RefError):
        SqliteStore(str(path), namespace="not allowed")

    assert not path.exists()


def test_without_a_clock_the_real_one_is_used(path: Path) -> None:
    before = SYSTEM.now()

    with closing(SqliteStore(str(path))) as store:
        assert before <= schedule(store).due <= SYSTEM.now()


def test_what_is_kept_outlives_the_store(path: Path, store: SqliteStore) -> None:
    answer = schedule(store, payload=b'{"a":1}', headers=b"h")
    store.close()

    with closing(SqliteStore(str(path), namespace="test", clock=store._clock)) as again:
        lease = claim_one(again)
    assert lease.task.revision == answer.revision
    assert (lease.task.payload, lease.task.headers) == (b'{"a":1}', b"h")


def test_a_claim_ends_a_bounded_number_of_leases(store: SqliteStore, clock: ManualClock) -> None:
    count = RECLAIM_LIMIT + 50
    store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(count)])
    claim(store, limit=count)
    expire(clock)

    claimed = store.claim([KIND], limit=count, lease_ms=LEASE_MS, holder="w2")

    assert len(claimed.leases) == RECLAIM_LIMIT
    assert claimed.next_due is not None
    assert claimed.next_due <= clock.now()
    assert len(claim(store, limit=count)) == 50


def test_a_batch_that_fails_half_way_says_nothing_and_writes_nothing(store: SqliteStore) -> None:
    good = Request(TaskRef(KIND, "good"), In(0))
    bad = Request(TaskRef(KIND, "bad"), In(0), payload=object())  # type: ignore[arg-type]

    with pytest.raises(Exception, match="type"):
        store.schedule([good, bad])

    assert get(store, good.ref) is None
    assert schedule(store).revision > 0


def test_revisions_grow_whatever_is_refused_in_between(store: SqliteStore) -> None:
    revisions = []
    for n in range(50):
        revisions.append(schedule(store).revision)
        revisions.append(move(store, In(n)).revision)
        with suppress(StoreError), store._connections.writing("full") as db:
            store._revisions.draw(db, 700)
            db.execute("no such statement")
        store._revisions.forget()

    assert revisions == sorted(set(revisions))


# ---- durability


@pytest.fixture
def pragmas(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What was in force in each write transaction that was committed, by durability."""
    seen: list[tuple[str, dict[str, Any]]] = []
    from tarry.stores.sqlite.connection import Connections

    give_back = Connections.give_back

    def look(self: Connections, durability: str, db: sqlite3.Connection) -> None:
        names = ("synchronous", "wal_autocheckpoint", "journal_mode", "busy_timeout")
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        seen.append((durability, found))
        give_back(self, durability, db)

    monkeypatch.setattr(Connections, "give_back", look)
    return seen


def used(pragmas: list[tuple[str, dict[str, Any]]], call: Callable[[], object]) -> set[object]:
    """Return the levels of `synchronous` that *call* wrote with; checks all else on the way."""
    pragmas.clear()
    call()
    for _, found in pragmas:
        assert found["wal_autocheckpoint"] == 0
        assert found["journal_mode"] == "wal"
        assert found["busy_timeout"] == 5_000
    return {found["synchronous"] for durability, found in pragmas if durability == "full"}


NORMAL, FULL = 1, 2


@pytest.mark.parametrize(("sync", "level"), [("full", FULL), ("normal", NORMAL)])
def test_what_callers_are_promised_is_synced_as_they_asked(
    path: Path, pragmas: list[tuple[str, dict[str, Any]]], sync: str, level: int
) -> None:
    with closing(SqliteStore(str(path), sync=sync)) as store:
        schedule(store)

        for call in (
            lambda: schedule(store, TaskRef(KIND, "new")),
            lambda: schedule(store),
            lambda: move(store, In(0)),
            lambda: cancel(store),
            lambda: store.revive([DeadRef(REF)]),
            lambda: store.purge([DeadRef(REF)]),
            lambda: store.pause(KIND, paused=False),
        ):
            assert used(pragmas, call) == {level}


@pytest.mark.parametrize("sync", ["full", "normal"])
def test_claims_and_settlements_wait_for_no_disk(
    path: Path, pragmas: list[tuple[str, dict[str, Any]]], sync: str
) -> None:
    with closing(SqliteStore(str(path), sync=sync)) as store:
        schedule(store)
        leases = claim(store)
        for call in (
            lambda: claim(store),
            lambda: store.renew(leases, lease_ms=LEASE_MS),
            lambda: [settle(store, lease) for lease in leases],
        ):
            assert used(pragmas, call) == set()
            assert {found["synchronous"] for _, found in pragmas} == {NORMAL}


def test_the_store_says_what_it_survives(path: Path) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.capabilities.survives == "power loss"
    with closing(SqliteStore(str(path), sync="normal")) as store:
        assert store.capabilities.survives == "process kill"


# ---- the end


def test_after_close_every_verb_says_so(store: SqliteStore) -> None:
    lease = start(store)
    store.close()
    store.close()

    for call in (
        lambda: store.schedule([Request(REF, In(0))]),
        lambda: store.reschedule([Move(REF, In(0))]),
        lambda: store.cancel([Cancellation(REF)]),
        lambda: claim(store),
        lambda: store.renew([lease], lease_ms=LEASE_MS),
        lambda: settle(store, lease),
        lambda: store.get([REF]),
        lambda: store.scan(Filter()),
        store.counts,
        lambda: store.forecast(bucket_ms=1_000, buckets=3),
        lambda: store.revive([DeadRef(REF)]),
        lambda: store.purge([DeadRef(REF)]),
        lambda: store.pause(KIND, paused=True),
        lambda: store.watch(lambda _due: None),
        store.migrate,
        store.check,
    ):
        with pytest.raises(StoreClosedError, match="closed"):
            call()


def test_a_closed_store_leaves_one_tidy_file(path: Path, store: SqliteStore) -> None:
    store.watch(lambda _due: None)
    schedule(store)
    fds = {str(p.resolve()) for p in Path("/proc/self/fd").iterdir()}
    assert any(name.startswith(str(path)) for name in fds)

    store.close()

    fds = {str(p.resolve()) for p in Path("/proc/self/fd").iterdir()}
    assert not any(name.startswith(str(path)) for name in fds)
    assert {p.name for p in path.parent.iterdir()} == {"tarry.db", "tarry.db-lock", "tarry.db-wake"}
    assert list(Path(f"{path}-wake").iterdir()) == []


def test_a_store_may_be_closed_while_others_use_it(store: SqliteStore, path: Path) -> None:
    begun = threading.Barrier(5)
    failures: list[BaseException] = []

    def work(name: int) -> None:
        begun.wait()
        try:
            for n in range(10_000):
                schedule(store, TaskRef(KIND, f"{name}-{n}"))
        except StoreClosedError:
            return
        except BaseException as error:  # noqa: BLE001 - shown by the assert
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    store.close()
    for thread in threads:
        thread.join(30)

    assert failures == []
    fds = {str(p.resolve()) for p in Path("/proc/self/fd").iterdir()}
    assert not any(name.startswith(str(path)) for name in fds)


# ---- threads


def test_eight_threads_schedule_and_cancel_at_once(store: SqliteStore) -> None:
    kept: list[TaskRef] = []
    revisions: list[list[int]] = [[] for _ in range(8)]
    failures: list[BaseException] = []
    begun = threading.Barrier(8)

    def work(name: int) -> None:
        begun.wait()
        try:
            for n in range(40):
                ref = TaskRef(KIND, f"{name}-{n}")
                revisions[name].append(schedule(store, ref, In(60_000)).revision)
                # A ref that all of them fight over: most of these schedules replace.
                revisions[name].append(schedule(store, REF, In(60_000)).revision)
                if n % 2:
                    assert cancel(store, ref) is CancelResult.CANCELLED
                else:
                    kept.append(ref)
        except BaseException as error:  # noqa: BLE001 - shown by the assert
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)

    assert failures == []
    drawn = [revision for own in revisions for revision in own]
    assert len(set(drawn)) == len(drawn)
    assert min(drawn) > 0
    assert all(own == sorted(own) for own in revisions)
    assert shown(store, REF).revision == max(drawn[1::2])
    assert all(get(store, ref) is not None for ref in kept)
    assert store.counts()[KIND].scheduled == len(kept) + 1
    assert store.check() == []


def test_threads_share_what_is_due_without_a_double(store: SqliteStore) -> None:
    refs = [TaskRef(KIND, str(n)) for n in range(400)]
    store.schedule([Request(ref, In(0)) for ref in refs])
    taken: list[TaskRef] = []

    def work() -> None:
        while leases := claim(store, limit=7):
            taken.extend(lease.ref for lease in leases)
            assert all(store.settle([Settlement(lease, DONE) for lease in leases]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(taken) == sorted(refs)
    assert store.counts() == {}


# ---- how the statements find their rows

WALKS_ON_PURPOSE = {
    "check_behind": "the doctor looks at everything",
    "forecast": "groups by a span of time, for operators",
}


def plan(store: SqliteStore, statement: str) -> list[str]:
    sql = SQL[statement]
    named = re.findall(r":(\w+)", sql)
    values: Any = dict.fromkeys(named, "[1]") if named else ["[1]"] * sql.count("?")
    with store._connections.reading() as db:
        return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()]


@pytest.fixture
def analysed(store: SqliteStore) -> SqliteStore:
    """A store with rows, so that the planner has something to choose from."""
    store.schedule([Request(TaskRef(KIND, str(n)), In(n)) for n in range(500)])
    claim(store, limit=20)
    return store


@pytest.mark.parametrize("statement", sorted(set(SQL) - set(WALKS_ON_PURPOSE)))
def test_statements_search_and_never_scan(analysed: SqliteStore, statement: str) -> None:
    steps = plan(analysed, statement)

    walks = [step for step in steps if step.startswith("SCAN")]
    # Lists of ids come as JSON; `revision` has one row; `behind` holds only what waits behind a
    # running attempt; leases are few, and walked in the order of their ends.
    allowed = (
        "SCAN json_each",
        "SCAN revision",
        "SCAN CONSTANT ROW",
        "SCAN behind",
        "SCAN task USING INDEX task_leased",
        "SCAN task USING COVERING INDEX task_leased",
    )
    assert [step for step in walks if not step.startswith(allowed)] == []
    assert [step for step in steps if "TEMP B-TREE" in step] == []


@pytest.mark.parametrize("statement", ["claim_lane", "due", "heads", "count_overdue"])
def test_what_is_due_is_found_by_the_order_of_dues(analysed: SqliteStore, statement: str) -> None:
    assert any("INDEX task_waiting (lane=?" in step for step in plan(analysed, statement))


@pytest.mark.parametrize("statement", ["renew", "settle_done", "claim_lane", "claim_ids"])
def test_a_lease_is_reached_by_its_row(analysed: SqliteStore, statement: str) -> None:
    assert "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)" in plan(analysed, statement)


def test_after_a_failed_sync_nothing_is_promised_before_the_wal_was_moved(tmp_path: Path) -> None:
    with closing(SqliteStore(str(tmp_path / "tarry.db"))) as store:
        store.schedule([Request(TaskRef("k", "1"), In(0))])
        store._connections.suspect = True
        with closing(sqlite3.connect(tmp_path / "tarry.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM task").fetchone() == (1,)

            with pytest.raises(StoreBusyError, match="a sync failed"):
                store.schedule([Request(TaskRef("k", "2"), In(0))])
            assert store.claim(["k"], limit=1, lease_ms=1, holder="h").leases

        assert store.schedule([Request(TaskRef("k", "2"), In(0))])
        assert store._connections.suspect is False
        assert store.get([TaskRef("k", "2")]) != [None]
