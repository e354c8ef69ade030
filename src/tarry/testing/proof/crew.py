"""Crew: processes that do slices of campaigns, and end at once with whoever started them.

One order comes in per line, one slice goes out. Each process leads a group of its own with all the
processes that its slices start; when the orders end, the group is killed.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from tarry.clock import SYSTEM
from tarry.testing.proof.campaign import Slice, Work
from tarry.testing.proof.place import guests
from tarry.testing.proof.tally import Broken

LOG = "log"
"""The file, in the folder of the proof, with whatever processes have to say."""

GUESTS = "guests"
"""The file, in the same folder, with the namespaces that they use."""

_ENCODER = msgspec.json.Encoder()


class Order(msgspec.Struct, frozen=True):
    """A slice to be done."""

    work: str
    first: int
    count: int
    url: str


class Hand:
    """The handle of one process."""

    def __init__(self, folder: Path) -> None:
        # All that is made, by whomever, is in the folder, and goes with it.
        places = {
            "TMPDIR": str(folder),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "drawn"),
            **guests(folder / GUESTS),
        }
        with (folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this module, with this interpreter
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **places},
                start_new_session=True,
            )
        self.began = 0
        """When it was given its order."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when the slice is done, or the process dead."""
        return self._out.fileno()

    @property
    def _out(self) -> BinaryIO:
        assert self._process.stdout is not None
        return self._process.stdout  # type: ignore[return-value]

    def give(self, order: Order) -> None:
        """Hand it something to do."""
        self.began = SYSTEM.elapsed()
        assert self._process.stdin is not None
        # One that died meanwhile is noticed when its slice is taken.
        with suppress(BrokenPipeError):
            self._process.stdin.write(_ENCODER.encode(order) + b"\n")
            self._process.stdin.flush()

    def take(self) -> Slice | None:
        """Return what it did; None: the process is dead."""
        line = self._out.readline()
        return msgspec.json.decode(line, type=Slice) if line.endswith(b"\n") else None

    def end(self) -> int:
        """Kill it with all its processes; returns its exit code. Harmless when repeated."""
        if self._process.returncode is not None:
            return self._process.returncode
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        return code


# ---- the other end


def do(order: Order) -> bytes:
    """Do a slice; one that raises is a finding."""
    try:
        module, _, name = order.work.partition(":")
        work: Work = getattr(import_module(module), name)
        return _ENCODER.encode(work(order.first, order.count, order.url))
    except Exception as error:  # noqa: BLE001 - told, not hidden
        sys.excepthook(type(error), error, error.__traceback__)
        said = f"from {order.first} on: {type(error).__name__}: {error}"
        return _ENCODER.encode(Slice(broken=[Broken("crashed", said)]))


def _listen(source: BinaryIO, orders: "SimpleQueue[Order]") -> None:
    for line in source:
        orders.put(msgspec.json.decode(line, type=Order))
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Do what is ordered, to the end of the orders."""
    source, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    # The pipes are for orders and slices: nothing that a slice starts may read or write them.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    logging.disable()  # attempts that fail on purpose are nobody's news
    orders: SimpleQueue[Order] = SimpleQueue()
    threading.Thread(target=_listen, args=(source, orders), daemon=True).start()
    while True:
        line = do(orders.get()) + b"\n"
        while line:
            line = line[os.write(answers, line) :]


if __name__ == "__main__":
    main()
