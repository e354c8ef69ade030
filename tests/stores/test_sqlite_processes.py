"""Many processes on one file: forks, wake-ups, revisions, fair writers, full disks, the WAL."""

import json
import os
import queue
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tarry.answers import ReviveResult
from tarry.clock import SYSTEM, nap
from tarry.due import In
from tarry.errors import StoreFullError, StoreRefusedError, StoreUnavailableError
from tarry.request import DeadRef, Request
from tarry.stores.sqlite.store import SqliteStore
from tarry.stores.sqlite.wake import Wakeups
from tarry.task import TaskRef
from tarry.testing.conformance.kit import Ear, claim, get, schedule

SCRIPT = Path(__file__).with_name("sqlite_child.py")
CHILD_KIND = "child.kind"
LIMIT_S = 30.0

# Forks beside threads are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


class Child:
    """A process that runs sqlite_child.py on a file."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.answer() == "ready"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def tell(self, *words: object) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the next answer."""
        return json.loads(self._lines.get(timeout=LIMIT_S))

    def ask(self, *words: object) -> Any:
        """Send a command and wait for its answer."""
        self.tell(*words)
        return self.answer()

    def signal(self, number: int) -> None:
        """Send a signal; a killed process is waited for."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(LIMIT_S)

    def end(self) -> None:
        """Let the process end, by force if need be."""
        with suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tarry.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(path), namespace="test")) as store:
        yield store


@pytest.fixture
def begin(path: Path) -> Iterator[Callable[[], Child]]:
    """Start another process on the file."""
    with ExitStack() as stack:

        def start(where: Path = path) -> Child:
            child = Child(where)
            stack.callback(child.end)
            return child

        yield start


def until(reached: Callable[[], object], what: str) -> None:
    """Wait for something that another process or thread does."""
    deadline = SYSTEM.elapsed() + int(LIMIT_S * 1e9)
    while not reached():
        assert SYSTEM.elapsed() < deadline, f"{what} did not happen within {LIMIT_S} s"
        nap(0.005)


# ---- forks


class Forked:
    """A forked child that does one thing after the other when it is told to."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        told, self._tell = os.pipe()
        self._said, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            try:
                for step in steps:
                    if not os.read(told, 1):
                        break
                    step()
                    os.write(say, b".")
            except BaseException as error:  # noqa: BLE001 - told to the parent
                os.write(say, repr(error).encode())
            finally:
                os._exit(0)
        os.close(told)
        os.close(say)

    def begin(self) -> None:
        """Let the child do the next thing."""
        os.write(self._tell, b"x")

    def step(self) -> None:
        """Let the child do the next thing, and wait until it is done."""
        self.begin()
        assert os.read(self._said, 1_000) == b"."

    def end(self) -> None:
        """Let the child end."""
        os.close(self._tell)
        os.waitpid(self.pid, 0)
        os.close(self._said)


def test_a_forked_child_and_its_parent_both_go_on(store: SqliteStore, path: Path) -> None:
    schedule(store, TaskRef("kind", "before"))
    child = Forked(
        lambda: schedule(store, TaskRef("kind", "child 1")),
        lambda: schedule(store, TaskRef("kind", "child 2")),
    )

    child.step()
    schedule(store, TaskRef("kind", "parent"))
    child.step()
    child.end()

    found = {lease.ref.key for lease in claim(store, "kind")}
    assert found == {"before", "child 1", "child 2", "parent"}
    assert store.check() == []


def test_what_a_child_writes_survives_its_parents_close(store: SqliteStore, path: Path) -> None:
    # SQLite's locks do not survive a fork: a parent that closed as the last one took the child's
    # WAL with it.
    schedule(store, TaskRef("kind", "before"))
    child = Forked(
        lambda: schedule(store, TaskRef("kind", "child 1")),
        lambda: schedule(store, TaskRef("kind", "child 2")),
    )

    child.step()
    store.close()
    child.step()
    child.end()

    with closing(SqliteStore(str(path), namespace="test")) as again:
        assert {lease.ref.key for lease in claim(again, "kind")} == {"before", "child 1", "child 2"}
        assert again.check() == []


def test_a_child_that_closes_takes_nothing_from_its_parent(store: SqliteStore) -> None:
    schedule(store, TaskRef("kind", "before"))
    child = Forked(lambda: schedule(store, TaskRef("kind", "child")), store.close)

    child.step()
    child.step()
    schedule(store, TaskRef("kind", "parent"))
    child.end()

    assert {lease.ref.key for lease in claim(store, "kind")} == {"before", "child", "parent"}


def test_a_child_draws_revisions_of_its_own(store: SqliteStore) -> None:
    ref = TaskRef("kind", "key")
    revisions = [schedule(store, ref, In(60_000)).revision]
    child = Forked(*[lambda: schedule(store, ref, In(60_000))] * 3)

    for _ in range(3):
        child.step()
        task = get(store, ref)
        assert task is not None
        revisions.append(task.revision)
        revisions.append(schedule(store, ref, In(60_000)).revision)
    child.end()

    assert revisions == sorted(set(revisions))


def test_a_fork_waits_for_the_calls_of_other_threads(store: SqliteStore) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    counts = [0, 0]

    def work(name: int) -> None:
        try:
            while not stop.is_set():
                schedule(store, TaskRef("kind", f"{name}-{counts[name]}"))
                counts[name] += 1
        except BaseException as error:  # noqa: BLE001 - shown by the assert
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for n in range(10):
        child = Forked(lambda n=n: schedule(store, TaskRef("kind", f"child-{n}")))  # type: ignore[misc]
        child.step()
        child.end()
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)

    assert failures == []
    assert store.counts()["kind"].scheduled == sum(counts) + 10
    assert store.check() == []


def test_a_child_forked_in_the_middle_of_a_call_is_told_so(store: SqliteStore) -> None:
    read, write = os.pipe()
    with store._connections.reading():
        # As a fork in C does, that tells nobody before.
        store._connections.before_fork = lambda: None  # type: ignore[method-assign]
        pid = os.fork()
        if pid == 0:
            try:
                schedule(store)
            except StoreRefusedError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    os.close(write)

    assert b"open the store after the fork" in os.read(read, 1_000)
    os.close(read)
    assert schedule(store).revision > 0


# ---- wake-ups


def test_a_schedule_in_one_process_wakes_a_watch_in_another(
    store: SqliteStore, begin: Callable[[], Child]
) -> None:
    child = begin()
    assert child.ask("watch")

    answer = schedule(store, due=In(500))

    assert child.answer() == {"heard": answer.due}


def test_wake_ups_go_both_ways(store: SqliteStore, begin: Callable[[], Child]) -> None:
    child, ear = begin(), Ear(store)

    child.ask("schedule", "key", 500)
    child.ask("schedule", "far-away", 500_000)
    child.ask("schedule", "another", 700)

    task = get(store, TaskRef(CHILD_KIND, "key"))
    assert task is not None
    heard = ear.heard(2)
    assert heard[0] == task.due
    assert len(heard) == 2


def test_who_comes_to_listen_at_the_same_moment_is_heard_too(
    store: SqliteStore, path: Path
) -> None:
    # Two sockets within one tick of the file system's clock: the second changed no time stamp.
    for n in range(30):
        first = Wakeups(str(path))
        undo = first.watch(lambda _due: None)
        store._wakeups.notify(0)
        heard = threading.Event()
        second = Wakeups(str(path))
        undo_second = second.watch(lambda _due, heard=heard: heard.set())  # type: ignore[misc]

        store._wakeups.notify(n)

        assert heard.wait(5.0), f"round {n}"
        for each in (undo, undo_second):
            each()
        first.close()
        second.close()


def test_the_socket_of_a_killed_process_is_swept_away(
    store: SqliteStore, path: Path, begin: Callable[[], Child]
) -> None:
    folder = Path(f"{path}-wake")
    dead, alive = begin(), begin()
    for child in (dead, alive):
        child.ask("watch")
    assert len(list(folder.iterdir())) == 2

    dead.signal(signal.SIGKILL)
    answer = schedule(store)

    assert alive.answer() == {"heard": answer.due}
    [left] = folder.iterdir()
    assert left.name.startswith(f"{alive.process.pid}-")


def test_a_process_that_ends_well_leaves_no_socket(
    store: SqliteStore, path: Path, begin: Callable[[], Child]
) -> None:
    child = begin()
    child.ask("watch")

    child.end()

    assert list(Path(f"{path}-wake").iterdir()) == []


def test_a_path_deeper_than_a_sockets_name_may_be_long(
    tmp_path: Path, begin: Callable[..., Child]
) -> None:
    deep = tmp_path
    for n in range(6):
        deep = deep / f"{n}-{'folder' * 6}"
    deep.mkdir(parents=True)
    child = begin(deep / "tarry.db")
    child.ask("watch")

    with closing(SqliteStore(str(deep / "tarry.db"), namespace="test")) as store:
        ear = Ear(store)
        answer = schedule(store)

        assert child.answer() == {"heard": answer.due}
        assert ear.heard(1) == [answer.due]
        assert all(len(str(p)) > 108 for p in Path(f"{store.path}-wake").iterdir())


def test_a_listener_that_does_not_listen_stops_nobody(store: SqliteStore, path: Path) -> None:
    folder = Path(f"{path}-wake")
    folder.mkdir()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as deaf:
        deaf.bind(str(folder / "1-deaf.sock"))
        began = SYSTEM.elapsed()

        for n in range(2_000):
            store._wakeups.notify(n)

        assert SYSTEM.elapsed() - began < 5e9
        assert (folder / "1-deaf.sock").exists()
        deaf.setblocking(False)
        received = 0
        with suppress(BlockingIOError):
            while deaf.recv(64):
                received += 1
        assert 0 < received < 2_000


def test_where_no_folder_for_sockets_can_be_had_nothing_fails(
    store: SqliteStore, path: Path
) -> None:
    Path(f"{path}-wake").touch()
    ear = Ear(store)

    answer = schedule(store)

    assert ear.heard(1) == [answer.due]


def test_a_folder_of_sockets_that_was_swept_away_is_made_again(
    store: SqliteStore, path: Path, begin: Callable[[], Child]
) -> None:
    folder = Path(f"{path}-wake")
    folder.mkdir()
    schedule(store, TaskRef("kind", "1"))
    folder.rmdir()
    schedule(store, TaskRef("kind", "2"))
    child = begin()
    child.ask("watch")

    answer = schedule(store, TaskRef("kind", "3"))

    assert child.answer() == {"heard": answer.due}


# ---- revisions


def test_revisions_of_one_ref_grow_over_processes_and_crashes(begin: Callable[[], Child]) -> None:
    revisions: list[int] = []
    children = [begin(), begin()]

    for n in range(60):
        child = children[n % 2]
        revisions.append(child.ask("schedule", "key", 60_000))
        if n % 7 == 3:
            child.signal(signal.SIGKILL)
            children[n % 2] = begin()
        if n % 11 == 5:
            # In the middle of a call, perhaps: its revision may or may not be used up.
            child = children[n % 2]
            child.tell("schedule", "key", 60_000)
            child.signal(signal.SIGKILL)
            children[n % 2] = begin()

    assert revisions == sorted(set(revisions))


def test_revisions_of_one_ref_grow_after_it_was_gone(
    store: SqliteStore, begin: Callable[[], Child]
) -> None:
    child = begin()
    first = child.ask("schedule", "key", 0)
    assert child.ask("drain") == ["key"]
    assert get(store, TaskRef(CHILD_KIND, "key")) is None

    second = schedule(store, TaskRef(CHILD_KIND, "key")).revision
    assert child.ask("drain") == ["key"]
    third = child.ask("schedule", "key", 0)

    assert first < second < third


# ---- writers


def test_a_stopped_process_at_the_head_of_the_queue_is_overtaken(
    store: SqliteStore, begin: Callable[[], Child]
) -> None:
    schedule(store, TaskRef("kind", "before"))
    child = begin()
    child.ask("hold_side_lock")
    child.signal(signal.SIGSTOP)

    took = []
    for n in range(5):
        began = SYSTEM.elapsed()
        schedule(store, TaskRef("kind", str(n)))
        took.append((SYSTEM.elapsed() - began) / 1e9)

    assert took[0] < 5.0
    assert sum(took[1:]) < 5.0
    assert len(claim(store, "kind")) == 6


def test_a_lock_file_that_cannot_be_had_only_costs_fairness(tmp_path: Path) -> None:
    (tmp_path / "tarry.db-lock").mkdir()

    with closing(SqliteStore(str(tmp_path / "tarry.db"), namespace="test")) as store:
        assert schedule(store).revision > 0


def test_nobody_starves_among_four_writers(begin: Callable[[], Child]) -> None:
    children = [begin() for _ in range(4)]

    for n, child in enumerate(children):
        child.tell("write_for", f"{n}-", 1_500)
    counts = [child.answer() for child in children]

    assert min(counts) >= 2, counts
    assert max(counts) <= 20 * min(counts), counts


def test_eight_processes_may_open_a_new_file_at_once(path: Path) -> None:
    for n in range(5):
        new = path.with_name(f"new-{n}.db")
        told, tell = os.pipe()
        said, say = os.pipe()
        pids = []
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                os.close(tell)
                os.read(told, 1)
                try:
                    SqliteStore(str(new), namespace="test").close()
                except BaseException as error:  # noqa: BLE001 - told to the parent
                    os.write(say, repr(error).encode() + b"\n")
                finally:
                    os._exit(0)
            pids.append(pid)
        for fd in (told, say, tell):
            os.close(fd)
        for pid in pids:
            os.waitpid(pid, 0)
        with closing(os.fdopen(said)) as words:
            assert words.read() == ""

        with closing(SqliteStore(str(new), namespace="test")) as opened:
            assert opened.check() == []


# ---- a disk without room


def test_a_file_that_may_not_grow_refuses_and_goes_on_later(
    store: SqliteStore, begin: Callable[[], Child]
) -> None:
    child = begin()
    child.ask("schedule", "before", 0)
    child.ask("limit_file_size", 300_000)

    accepted, error, message = child.ask("fill", "a", 20_000)

    assert error in {"StoreFullError", "StoreUnavailableError"}, message
    assert "sqlite" not in error.lower()
    assert accepted > 0
    assert child.ask("check") == []
    child.ask("limit_file_size", 0)
    child.ask("schedule", "after", 0)
    keys = {"before", "after"} | {f"a{n}" for n in range(accepted)}
    assert set(child.ask("drain")) == keys
    assert store.check() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB; skips where none can be made."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mount], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk_refuses_and_goes_on_later(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 5_000_000)
    path = small_disk / "tarry.db"
    with closing(SqliteStore(str(path), namespace="test")) as store:
        accepted = 0
        with suppress(StoreFullError):
            while accepted < 10_000:
                request = Request(TaskRef("kind", str(accepted)), In(0), b"x" * 20_000)
                store.schedule([request])
                accepted += 1
        for _ in range(3):
            with pytest.raises(StoreFullError, match="disk is full"):
                schedule(store, TaskRef("kind", "refused"), payload=b"x" * 200_000)

        ballast.unlink()

        schedule(store, TaskRef("kind", "after"))
        assert store.check() == []
        keys = {lease.ref.key for lease in claim(store, "kind", limit=1_000)}
        assert keys == {str(n) for n in range(accepted)} | {"after"}
    assert 0 < accepted < 10_000


def test_an_error_names_no_room_and_changes_nothing(small_disk: Path) -> None:
    path = small_disk / "tarry.db"
    with closing(SqliteStore(str(path), namespace="test")) as store:
        before = schedule(store, TaskRef("kind", "key"), In(60_000))

        with pytest.raises(StoreFullError):
            schedule(store, TaskRef("kind", "key"), In(0), payload=b"x" * 9_000_000)

        task = get(store, TaskRef("kind", "key"))
        assert task is not None
        assert task.revision == before.revision
        assert store.revive([DeadRef(TaskRef("kind", "key"))]) == [ReviveResult.ABSENT]


# ---- the WAL

MIB = 1 << 20


def wal_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def churn(store: SqliteStore, rounds: int, *, limit: int = 500) -> None:
    """Schedule, claim and settle *rounds* batches."""
    from tarry.attempt import DONE
    from tarry.request import Settlement

    for _ in range(rounds):
        store.schedule(
            [Request(TaskRef("kind", str(n)), In(0), b"p" * 1_000) for n in range(limit)]
        )
        leases = claim(store, "kind", limit=limit)
        store.settle([Settlement(lease, DONE) for lease in leases])


def test_the_wal_stays_bounded_under_a_constant_load(store: SqliteStore, path: Path) -> None:
    largest = 0
    for _ in range(60):
        churn(store, 2)
        largest = max(largest, wal_size(path))

    # 60,000 tasks through a kilobyte each, twice over: without checkpoints about 300 MiB.
    assert largest < 100 * MIB


def test_a_long_reader_is_waited_out_and_the_wal_shrinks_again(
    store: SqliteStore, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM task").fetchone()
        churn(store, 50)
        during = wal_size(path)
        reader.execute("COMMIT")
    assert during > 70 * MIB

    def shrunk() -> bool:
        churn(store, 5)
        return wal_size(path) <= 64 * MIB

    until(shrunk, "a smaller WAL")
    assert store.check() == []


def test_short_lived_processes_beside_an_idle_one_leave_a_bounded_wal(
    store: SqliteStore, path: Path
) -> None:
    schedule(store, TaskRef("idle", "key"), In(600_000))
    sizes = []
    for n in range(60):
        with closing(SqliteStore(str(path), namespace="test")) as brief:
            brief.schedule(
                [
                    Request(TaskRef("kind", f"{n}-{m}"), In(600_000), b"p" * 2_000)
                    for m in range(500)
                ]
            )
        sizes.append(wal_size(path))

    # 60 times 2 MiB.
    assert max(sizes) < 72 * MIB


def test_descriptors_do_not_pile_up(store: SqliteStore) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    churn(store, 3)
    before = open_files()

    churn(store, 20)
    until(lambda: open_files() <= before + 3, "the end of a checkpoint")


def test_the_processes_limit_of_open_files_is_an_error_of_tarry(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(SqliteStore(str(path), namespace="test")) as store:
        schedule(store, TaskRef("kind", "1"))
        store._connections._close_idle()
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        taken: list[int] = []
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            with pytest.raises(StoreUnavailableError, match="cannot be opened"):
                schedule(store, TaskRef("kind", "2"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)

        assert schedule(store, TaskRef("kind", "3")).revision > 0
