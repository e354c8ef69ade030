"""Checkpoints on a connection and thread of their own, never in the path of a claim."""

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tarry.errors import StoreError, StoreUnavailableError
from tarry.stores.sqlite.connection import WAL_BYTES, Connections, restart_wal

_EVERY_ROWS = 2_000
_RESTART_FRAMES = 10_000
_LITTLE_FRAMES = 500
_PASSES = 6
_SYNCED_WEIGHT = 3
_SYNCED_RESTART_FRAMES = 1_500
_DESCRIPTORS = Path("/proc/self/fd")
_NOT_THIS_ONE = (errno.EBADF, errno.EINVAL)
"""What to sync a descriptor says that was closed a moment ago, or is something else by now."""


class Checkpointer:
    """Moves the WAL into the database while the writers write on.

    A passive checkpoint stops at what readers still use, so that under constant load the WAL would
    never start over; above about 10,000 frames a restart follows, with the writers queued behind
    it. It moves what they wrote since and syncs the database: so that this is little, most of it is
    moved and synced while they write on. Where commits wait for the disk a restart comes much
    sooner: to sync a file that grows costs up to twice as much as one that is written over.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._rows = 0
        self._synced = False
        self._looked = False
        self._work = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wrote(self, rows: int, *, synced: bool = False) -> None:
        """Count what one commit wrote; wakes the thread when it is worth a checkpoint."""
        if self._pid != os.getpid():
            self._begin_process()
        if not self._looked:
            self._look()
        self._rows += rows
        if synced:
            self._synced = True
            self._rows += _SYNCED_WEIGHT
        if self._rows < _EVERY_ROWS or self._stopped:
            return
        self._rows = 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tarry-checkpoint", daemon=True)
            self._thread.start()
        self._work.set()

    def _look(self) -> None:
        """Checkpoint what processes that lived too briefly to do it have left behind."""
        self._looked = True
        with suppress(OSError, StoreError):
            if Path(f"{self._connections.path}-wal").stat().st_size > WAL_BYTES:
                with self._connections.apart() as db:
                    self._checkpoint(db)

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            if self._stopped:
                return
            with suppress(StoreError), self._connections.apart() as db:
                self._checkpoint(db)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        most = _SYNCED_RESTART_FRAMES if self._synced else _RESTART_FRAMES
        self._synced = False
        frames, moved = _move(db)
        if frames <= most or moved < frames - _RESTART_FRAMES:
            return
        left = frames
        for _ in range(_PASSES):
            if left <= _LITTLE_FRAMES:
                break
            self._sync()
            before = frames
            frames, _ = _move(db)
            left = frames - before
        with self._connections.queued():
            restart_wal(db)

    def _sync(self) -> None:
        """Sync the database; SQLite itself does so only once nobody writes.

        Through a descriptor that SQLite has open: to close one of our own drops its locks.
        """
        for fd in _open_on(self._connections.path):
            try:
                os.fsync(fd)
            except OSError as error:
                if error.errno in _NOT_THIS_ONE:
                    continue
                self._connections.distrust()
                message = f"{self._connections.path}: a sync failed ({error.strerror})"
                raise StoreUnavailableError(message) from error
            return

    def close(self) -> None:
        """Stop the thread."""
        if self._pid != os.getpid():
            return
        self._stopped = True
        self._work.set()
        if self._thread is not None:
            self._thread.join(timeout=10)


def _move(db: sqlite3.Connection) -> tuple[int, int]:
    """Move what can be moved beside the writers; returns the frames there were, and the moved."""
    _, frames, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return frames, moved


def _open_on(path: str) -> Iterator[int]:
    """Yield the descriptors that this process has open on a file; none where that is not told."""
    with suppress(OSError):
        for each in _DESCRIPTORS.iterdir():
            with suppress(OSError):
                if str(each.readlink()) == path:
                    yield int(each.name)
