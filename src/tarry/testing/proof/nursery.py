"""Nursery: a warm parent in a process of its own that forks, stops and kills on command.

It has imported everything and opens no store while children live, so that a fork is cheap and
safe. One JSON command per line comes in, one number per line goes out.
"""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any

import msgspec

from tarry.clock import SYSTEM, nap
from tarry.errors import StoreUnavailableError, TarryError
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.testing.ledger import Book, Failed
from tarry.testing.proof import roles

_PATIENCE_NS = 30_000_000_000
_PAGE = 4_096


class Child(msgspec.Struct, frozen=True):
    """A process of the nursery; `name` is its name in the ledger."""

    pid: int
    name: str


class NurseryError(TarryError):
    """The nursery itself has died; what it printed says why."""


class Nursery:
    """The handle of a nursery: starts and ends processes that use the store at *url*."""

    def __init__(self, url: str, namespace: str, ledger: Path) -> None:
        self._count = 0
        command = [sys.executable, "-m", __name__, url, namespace, str(ledger)]
        self._process = subprocess.Popen(  # noqa: S603 - this module, with this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, role: str, **options: Any) -> Child:
        """Start a process: "work" with a worker's settings, "produce" or "work_carelessly"."""
        self._count += 1
        name = f"{role}-{self._count}"
        pid = self._tell(do="start", role=role, name=name, number=self._count, options=options)
        return Child(pid, name)

    def kill(self, child: Child) -> bool:
        """Kill a process at once; says whether it still lived."""
        return self._tell(do="kill", pid=child.pid) == -signal.SIGKILL

    def stop(self, child: Child) -> bool:
        """Let a worker stop as on SIGTERM; says whether it did, or had not even begun."""
        return self._tell(do="stop", pid=child.pid) in {0, -signal.SIGTERM}

    def wait(self, child: Child) -> int:
        """Wait for a process that dies by itself; returns its exit code."""
        return self._tell(do="wait", pid=child.pid)

    def stall(self, child: Child) -> None:
        """Stop the time of a worker, between two calls of its store."""
        self._tell(do="stall", pid=child.pid)

    def go_on(self, child: Child) -> None:
        """Let a stalled process go on."""
        self._tell(do="go_on", pid=child.pid)

    def _tell(self, **command: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer:
            raise NurseryError("the parent of the processes has died; what it printed says why")
        return int(answer)

    def close(self) -> None:
        """Kill whatever is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Parent:
    """The other end: the process that forks."""

    def __init__(self, url: str, namespace: str, ledger: Path) -> None:
        self._url = url
        self._namespace = namespace
        self._ledger = ledger
        self._book = Book(ledger)
        self._names: dict[int, str] = {}
        self._pages: dict[int, mmap] = {}

    def warm(self) -> None:
        """Import what children will need, and leave it out of their garbage collections."""
        connect(self._url, namespace=self._namespace).close()
        gc.collect()
        gc.freeze()

    def start(self, role: str, name: str, number: int, options: dict[str, Any]) -> int:
        """Fork a process; returns its pid."""
        page = mmap(-1, _PAGE)
        pid = os.fork()
        if not pid:
            _be(lambda: self._live(role, name, number, page, options))
        self._names[pid] = name
        self._pages[pid] = page
        return pid

    def _live(self, role: str, name: str, number: int, page: mmap, options: dict[str, Any]) -> None:
        store = _connected(self._url, self._namespace)
        make = roles.Careless if role == "work_carelessly" else roles.Witness
        witness = make(store, Book(self._ledger), number=number, by=name, page=page)
        if role == "produce":
            roles.produce(witness, **options)
        else:
            roles.work(witness, **options)

    def kill(self, pid: int) -> int:
        """Kill a process and note it; returns its exit code."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def stop(self, pid: int) -> int:
        """Ask a process to end; returns its exit code."""
        os.kill(pid, signal.SIGTERM)
        return self._reap(pid)

    def wait(self, pid: int) -> int:
        """Wait for a death and note it; returns the exit code.

        The note must lie behind all that the dead process wrote, and before all that follows from
        its death. It is written when nothing of the process is left, so the first holds. All that
        follows is a second start, and that needs the end of a lease which was renewed, while its
        holder lived, at every third of its time: hundreds of milliseconds against microseconds.
        """
        name = self._names[pid]
        code = self._reap(pid)
        self._book.write(Failed(by=name, how="killed"))
        return code

    def _reap(self, pid: int) -> int:
        """Wait until a process has ended; one that does not is killed."""
        deadline = SYSTEM.elapsed() + _PATIENCE_NS
        done, status = os.waitpid(pid, os.WNOHANG)
        while not done:
            if SYSTEM.elapsed() > deadline:
                os.kill(pid, signal.SIGKILL)
            nap(0.0005)
            done, status = os.waitpid(pid, os.WNOHANG)
        del self._names[pid]
        self._pages.pop(pid).close()
        return os.waitstatus_to_exitcode(status)

    def stall(self, pid: int) -> int:
        """Stop the time of a process while none of its calls is under way, and note it.

        In the middle of a transaction it would stop everybody else at an embedded medium, too:
        that is a medium that does not answer, not a worker that stalls.
        """
        while True:
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            if not self._pages[pid][0]:
                break
            os.kill(pid, signal.SIGCONT)
            nap(0.001)
        self._book.write(Failed(by=self._names[pid], how="stalled"))
        return 0

    def go_on(self, pid: int) -> int:
        """Let a stalled process go on."""
        os.kill(pid, signal.SIGCONT)
        return 0

    def serve(self) -> None:
        """Do what is asked, line by line, to the end of the lines."""
        try:
            for line in sys.stdin:
                command = json.loads(line)
                answer = getattr(self, command.pop("do"))(**command)
                sys.stdout.write(f"{answer}\n")
                sys.stdout.flush()
        finally:
            for pid in list(self._names):
                os.kill(pid, signal.SIGKILL)
                self._reap(pid)


def _connected(url: str, namespace: str) -> Store:
    """Open the store as a process that is started again and again: it may be away for a while."""
    deadline = SYSTEM.elapsed() + _PATIENCE_NS
    while True:
        try:
            return connect(url, namespace=namespace)
        except StoreUnavailableError:
            if SYSTEM.elapsed() > deadline:
                raise
            nap(0.01)


def _be(live: Callable[[], None]) -> None:
    """Live a child's life, and end with it."""
    code = 1
    try:
        # The pipes are the parent's; the log of an attempt that fails on purpose is nobody's.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        logging.disable(logging.WARNING)
        live()
        code = 0
    except BaseException:  # noqa: BLE001 - shown, then the child ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Be the parent."""
    url, namespace, ledger = sys.argv[1:]
    parent = Parent(url, namespace, Path(ledger))
    parent.warm()
    parent.serve()


if __name__ == "__main__":
    main()
