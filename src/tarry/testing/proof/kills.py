"""Kills and stalls: real processes under fire on a real store, judged by their ledger.

The medium itself too, where it is a server that can be started for the purpose.
"""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tarry.clock import SYSTEM, nap
from tarry.errors import StoreError, StoreUnavailableError, UnsupportedError
from tarry.stores.store import Filter, Store
from tarry.task import TaskState
from tarry.testing.ledger import (
    Answered,
    Asked,
    Book,
    Drained,
    Entry,
    Failed,
    Left,
    Settled,
    Started,
    Violation,
    check,
)
from tarry.testing.proof.mysql_server import MysqlServer
from tarry.testing.proof.nursery import Child, Nursery
from tarry.testing.proof.place import leave, lodge
from tarry.testing.proof.postgres_server import PostgresServer
from tarry.testing.proof.redis_server import RedisServer
from tarry.testing.proof.roles import HELD_UP
from tarry.testing.proof.tally import Broken, Tally

Progress = Callable[[int], None]

_LEASE_MS = 1_000
"""Long enough that a busy machine does not keep a healthy worker from renewing."""
_LONG_LEASE_MS = 3_000
"""Long enough for renewals that get no reply at first."""
_UP, _DOWN = 0.15, 0.1
"""Seconds for which a server lives, at least, and is away, at most, not counting its start."""
_WORKERS = 4
_PRODUCERS = 3
_STALLED = 3
_BETWEEN = 0.02
_QUICK = ("sqlite", "redis")
"""Media to which a process is connected at once: elsewhere it must live a little to do anything."""
_ERA = 25
_DRAIN_NS = 60_000_000_000


def _silent(_done: int) -> None:
    """Show no progress."""


def run(
    seed: int,
    count: int,
    *,
    url: str,
    progress: Progress = _silent,
    careless: bool = False,
    rough: bool = False,
) -> Tally:
    """Kill producers and workers *count* times, then let healthy workers finish, and judge.

    *careless* plants a bug, workers that take at most once: this campaign's negative control.
    *rough*: replies get lost meanwhile, so that producers must repeat, and leases last longer.
    """
    with closing(_Field(seed, url, "kills", rough=rough)) as field:
        role = "work_carelessly" if careless else "work"
        field.open_fire(role, count, progress)
        return field.end(count)


def stalls(seed: int, count: int, *, url: str, progress: Progress = _silent) -> Tally:
    """Stall workers beyond their lease *count* times, let them go on, and judge."""
    with closing(_Field(seed, url, "stalls")) as field:
        field.stall(count, progress)
        return field.end(count)


class Server(Protocol):
    """A server of a campaign's own."""

    @property
    def url(self) -> str:
        """The store's URL."""

    def start(self) -> None:
        """Start it again after a kill."""

    def kill(self) -> None:
        """End it without a warning."""

    def close(self) -> None:
        """End it for good."""


@contextmanager
def _redis(*, keeps: bool) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="redis-") as folder,
        closing(RedisServer(Path(folder), keeps=keeps)) as server,
    ):
        yield server


@contextmanager
def _mysql(*, keeps: bool) -> Iterator[Server]:
    with closing(MysqlServer(keeps=keeps)) as server:
        yield server


@contextmanager
def _postgres(*, keeps: bool) -> Iterator[Server]:
    with closing(PostgresServer(keeps=keeps)) as server:
        yield server


SERVERS = {
    "redis": (_redis, _UP),
    "postgresql": (_postgres, 10 * _UP),
    "mysql": (_mysql, 10 * _UP),
    "mariadb": (_mysql, 10 * _UP),
}
"""Servers that can be started to be killed, and for how long they live at least.

Who connects to a database anew has more to say and to hear before it is at work again.
"""


def server_kills(
    seed: int,
    count: int,
    *,
    medium: str = "redis",
    progress: Progress = _silent,
    keeps: bool = True,
) -> Tally:
    """Kill a server under its producers and workers *count* times, start it again, and judge.

    It syncs every write before it answers; with *keeps* false it writes nothing down, which is
    this campaign's negative control.
    """
    start, lives = SERVERS[medium]
    with (
        start(keeps=keeps) as server,
        closing(_Field(seed, server.url, "server-kills", rough=True)) as field,
    ):
        field.crash(server, count, progress, lives)
        return field.end(count)


class _Field:
    """Processes at work in a namespace of their own, and the book they all write."""

    def __init__(self, seed: int, url: str, campaign: str, *, rough: bool = False) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - a seed of the campaign
        self._rough = rough
        self._between = _BETWEEN if url.partition(":")[0] in _QUICK else 8 * _BETWEEN
        self._store = lodge(url, campaign=f"{campaign}.")
        namespace = self._store.namespace
        if not self._store.capabilities.shared:
            leave(self._store)
            message = f"{url} cannot be shared between processes: there is nobody to kill"
            raise UnsupportedError(message)
        self._folder = Path(tempfile.mkdtemp(prefix=f"tarry-{campaign}-"))
        self._ledger = self._folder / "ledger"
        self._book = Book(self._ledger)
        self._nursery = Nursery(url, namespace, self._ledger)
        self._workers: list[Child] = []
        self._producers: list[Child] = []
        self._broken: list[Broken] = []
        self._processes = 0
        self._era = 0

    # ---- processes

    def _worker(self, role: str = "work") -> Child:
        self._processes += 1
        lease_ms = _LONG_LEASE_MS if self._rough else _LEASE_MS
        return self._nursery.start(role, lease=f"{lease_ms}ms", concurrency=8)

    def _producer(self, run_ms: float = 15) -> Child:
        self._processes += 1
        seed = self._dice.getrandbits(32)
        wishes = {"seed": seed, "era": self._era, "run_ms": run_ms, "patient": self._rough}
        return self._nursery.start("produce", **wishes)

    def _kill(self, child: Child) -> None:
        if not self._nursery.kill(child):
            self._found("died", f"{child.name} ended by itself")

    def _found(self, rule: str, said: str) -> None:
        self._broken.append(Broken(rule, f"{said} (ledger: {self._ledger})"))

    # ---- campaigns

    def open_fire(self, role: str, count: int, progress: Progress) -> None:
        """Kill one process after the other, and put another in its place."""
        self._workers = [self._worker(role) for _ in range(_WORKERS)]
        self._producers = [self._producer() for _ in range(_PRODUCERS)]
        for number in range(count):
            nap(self._dice.random() * self._between)
            self._era = number // _ERA
            place = self._dice.randrange(_WORKERS + _PRODUCERS)
            if place < _WORKERS:
                self._kill(self._workers[place])
                self._workers[place] = self._worker(role)
            else:
                self._kill(self._producers[place - _WORKERS])
                self._producers[place - _WORKERS] = self._producer()
            progress(1)

    def stall(self, count: int, progress: Progress) -> None:
        """Stall some of the workers at a time, for longer than their leases."""
        self._workers = [self._worker() for _ in range(_STALLED + 2)]
        self._producers = [self._producer(run_ms=200)]
        left = count
        while left:
            nap(0.2 + self._dice.random() * 0.2)
            stalled = self._dice.sample(self._workers, min(left, _STALLED))
            for worker in stalled:
                self._nursery.stall(worker)
            nap(_LEASE_MS * (1.1 + self._dice.random() * 0.5) / 1_000)
            for worker in stalled:
                self._nursery.go_on(worker)
            left -= len(stalled)
            progress(len(stalled))

    def crash(self, server: Server, count: int, progress: Progress, lives: float) -> None:
        """Kill the server at one instant after the other; whoever uses it goes on by itself."""
        self._workers = [self._worker() for _ in range(_WORKERS)]
        self._producers = [self._producer() for _ in range(_PRODUCERS)]
        for number in range(count):
            self._era = number // _ERA
            nap(lives * (1 + self._dice.random()))
            # A lease that ends meanwhile is no fault of its holder; what was acknowledged stays.
            for worker in self._workers:
                self._book.write(Failed(by=worker.name, how="cut off"))
            server.kill()
            # A PostgreSQL may forget the newest settlements, and then all of it has failed.
            by = "" if isinstance(server, PostgresServer) else "server"
            self._book.write(Failed(by=by, how="server killed"))
            nap(self._dice.random() * _DOWN)
            server.start()
            progress(1)

    # ---- the end

    def end(self, tried: int) -> Tally:
        """Drain, stop everybody, and judge."""
        for producer in self._producers:
            self._kill(producer)
        deadline = SYSTEM.elapsed() + _DRAIN_NS
        while not self._is_drained() and SYSTEM.elapsed() < deadline:
            nap(0.01)
        for worker in self._workers:
            if not self._nursery.stop(worker):
                self._found("hung", f"{worker.name} did not stop by itself")
        enter_the_end(self._store, self._book)
        entries = self._book.entries()
        for violation in broken(entries):
            self._found(violation.rule, f"{violation.ref}: {violation.said}")
        for line in self._store.check():
            self._found("damaged", line)
        counts = _counts(entries) | {"processes": self._processes}
        return Tally(tried, counts, self._broken)

    def _is_drained(self) -> bool:
        try:
            return is_drained(self._store)
        except StoreUnavailableError:
            # A connection was cut while nobody used it.
            return False

    def close(self) -> None:
        """Leave nothing running, and no book but one that shows something."""
        self._nursery.close()
        self._book.close()
        with suppress(StoreError):
            leave(self._store)
        if not self._broken:
            shutil.rmtree(self._folder)


def broken(entries: Sequence[Entry]) -> Iterator[Violation]:
    """Judge a book; a worker that was held up itself may have lost its leases for that.

    It enters so when it goes on, and who has begun its tasks again may have been quicker.
    """
    held_up = {each.by for each in entries if isinstance(each, Failed) and each.how == HELD_UP}
    for violation in check(entries):
        started = {each.by for each in violation.entries if isinstance(each, Started)}
        if violation.rule != "double start" or not started & held_up:
            yield violation


def is_drained(store: Store) -> bool:
    """Say whether nothing waits and nothing runs any more."""
    return not any(count.scheduled or count.leased for count in store.counts().values())


def enter_the_end(store: Store, book: Book) -> None:
    """Enter that the history is over, and what the store still holds."""
    book.write(Drained())
    for left in _left(store):
        book.write(left)


def _left(store: Store) -> Iterable[Left]:
    for state in (TaskState.SCHEDULED, TaskState.LEASED, TaskState.DEAD):
        cursor: str | None = None
        while True:
            page = store.scan(Filter(state), cursor=cursor)
            for task in page.tasks:
                yield Left(
                    ref=str(task.ref),
                    state=task.state.value,
                    revision=task.revision,
                    attempt=task.attempt,
                    lost=task.lost,
                    reason=task.reason,
                )
            if (cursor := page.cursor) is None:
                break


def _counts(entries: Iterable[Entry]) -> dict[str, int]:
    """Count what happened: a run in which nothing did proves nothing."""
    counts: Counter[str] = Counter()
    asked: dict[int, str] = {}
    for entry in entries:
        match entry:
            case Asked(verb=verb) if verb != "claim":
                asked[entry.op] = verb
            case Answered(op=op, status=status) if op in asked:
                del asked[op]
                counts["acknowledged"] += entry.revision > 0
                counts[status] += 1
            case Started(lost=lost):
                counts["started"] += 1
                counts["started again"] += lost > 0
            case Settled(answer=answer):
                counts[answer] += 1
            case Failed(how=how):
                counts[how] += 1
            case Left(state=state):
                counts[f"left {state}"] += 1
            case _:
                pass
    counts["unanswered"] = len(asked)
    return dict(counts)
