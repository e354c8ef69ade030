"""The SQLite store keeps every promise of a store, and says in which way."""

import errno
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tarry.answers import CancelResult
from tarry.attempt import DONE
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import (
    RefError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.sqlite import checkpoint
from tarry.stores.sqlite.record import SQL
from tarry.stores.sqlite.store import SqliteStore
from tarry.stores.store import RECLAIM_LIMIT, Claimed, Filter
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
from tarry.testing.proof.vfs import Recording, recorded, unavailable


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


def test_a_claim_says_how_long_it_stood_in_the_queue(
    store: SqliteStore, clock: ManualClock
) -> None:
    schedule(store)
    ask = partial(store.claim, [KIND], limit=1, lease_ms=LEASE_MS, holder="holder")
    lock = store._connections.writer
    entered, answers = threading.Event(), list[Claimed]()

    class Turn:
        """The lock of the writers, which says that somebody waits for it."""

        def acquire(self, *, timeout: float = -1) -> bool:
            entered.set()
            return lock.acquire(timeout=timeout)

        release = staticmethod(lock.release)

    with lock:
        store._connections.writer = Turn()  # type: ignore[assignment]
        thread = threading.Thread(target=lambda: answers.append(ask()))
        thread.start()
        assert entered.wait(10)
        clock.advance(70)
    thread.join(10)

    [claimed] = answers
    assert len(claimed.leases) == 1
    assert claimed.waited == 70_000_000
    assert ask().waited == 0


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


# ---- a sync that fails


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """A disk whose next syncs can be made to fail."""
    why = unavailable()
    if why:
        pytest.skip(why)
    with recorded(str(tmp_path)) as recording:
        yield recording


@pytest.fixture
def doubtful(path: Path, recording: Recording) -> Iterator[SqliteStore]:
    """A store one of whose syncs has failed."""
    with closing(SqliteStore(str(path))) as store:
        schedule(store)
        recording.fails_in = 1
        with pytest.raises(StoreUnavailableError, match="disk I/O error"):
            schedule(store, TaskRef(KIND, "not written"))
        yield store


def written_again(recording: Recording, since: int) -> int:
    """Return how often the WAL was written as a whole: not its 32 bytes of header alone."""
    return sum(
        (step.what, step.name, step.offset) == ("write", "tarry.db-wal", 0) and len(step.data) > 32
        for step in recording.steps[since:]
    )


def test_after_a_failed_sync_nothing_is_promised_before_the_wal_was_written_again(
    doubtful: SqliteStore, path: Path, recording: Recording
) -> None:
    begun = len(recording.steps)
    recording.fails_in = 1

    with pytest.raises(StoreUnavailableError, match=r"a sync failed.*this call wrote nothing"):
        schedule(doubtful, TaskRef(KIND, "2"))
    assert get(doubtful, TaskRef(KIND, "2")) is None
    assert claim(doubtful)
    assert doubtful._connections.doubt.stands()

    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM task").fetchone() == (1,)
        schedule(doubtful, TaskRef(KIND, "2"))
    assert not doubtful._connections.doubt.stands()
    assert written_again(recording, begun) == 2


def test_all_who_use_the_file_know_of_a_failed_sync(doubtful: SqliteStore, path: Path) -> None:
    with closing(SqliteStore(str(path))) as other:
        claim(other)
        assert other._connections.doubt.stands()

        schedule(other)
        assert not other._connections.doubt.stands()
        assert not doubtful._connections.doubt.stands()


HEALS = """
import sys
from tarry.due import In
from tarry.request import Request
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef

store = SqliteStore(sys.argv[1])
with store._connections.queued():
    print(store._connections.doubt.stands())
store.schedule([Request(TaskRef("kind", "1"), In(0))])
print(store._connections.doubt.stands())
"""


def test_another_process_heals_what_it_was_told_of(doubtful: SqliteStore, path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", HEALS, path], check=True, capture_output=True, timeout=30
    )

    assert said.stdout.split() == [b"True", b"False"]
    assert not doubtful._connections.doubt.stands()


def test_the_doubt_outlives_the_process_that_cannot_heal(path: Path, recording: Recording) -> None:
    with closing(SqliteStore(str(path))) as store, closing(sqlite3.connect(path)) as another:
        schedule(store)
        another.execute("SELECT * FROM task").fetchone()
        store._connections.doubt.begin()
        recording.fails_in = 1
        store.close()

    with closing(SqliteStore(str(path))) as store, store._connections.queued():
        assert store._connections.doubt.stands()


def test_a_fork_does_not_forget_a_failed_sync(path: Path) -> None:
    with closing(SqliteStore(str(path))) as store:
        Path(f"{path}-lock").unlink()
        Path(f"{path}-lock").mkdir()  # no byte to be had: only this process knows
        store._connections._close_idle()
        schedule(store)
        store._connections.doubt.begin()

        child = os.fork()
        if not child:
            os._exit(0 if store._connections.doubt.stands() else 1)
        assert os.waitpid(child, 0) == (child, 0)

        assert store._connections.doubt.stands()
        schedule(store)
        assert not store._connections.doubt.stands()


def test_a_checkpoint_whose_sync_fails_is_not_passed_over(
    store: SqliteStore, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(store.path)) as other:
        schedule(other)
        claim(other)
        monkeypatch.setattr(checkpoint, "WAL_BYTES", 0)

        recording.fails_in = 1
        other._checkpointer._looked = False
        other._checkpointer.wrote(1)

        assert other._connections.doubt.stands()
        recording.steps.clear()
        other._checkpointer._looked = False
        other._checkpointer.wrote(1)
        assert [step.name for step in recording.steps][:2] == ["tarry.db-wal"] * 2
        assert not other._connections.doubt.stands()


def checkpoint_now(store: SqliteStore) -> None:
    store._checkpointer._looked = False
    store._checkpointer.wrote(1)


@pytest.fixture
def overgrown(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """Return a store whose WAL is large enough for all that a checkpoint does."""
    schedule(store)
    for limit in ("WAL_BYTES", "_SYNCED_RESTART_FRAMES", "_RESTART_FRAMES", "_LITTLE_FRAMES"):
        monkeypatch.setattr(checkpoint, limit, 0)
    return store


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_what_a_checkpoint_has_moved_is_synced_before_writers_wait_for_it(
    overgrown: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def sync(fd: int) -> None:
        assert Path(f"/proc/self/fd/{fd}").readlink() == Path(overgrown.path)
        assert not overgrown._connections.writer.locked()
        steps.append("sync")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(checkpoint, "restart_wal", lambda _: steps.append("restart"))
    checkpoint_now(overgrown)

    assert steps == ["sync", "restart"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_a_sync_that_fails_before_a_restart_is_not_passed_over(
    overgrown: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(checkpoint, "restart_wal", lambda _: pytest.fail("restarted"))
    checkpoint_now(overgrown)

    assert overgrown._connections.doubt.stands()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_a_descriptor_that_was_closed_meanwhile_is_not_taken_for_a_broken_disk(
    overgrown: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted: list[object] = []

    def fail(_: int) -> None:
        raise OSError(errno.EBADF, "closed")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(checkpoint, "restart_wal", restarted.append)
    checkpoint_now(overgrown)

    assert len(restarted) == 1
    assert not overgrown._connections.doubt.stands()


def test_on_a_full_disk_a_sync_that_fails_is_not_passed_over(
    path: Path, recording: Recording
) -> None:
    with closing(SqliteStore(str(path))) as store:
        schedule(store)
        [full] = store._connections._idle["full"]
        full.execute("PRAGMA max_page_count=1").fetchone()  # no more than there are

        with pytest.raises(StoreFullError):
            schedule(store, payload=b"x" * 100_000)
        assert not store._connections.doubt.stands()

        claim(store)
        recording.fails_in = 1
        with pytest.raises(StoreFullError):
            schedule(store, payload=b"x" * 100_000)
        assert store._connections.doubt.stands()


def test_a_sync_that_fails_as_the_file_is_closed_is_made_up_for(
    path: Path, recording: Recording
) -> None:
    with closing(SqliteStore(str(path))) as store:
        schedule(store)
        claim(store)
        recording.fails_in = 1
    [failed] = [n for n, step in enumerate(recording.steps) if step.what == "failed sync"]

    after = [(step.what, step.name) for step in recording.steps[failed + 1 :]]
    assert after[:2] == [("write", "tarry.db-wal"), ("sync", "tarry.db-wal")]
    assert after[-1] == ("delete", "tarry.db-wal")
    assert Path(f"{path}-lock").read_bytes() == b"\0"
