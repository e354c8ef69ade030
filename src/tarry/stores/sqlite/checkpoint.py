"""Checkpoints on a connection and thread of their own, never in the path of a claim."""

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from tarry.errors import StoreError
from tarry.stores.sqlite.connection import WAL_BYTES, Connections

_EVERY_ROWS = 2_000
_RESTART_FRAMES = 10_000


class Checkpointer:
    """Moves the WAL into the database while the writers write on.

    A passive checkpoint stops at what readers still use, so that under constant load the WAL would
    never start over; above about 10,000 frames a restart is done instead, with the writers queued
    behind it for a millisecond or two.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._rows = 0
        self._looked = False
        self._work = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wrote(self, rows: int) -> None:
        """Count what was written; wakes the thread when it is worth a checkpoint."""
        if self._pid != os.getpid():
            self._begin_process()
        if not self._looked:
            self._look()
        self._rows += rows
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
        _, frames, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if frames > _RESTART_FRAMES and moved >= frames - _RESTART_FRAMES:
            with self._connections.queued():
                db.execute("PRAGMA busy_timeout=20")
                db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def close(self) -> None:
        """Stop the thread."""
        if self._pid != os.getpid():
            return
        self._stopped = True
        self._work.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
