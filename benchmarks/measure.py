"""What the programs share: options, report, percentiles, files, waiting tasks, processes."""

import argparse
import json
import os
import platform
import random
import select
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import msgspec

from tarry import Tarry
from tarry.due import At
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.task import TaskRef

KIND = "bench"
HOUR_MS = 3_600_000
BATCH = 500
HERE = Path(__file__).resolve().parent
_START_SECONDS = 60
_STOP_SECONDS = 30


# ---- options and report


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every program has."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    made.add_argument("--folder", help="where to make the scratch folder; name a real disk")
    return made


class Result(msgspec.Struct, frozen=True):
    """One figure; `goal` is what the project wants of it, "" where it is for orientation."""

    key: str
    value: float
    unit: str
    goal: str


class Report:
    """Collects figures, and prints them as a table or as one JSON object."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._results: list[Result] = []
        self._began = time.monotonic()
        self._machine = machine(options.folder)

    def add(self, key: str, value: float, unit: str = "/s", goal: str = "") -> None:
        """Take a figure into the report."""
        self._results.append(Result(key, round(float(value), 4), unit, goal))

    def note(self, text: str) -> None:
        """Say what is under way, on stderr."""
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", file=sys.stderr, flush=True)

    def show(self) -> None:
        """Print the report."""
        if self._options.json:
            print(json.dumps(self._object()))
            return
        print(", ".join(f"{name} {value}" for name, value in self._machine.items()))
        table(
            ["measure", "value", "unit", "goal"],
            [[r.key, number(r.value), r.unit, r.goal] for r in self._results],
        )

    def _object(self) -> dict[str, Any]:
        return {
            "program": Path(sys.argv[0]).stem,
            "quick": self._options.quick,
            "seconds": round(time.monotonic() - self._began, 1),
            "machine": self._machine,
            "results": {result.key: result.value for result in self._results},
            "goals": {result.key: result.goal for result in self._results if result.goal},
        }


def machine(folder: str | None) -> dict[str, str]:
    """Return what a figure depends on: date, processors, load, versions, where the files lie."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
        "folder": folder or os.environ.get("TMPDIR", "/tmp"),
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first is words, the second on the right is numbers."""
    widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:2], widths[1:2], strict=True)]
        cells += [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        print("  ".join(cells).rstrip())


def number(value: float) -> str:
    """Return a figure as people read it."""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value that *percent* of all do not exceed (nearest rank); 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


# ---- files


@contextmanager
def scratch(options: argparse.Namespace) -> Iterator[Path]:
    """Lend a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="tarry-bench-", dir=options.folder) as folder:
        yield Path(folder)


Place = Path | str
"""Where tasks rest: the file of a SQLite store, or the URL of another."""


def place_of(text: str) -> Place:
    """Return the place that a command line names."""
    return text if "://" in text else Path(text)


def url(place: Place, sync: str = "full") -> str:
    """Return the URL of a store."""
    return place if isinstance(place, str) else f"sqlite:///{place}?sync={sync}"


def app_on(place: Place, sync: str = "full") -> Tarry:
    """Return an app on the store at *place*, with the handler whose tasks are measured."""
    app = Tarry(url(place, sync))

    @app.task(KIND, key="{n}")
    async def nothing(n: int) -> None:
        del n

    return app


def fill(place: Place, count: int, *, begin: int = 0, base: int | None = None) -> int:
    """Let *count* tasks wait, from an hour ahead on, a millisecond apart; returns the first due.

    Keys and dues grow; numbers start at *begin*. Afterwards everything is in the database file, so
    that no checkpoint of this falls into what is measured.
    """
    base = now_ms() + 2 * HOUR_MS if base is None else base
    with closing(connect(url(place, "normal"))) as store:
        requests = (waiting(n, base + n) for n in range(begin, begin + count))
        while batch := list(islice(requests, BATCH)):
            store.schedule(batch)
    if isinstance(place, Path):
        checkpoint(place)
    return base


def waiting(n: int, due: int, suffix: str = "") -> Request:
    """Return a request whose key sorts by *n*, never run in a benchmark."""
    return Request(TaskRef(KIND, f"w{n:012d}{suffix}"), At(due), b'{"n":0}')


def checkpoint(path: Path) -> None:
    """Move the whole WAL into the database file, and wait for the disk."""
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def place(app: Tarry, dues: Sequence[int]) -> None:
    """Schedule task n at the nth due (milliseconds UTC)."""
    requests = (
        Request(TaskRef(KIND, str(n)), At(due), b'{"n":%d}' % n) for n, due in enumerate(dues)
    )
    app.schedule_many(requests)


def spread(count: int, first: int, span_ms: int, seed: int = 0) -> list[int]:
    """Return *count* random dues from *first* on, in no order."""
    chance = random.Random(seed)
    return [first + chance.randrange(span_ms) for _ in range(count)]


def now_ms() -> int:
    """Return the wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def lateness_ms(dues: Sequence[int], starts: Sequence[int]) -> list[float]:
    """Return by how much each task that ran started late."""
    pairs = zip(dues, starts, strict=True)
    return [(start - due * 1_000_000) / 1e6 for due, start in pairs if start]


def wait_empty(app: Tarry, waits: int, seconds: float) -> bool:
    """Wait until nothing but *waits* tasks is left, no longer than *seconds*."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        counts = app.store.counts([KIND])[KIND]
        if counts.scheduled + counts.leased <= waits:
            return True
        time.sleep(0.1)
    return False


# ---- comparing


Side = Callable[[int], float]
"""Does as many operations as it is told, and returns the seconds that they took."""


def compare(sides: Mapping[str, Side], *, operations: int, rounds: int) -> dict[str, float]:
    """Return the median rate of each side, measured in turns after a round that is not counted."""
    found = in_turns(sides, operations=operations, rounds=rounds)
    return {name: statistics.median(rates) for name, rates in found.items()}


def in_turns(sides: Mapping[str, Side], *, operations: int, rounds: int) -> dict[str, list[float]]:
    """Return the rate of each side in each round, after a round that is not counted."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        names = list(sides)
        # Nobody is always the first after the other's writes.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds = sides[name](operations)
            if turn:
                rates[name].append(operations / seconds)
    return rates


# ---- processes


class Process:
    """A program that says "ready" when it is, and ends on SIGTERM."""

    def __init__(self, command: Sequence[object], **environment: str) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self._process.pid

    def await_ready(self) -> Self:
        """Wait for the word."""
        line = self.line(_START_SECONDS)
        if line.strip() != "ready":
            self.kill()
            raise SystemExit(f"a process did not start: it said {line!r}")
        return self

    def go(self) -> None:
        """Tell one that waits for it to begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> Any:
        """Wait for its end; returns the JSON line it printed."""
        line = self.line(seconds)
        self.stop()
        if not line:
            raise SystemExit(
                f"a process ended without an answer, or took longer than {seconds:g} s"
            )
        return json.loads(line)

    def line(self, seconds: float) -> str:
        """Wait for the next line it prints; "" if there is none in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else ""

    def stop(self) -> None:
        """Ask it to end; kills it if it does not."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._reap()

    def _reap(self) -> None:
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def rss_kb(self) -> int:
        """Return its resident memory (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))

    def cpu_seconds(self) -> float:
        """Return what its threads used of the processors so far (Linux)."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def worker(place: Place, ledger: Path, *options: object, **environment: str) -> Process:
    """Start a worker process on the store at *place*, and wait until it looks after tasks."""
    return begin_worker(place, ledger, *options, **environment).await_ready()


def begin_worker(place: Place, ledger: Path, *options: object, **environment: str) -> Process:
    """Start a worker process without waiting for it; see `child.py worker --help`."""
    child = [sys.executable, HERE / "child.py", "worker"]
    return Process([*child, place, ledger, *options], **environment)
