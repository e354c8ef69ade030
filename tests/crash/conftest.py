"""Real processes for each test, and a book of what they did."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
import pytest

from tarry.clock import SYSTEM, Clock, nap
from tarry.due import In
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.ledger import Book, Entry, check
from tarry.testing.proof.kills import enter_the_end, is_drained
from tarry.testing.proof.nursery import Child, Nursery
from tarry.testing.proof.roles import Witness, Work

E = TypeVar("E", bound=Entry)
Until = Callable[[Callable[[], object], str], None]


class Ground:
    """A store in a folder, processes that use it, and the book they write."""

    def __init__(self, folder: Path, *, book: Path, clock: Clock = SYSTEM) -> None:
        self.url = f"sqlite:///{folder}/tarry.db?sync=normal"
        self.book = Book(book)
        self.store: Store = connect(self.url, namespace="crash", clock=clock)
        self.witness = Witness(self.store, self.book, number=0, by="test", page=mmap(-1, 4_096))
        self.nursery = Nursery(self.url, "crash", book)

    def worker(self, **settings: Any) -> Child:
        """Start a worker."""
        return self.nursery.start("work", **settings)

    def schedule(self, kind: str, count: int, work: Work, *, name: str = "task") -> list[str]:
        """Schedule tasks of one kind, noted, all due now; returns their refs."""
        refs = [TaskRef(kind, f"{name}-{n}") for n in range(count)]
        payload = msgspec.json.encode(work)
        for start in range(0, count, 500):
            part = refs[start : start + 500]
            self.witness.schedule([Request(ref, In(0), payload) for ref in part])
        return [str(ref) for ref in refs]

    def of(self, kind: type[E]) -> list[E]:
        """Return the entries of one kind so far."""
        return [entry for entry in self.book.entries() if isinstance(entry, kind)]

    def is_drained(self) -> bool:
        """Say whether nothing waits and nothing runs any more."""
        return is_drained(self.store)

    def judged(self) -> list[str]:
        """Return the promises that the history breaks, now that it is over."""
        enter_the_end(self.store, self.book)
        return [f"{found.rule}: {found.ref}: {found.said}" for found in check(self.book.entries())]

    def close(self) -> None:
        """End whatever is left."""
        self.nursery.close()
        self.store.close()
        self.book.close()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with closing(Ground(tmp_path, book=tmp_path / "ledger")) as ground:
        yield ground


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: for many files that no power cut will hit."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def until() -> Until:
    """Wait for something that processes do, but not for ever."""

    def wait(reached: Callable[[], object], what: str, seconds: float = 50.0) -> None:
        deadline = SYSTEM.elapsed() + int(seconds * 1e9)
        while not reached():
            assert SYSTEM.elapsed() < deadline, f"{what}: not within {seconds} s"
            nap(0.01)

    return wait


def lacking(what: str) -> None:
    """Skip at a desk, fail in CI: the machine lacks what a test needs."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: CI must have it")
    pytest.skip(what)
