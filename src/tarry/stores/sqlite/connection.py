"""Connections to one database file: per process, one thread at a time, writers in a fair queue."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import ModuleType, TracebackType

from tarry.clock import SYSTEM, nap
from tarry.errors import (
    StoreBusyError,
    StoreClosedError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.stores.sqlite import forking
from tarry.stores.sqlite.doubt import Doubt
from tarry.stores.sqlite.errors import is_of_the_disk, mapped, translate

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # pragma: no cover - no flock outside Unix
    fcntl = None

BUSY_MS = 5_000
_SIDE_WAIT_NS = 1_000_000_000
_STOPPED_WAIT_NS = 10_000_000
WAL_BYTES = 64 << 20
"""A WAL that has grown beyond this is cut back to it."""
_CACHE_KIB = 8_000
_RESTART_MS = 20


class Connections(forking.Forkable):
    """A pool of connections for each durability, and the write lock.

    `full` is for what callers are promised (a commit waits for the disk), `normal` for what may be
    forgotten by a power cut at the price of a second attempt. A fork finds none open (`forking`).
    """

    def __init__(self, path: str, *, full: str = "FULL") -> None:
        self.path = path
        self._sync = {"full": full, "normal": "NORMAL"}
        self._closed = False
        self._inherited: list[object] = []
        self.doubt = Doubt()
        self._begin_process()
        forking.enter(self)

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._idle: dict[str, list[sqlite3.Connection]] = {"full": [], "normal": []}
        self.lending = forking.Lending()
        self.writer = threading.Lock()
        self._siding = threading.Lock()
        self._side: int | None = None
        self.doubt.part()
        self._patience_ns = _SIDE_WAIT_NS

    def own(self) -> None:
        """Raise if there is no using the file from here."""
        if self._closed:
            message = f"{self.path}: the store was closed"
            raise StoreClosedError(message)
        if self._pid != os.getpid():
            self.after_fork()
        if self._inherited:
            message = (
                f"{self.path} was in use when this process was forked, and SQLite does not "
                "survive that; nothing was written; open the store after the fork"
            )
            raise StoreRefusedError(message)

    def before_fork(self) -> None:
        """Wait until nobody uses a connection, and close them all."""
        self.lending.stop()
        if not self.lending.count:
            self._close_idle()

    def after_fork(self) -> None:
        """Go on in the parent, begin anew in the child."""
        if self._pid == os.getpid():
            self.lending.go_on()
            return
        if self.lending.count or any(self._idle.values()):
            # Never used, and never closed: that would drop locks.
            self._inherited += [self._idle]
        self._begin_process()

    def reading(self) -> "_Reading":
        """Lend a connection for reads; each statement sees its own moment."""
        return _Reading(self)

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection of its own for a checkpoint, closed at the end of the block."""
        self.own()
        lending = self.lending
        lending.begin()
        try:
            with mapped(self.path), closing(self._open("NORMAL")) as db:
                with self.queued():
                    # A checkpoint that is cut short needs the whole WAL.
                    self._heal_with(db)
                try:
                    yield db
                except sqlite3.Error as error:
                    self._doubt(error)
                    raise
        finally:
            lending.end()

    def _doubt(self, error: sqlite3.Error) -> None:
        """Tell all who use the file of a sync that may have failed outside of the queue."""
        if is_of_the_disk(error):
            self.distrust()

    def distrust(self) -> None:
        """Tell all who use the file that a sync has failed."""
        with suppress(StoreClosedError), self.queued():
            self.doubt.begin()

    def writing(self, durability: str) -> "_Writing":
        """Lend a connection inside a write transaction, committed at the end of the block."""
        return _Writing(self, durability)

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Hold the writers' queue without a transaction, as a checkpoint does."""
        with self.writer:
            held = self.queue_up()
            try:
                yield
            finally:
                if held:
                    self.leave_queue()

    def take(self, durability: str) -> sqlite3.Connection:
        """Return a connection that nobody uses."""
        idle = self._idle[durability]
        return idle.pop() if idle else self._open(self._sync[durability])

    def give_back(self, durability: str, db: sqlite3.Connection) -> None:
        """Put a connection back, or close it if it is in no state to be used again."""
        try:
            reusable = not db.in_transaction and not self._closed
        except sqlite3.ProgrammingError:
            return
        if reusable:
            self._idle[durability].append(db)
        else:
            db.close()

    def _open(self, synchronous: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path,
            timeout=BUSY_MS / 1_000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            db.execute(f"PRAGMA synchronous={synchronous}")
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
            db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        except BaseException:
            db.close()
            raise
        return db

    def queue_up(self) -> bool:
        """Take the side lock: SQLite's own waiting lets one process starve the others.

        It is only a queue. Who holds it too long (a stopped process) is overtaken; BEGIN IMMEDIATE
        is what keeps writers apart.
        """
        if self._closed:
            self.own()
        if fcntl is None:  # pragma: no cover - no flock outside Unix
            return False
        if self._side is None:
            self._open_side()
        if self._side is None:
            return False
        try:
            fcntl.flock(self._side, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait_in_queue(self._side, fcntl)
        return True

    def _open_side(self) -> None:
        """Open the file of the side lock, and share the doubt in it."""
        with self._siding, suppress(OSError):
            if self._side is None:
                flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                side = os.open(f"{self.path}-lock", flags, 0o600)
                self.doubt.share(side)
                self._side = side

    def _wait_in_queue(self, side: int, fcntl: ModuleType) -> bool:
        deadline = SYSTEM.elapsed() + self._patience_ns
        pause = 50e-6
        while SYSTEM.elapsed() < deadline:
            nap(pause)
            with suppress(BlockingIOError):
                fcntl.flock(side, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._patience_ns = _SIDE_WAIT_NS
                return True
            pause = min(pause * 1.5, 1e-3)
        # Whoever stands there has stopped: not every write waits that long for it.
        self._patience_ns = _STOPPED_WAIT_NS
        return False

    def leave_queue(self) -> None:
        """Let the next writer go."""
        if fcntl is not None and self._side is not None:
            fcntl.flock(self._side, fcntl.LOCK_UN)

    def heal(self) -> None:
        """Write the WAL once more before anything is promised again; inside of a transaction."""
        try:
            self.doubt.end(f"{self.path}-wal")
        except OSError as error:
            message = (
                f"{self.path}: a sync failed, and so does writing the WAL once more "
                f"({error.strerror}); this call wrote nothing; look after the disk"
            )
            raise StoreUnavailableError(message) from error

    def heal_joined(self) -> None:
        """Heal, if there is doubt, for a caller who holds SQLite's write lock.

        Not in the queue: its first may be waiting for that very lock.
        """
        if self._side is None:
            self._open_side()
        if self.doubt.stands():
            self.heal()

    def _heal_with(self, db: sqlite3.Connection) -> None:
        """Heal, if there is doubt, in a transaction of its own."""
        if self.doubt.stands():
            db.execute("BEGIN IMMEDIATE")
            try:
                self.heal()
            finally:
                db.execute("ROLLBACK")

    def _close_idle(self) -> None:
        if self._side is not None and (idle := self._idle["normal"] or self._idle["full"]):
            self._move_wal(idle[-1])
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
        self.doubt.part()
        if self._side is not None:
            os.close(self._side)
            self._side = None

    def _move_wal(self, db: sqlite3.Connection) -> None:
        """Do what SQLite does as the last connection is closed: it says nothing if a sync fails."""
        with suppress(sqlite3.Error, StoreUnavailableError):
            self._heal_with(db)
            try:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                if is_of_the_disk(error):
                    self.doubt.begin()
                    self._heal_with(db)

    def close(self) -> None:
        """Close what this process opened; who is still at work closes when it is done."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return
        if self.writer.acquire(timeout=BUSY_MS / 1_000):
            try:
                self._close_idle()
            finally:
                self.writer.release()


def restart_wal(db: sqlite3.Connection) -> None:
    """Move the WAL into the database, so that it starts over, unless readers are in the way."""
    db.execute(f"PRAGMA busy_timeout={_RESTART_MS}")
    try:
        db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout={BUSY_MS}")


class _Lent:
    """A connection in use for the length of a block; sqlite3's errors leave it as tarry's.

    Written out instead of as a generator: it stands in the path of every call.
    """

    __slots__ = ("_db", "_durability", "_lending", "_pool")

    def __init__(self, pool: Connections, durability: str) -> None:
        self._pool = pool
        self._durability = durability
        self._db: sqlite3.Connection | None = None

    def _begin(self) -> sqlite3.Connection:
        pool = self._pool
        pool.own()
        self._lending = pool.lending
        self._lending.begin()
        try:
            self._db = pool.take(self._durability)
        except BaseException as error:
            self._lending.end()
            self._raise(error)
            raise
        return self._db

    def _end(self) -> None:
        try:
            if self._db is not None:
                self._pool.give_back(self._durability, self._db)
        finally:
            self._lending.end()

    def _raise(self, error: BaseException) -> None:
        """Raise what an error of sqlite3 means; do nothing for any other."""
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise translate(error, self._pool.path) from error


class _Reading(_Lent):
    """A connection for reads."""

    __slots__ = ()

    def __init__(self, pool: Connections) -> None:
        super().__init__(pool, "normal")

    def __enter__(self) -> sqlite3.Connection:
        return self._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if error is not None:
            self._raise(error)


class _Writing(_Lent):
    """A write transaction: begun in the writers' queue, committed or rolled back at the end."""

    __slots__ = ("_held",)

    def __enter__(self) -> sqlite3.Connection:
        self._held = False
        pool = self._pool
        pool.own()
        pool.writer.acquire()
        try:
            db = self._begin()
        except BaseException:
            pool.writer.release()
            raise
        try:
            self._held = pool.queue_up()
            db.execute("BEGIN IMMEDIATE")
            if self._durability == "full" and pool.doubt.stands():
                pool.heal()
        except BaseException as error:
            self._give_up(db, error)
            raise
        return db

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        db = self._db
        assert db is not None  # noqa: S101 - lent by __enter__
        if error is None:
            try:
                db.execute("COMMIT")
            except sqlite3.Error as failed:
                error = failed
        if error is None:
            self._leave()
        else:
            self._give_up(db, error)

    def _give_up(self, db: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            self._look_into(db, error)
        self._leave()
        self._raise(error)

    def _look_into(self, db: sqlite3.Connection, error: sqlite3.Error) -> None:
        """Do what can be done for the writes to come."""
        meaning = type(translate(error, self._pool.path))
        if meaning is StoreFullError and not self._pool.doubt.stands():
            # What is left of the disk may be the WAL itself: let it start over.
            try:
                restart_wal(db)
            except sqlite3.Error as another:
                error = another
        elif meaning is not StoreBusyError:
            # Nobody knows what a handle has seen that met such an error.
            db.close()
        if is_of_the_disk(error):
            self._pool.doubt.begin()

    def _leave(self) -> None:
        try:
            if self._held:
                self._pool.leave_queue()
            self._end()
        finally:
            self._pool.writer.release()
