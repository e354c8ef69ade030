"""The victim: a fixed series of deeds on a new file, done in a process whose system calls fail.

`python -m` this module is a warm parent, to be run under strace. It reads an order a line and forks
a child for each; the answer, one line too, says how the child ended. strace counts each process's
calls of a kind for itself and lets the WHEN-th fail, so that a child winds the counter on with
calls that do nothing, until the one to fail is the WHEN-th. The ledger is written with `write`,
which SQLite does not use and strace leaves alone.
"""

import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from tarry.answers import CancelResult
from tarry.errors import StoreError, StoreFullError
from tarry.request import Cancellation
from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.store import SqliteStore
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import Answered, Book, Failed
from tarry.testing.proof.deeds import Deeds

FILE, BOOK, RAW = "tarry.db", "ledger", "error"
WHEN = 500
"""More than the series has calls of one kind."""
NOWHERE = 1_000_000
"""A descriptor that is not open."""
IDLE: dict[str, Callable[[], object]] = {
    "pwrite64": lambda: os.pwrite(NOWHERE, b"", 0),
    "fdatasync": lambda: os.fdatasync(NOWHERE),
    "fsync": lambda: os.fsync(NOWHERE),
    "ftruncate": lambda: os.ftruncate(NOWHERE, 0),
    "unlink": lambda: os.unlink(""),  # noqa: PTH108 - pathlib would make it "."
}
"""The calls that fail, each in a form that does nothing."""

DEEDS = (
    *("schedule", "schedule", "move", "claim", "schedule", "settle", "cancel", "schedule"),
    *("claim", "schedule", "renew", "settle", "checkpoint", "schedule", "move", "cancel"),
    *("pause", "claim", "settle", "revive", "schedule", "restart", "schedule", "claim"),
    *("stall", "schedule", "claim", "settle", "settle", "purge", "checkpoint", "move"),
    *("schedule", "cancel", "claim", "schedule", "settle", "revive", "schedule", "cancel"),
)
_SEED = 12


class Order(msgspec.Struct):
    """What a child is to do: the folder to work in, and the call that is to fail."""

    folder: str
    call: str = ""
    number: int = 0
    """Which of its kind; 0: none fails."""
    hasty: bool = False
    """Plants a bug: cancels are answered before they are done."""


class Hasty(SqliteStore):
    """Answers a cancel at once and does it with the next one, whatever becomes of it."""

    _cancels: Sequence[Cancellation] = ()

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Promise to cancel."""
        del call
        self._catch_up()
        self._cancels = cancellations
        return [CancelResult.CANCELLED] * len(cancellations)

    def _catch_up(self) -> None:
        cancels, self._cancels = self._cancels, ()
        with suppress(StoreError):
            super().cancel(cancels)

    def close(self) -> None:
        """Let go of the file."""
        self._catch_up()
        super().close()


class Victim:
    """One producer, one worker and one operator, until the end of the series or their own."""

    def __init__(self, folder: Path, make: type[SqliteStore]) -> None:
        self._path = str(folder / FILE)
        self._make = make
        self._book = Book(folder / BOOK)
        self._clock = ManualClock()
        self._chance = random.Random(_SEED)  # noqa: S311 - always the same
        self._stores: list[SqliteStore] = []
        self._deeds: Deeds | None = None

    def live(self) -> None:
        """Do all deeds; what fails with an error of tarry's is noted, and life goes on."""
        for verb in DEEDS:
            try:
                self._do(verb)
            except StoreError as error:
                self._fail(error)
        self._close()

    def _do(self, verb: str) -> None:
        deeds = self._open()
        match verb:
            case "checkpoint":
                self._checkpoint()
            case "restart":
                self._close()
            case _:
                deeds.do(verb)

    def _fail(self, error: StoreError) -> None:
        if self._deeds is not None:
            asked, self._deeds.asked = self._deeds.asked, []
            if isinstance(error, StoreFullError):
                # Its word is that nothing was written.
                for op in asked:
                    self._book.write(Answered(op=op, status="refused"))
        self._book.write(Failed(by="", how=type(error).__name__))

    def _open(self) -> Deeds:
        while len(self._stores) < 2:
            self._stores.append(self._make(self._path, clock=self._clock, rng=self._chance))
        if self._deeds is None:
            self._deeds = Deeds(self._clock, self._chance, self._book.write)
        self._deeds.producer, self._deeds.worker = self._stores
        return self._deeds

    def _close(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def _checkpoint(self) -> None:
        with closing(Connections(self._path)) as connections, connections.apart() as db:
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def _obey(order: Order) -> None:
    """Be the child."""
    folder = Path(order.folder)
    try:
        victim = Victim(folder, Hasty if order.hasty else SqliteStore)
        if order.number:
            for _ in range(WHEN - order.number):
                with suppress(OSError):
                    IDLE[order.call]()
        victim.live()
    except BaseException:  # noqa: BLE001 - whatever it is, it is not what the store promises
        (folder / RAW).write_text(traceback.format_exc())


def main() -> None:
    """Fork a child for each order, and tell its process id and exit code."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        child = os.fork()
        if not child:
            _obey(order)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d %d\n" % (child, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
