"""An uptime: the real stores at work on recorded files, from power on to an orderly end.

In every other one a sync fails: the call under way is not answered, and life goes on.
"""

import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tarry.errors import StoreError
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.store import SqliteStore
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import Answered, Asked, Entry, Started
from tarry.testing.proof import vfs
from tarry.testing.proof.deeds import Deeds
from tarry.testing.proof.disk import Disk

FILE = "tarry.db"
_DEEDS = 24
_SYNCS = 24
"""About as many as there are."""
_NEVER = sys.maxsize
_OTHERS = ("checkpoint", "checkpoint", "restart")

Files = Mapping[str, bytes]
Open = Callable[..., SqliteStore]
"""Opens the store under test: path, clock and rng are given."""

_TABLES = (
    "SELECT * FROM task ORDER BY id",
    "SELECT * FROM behind ORDER BY id",
    "SELECT * FROM ended ORDER BY id",
    "SELECT * FROM revision",
    "SELECT kind FROM lane WHERE paused ORDER BY kind",
)
_REVISION, _TOKEN = 4, 15
"""Columns of `task`; the revision's is the same in `behind` and `ended`."""

State = tuple[tuple[Any, ...], ...]
EMPTY: State = ((), (), (), ((0, 0),), ())
"""What a new file holds, table by table."""


def look(db: sqlite3.Connection) -> State:
    """Return all that a file holds."""
    return tuple(tuple(db.execute(table).fetchall()) for table in _TABLES)


class Past(msgspec.Struct, frozen=True):
    """What there is when the power comes on."""

    files: Files = {}
    state: State = EMPTY
    entries: tuple[Entry, ...] = ()
    now: int = ManualClock().now()

    def first_op(self) -> int:
        """Return a number that no operation of the ledger has had."""
        return max((e.op for e in self.entries if isinstance(e, Asked)), default=0) + 1


class Call(msgspec.Struct):
    """A call of the store: how many steps came before it and up to its answer, and the result."""

    verb: str
    begun: int
    done: int = 0
    answers: int = 0
    state: State = ()


class Uptime:
    """A producer's and a worker's store do what chance says; steps, calls and ledger are kept."""

    def __init__(self, folder: str, past: Past, make: Open, seed: str) -> None:
        self.past = past
        self.calls: list[Call] = []
        self.entries: list[tuple[int, Entry]] = []
        """What the ledger says, with the number of steps before it."""
        self.clock = ManualClock(past.now)
        self._chance = random.Random(seed)  # noqa: S311 - a seed of the campaign
        self._path = f"{folder}/{FILE}"
        self._make = partial(make, self._path, clock=self.clock, rng=self._chance)
        self._deeds = Deeds(self.clock, self._chance, self._note, first_op=past.first_op())
        with vfs.recorded(folder) as self._recording:
            self.steps = self._recording.steps
            self._run()

    def failed(self) -> int:
        """Return how many steps there were up to the sync that failed, 0 if none did."""
        failed = (at for at, step in enumerate(self.steps, 1) if step.what == "failed sync")
        return next(failed, 0)

    def _run(self) -> None:
        self._call("open", self._open)
        fails = self._chance.choice((_NEVER, _NEVER, self._chance.randint(1, _SYNCS), 0))
        self._recording.fails_in = fails
        for _ in range(_DEEDS):
            if not fails and self._is_relaxed(self.calls[-1]):
                # Here it harms most: what is not durable lies before what will be promised.
                self._recording.fails_in = fails = 1
            match self._chance.choice((self._deeds.choose(),) * 7 + _OTHERS):
                case "checkpoint":
                    self._call("checkpoint", self._checkpoint)
                case "restart":
                    self._call("restart", self._restart)
                case verb:
                    self._call(verb, partial(self._deeds.do, verb))
        self._call("close", self._close, self.calls[-1].state)

    def _is_relaxed(self, call: Call) -> bool:
        """Say whether a call has written and waited for no disk."""
        made = {step.what for step in self.steps[call.begun : call.done]}
        return made == {"write"}

    def _call(self, verb: str, do: Callable[[], None], state: State | None = None) -> None:
        noted = len(self.entries)
        call = Call(verb, len(self.steps))
        try:
            do()
        except StoreError:
            if not self.failed():
                raise
            call.verb = "failed"
            self.calls.append(Call("failed", call.begun, _NEVER, state=self._recovered()))
        call.done = len(self.steps)
        call.answers = sum(isinstance(entry, Answered) for _, entry in self.entries[noted:])
        call.state = look(self._eyes) if state is None else state
        self.calls.append(call)

    def _recovered(self) -> State:
        """Return what the file would hold if all that was written had reached the disk.

        A transaction whose sync failed is rolled back, but after a cut it may be there, complete.
        """
        disk = Disk(self.past.files)
        for step in self.steps:
            disk.take(step)
        with tempfile.TemporaryDirectory(prefix="tarry-power-") as folder:
            for name, content in disk.cached().items():
                (Path(folder) / name).write_bytes(content)
            with closing(sqlite3.connect(f"{folder}/{FILE}", isolation_level=None)) as db:
                return look(db)

    def _note(self, entry: Entry) -> None:
        self.entries.append((len(self.steps), entry))

    def _open(self) -> None:
        deeds = self._deeds
        deeds.producer, deeds.worker = self._make(), self._make()
        self._eyes = sqlite3.connect(self._path, isolation_level=None)

    def _close(self) -> None:
        self._eyes.close()
        self._deeds.producer.close()
        self._deeds.worker.close()

    def _restart(self) -> None:
        self._close()
        self._open()

    def _checkpoint(self) -> None:
        """Do what the store's own checkpointer does now and then, on a thread of its own."""
        mode = self._chance.choice(("PASSIVE", "RESTART", "TRUNCATE"))
        with closing(Connections(self._path)) as connections, connections.apart() as db:
            db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()


def revisions(states: list[State], entries: tuple[Entry, ...]) -> Iterator[int]:
    """Tell every revision that anybody can have seen."""
    for entry in entries:
        if isinstance(entry, Answered | Started):
            yield entry.revision
    for task, behind, ended, *_ in states:
        yield from (row[_REVISION] for row in (*task, *behind, *ended))


def tokens(states: list[State], entries: tuple[Entry, ...]) -> Iterator[int]:
    """Tell every token that anybody can have seen."""
    for entry in entries:
        if isinstance(entry, Started):
            yield entry.token
    for task, *_ in states:
        yield from (row[_TOKEN] for row in task if row[_TOKEN] is not None)
