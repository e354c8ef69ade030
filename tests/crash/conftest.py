"""A nursery of processes for each test, and a ledger of what they did."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.crash.ledger import Ledger

from tarry.clock import SYSTEM, nap
from tarry.due import In
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef

SCRIPT = Path(__file__).with_name("nursery.py")


class Nursery:
    """Starts and ends workers and producers on one file."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/tarry.db?sync=normal"
        self.ledger = Ledger(folder / "ledger")
        self.store: Store = connect(self.url, namespace="crash")
        self.pids: set[int] = set()
        self._process = subprocess.Popen(
            [sys.executable, SCRIPT, self.url, folder / "ledger"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **command: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery has died"
        return int(answer)

    def worker(self, **options: Any) -> int:
        """Start a worker; returns its pid."""
        return self._start("work", options)

    def producer(self, **options: Any) -> int:
        """Start a producer; returns its pid."""
        return self._start("produce", options)

    def _start(self, role: str, options: dict[str, Any]) -> int:
        pid = self._ask(role=role, options=options)
        self.pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        """End a process without a warning, and note it."""
        self.ledger.write("killed", pid=pid)
        assert self._end(pid, signal.SIGKILL) == -signal.SIGKILL

    def stop(self, pid: int) -> None:
        """Let a worker stop by itself; one that has not begun yet just ends."""
        assert self._end(pid, signal.SIGTERM) in {0, -signal.SIGTERM}

    def died(self, pid: int) -> int:
        """Wait for the end of a process that ends by itself; returns its exit code."""
        code = self._end(pid, 0)
        self.ledger.write("killed", pid=pid)
        return code

    def _end(self, pid: int, number: int) -> int:
        code = self._ask(pid=pid, signal=number)
        self.pids.discard(pid)
        return code

    def schedule(self, kind: str, count: int, delay_ms: int = 0) -> list[str]:
        """Schedule tasks of one kind, acknowledged in the ledger; returns their keys."""
        refs = [TaskRef(kind, str(n)) for n in range(count)]
        for ref in refs:
            self.ledger.write("ask", str(ref))
        for start in range(0, count, 500):
            for answer in self.store.schedule(
                [Request(ref, In(delay_ms)) for ref in refs[start : start + 500]]
            ):
                self.ledger.write(
                    "acked",
                    str(answer.ref),
                    revision=answer.revision,
                    due=answer.due,
                    status=answer.status.value,
                )
        return [str(ref) for ref in refs]

    def is_empty(self) -> bool:
        """Say whether nothing waits and nothing runs any more."""
        counts = self.store.counts()
        return not any(count.scheduled or count.leased for count in counts.values())

    def close(self) -> None:
        """End whatever is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for pid in list(self.pids):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self.store.close()
        self.ledger.close()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with closing(Nursery(tmp_path)) as nursery:
        yield nursery


Until = Callable[[Callable[[], object], str], None]


@pytest.fixture
def until() -> Until:
    """Wait for something that processes do, but not for ever."""

    def wait(reached: Callable[[], object], what: str, seconds: float = 50.0) -> None:
        deadline = SYSTEM.elapsed() + int(seconds * 1e9)
        while not reached():
            assert SYSTEM.elapsed() < deadline, f"{what}: not within {seconds} s"
            nap(0.01)

    return wait
