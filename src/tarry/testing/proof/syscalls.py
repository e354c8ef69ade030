"""System calls that fail: a process is killed at a write or sync of its history, or gets an error.

strace injects the fault into a `victim`, once per run, at each write, sync, truncation or deletion
that SQLite asks of the kernel, from the making of the file to the last close. Then the real store
opens what is left. Judged is that it is sound, that the ledger is in order after a drain, and that

- nothing but tarry's own StoreErrors came out of the store;
- a call was not acknowledged if a write or sync within it had failed;
- StoreFullError speaks the truth: what it refused has not happened.

The one failure that SQLite itself keeps quiet about, and that passes here, is that of syncing the
folder.
"""

import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from tarry.errors import StoreError
from tarry.stores.sqlite.store import SqliteStore
from tarry.testing.clock import START, ManualClock
from tarry.testing.ledger import Answered, Asked, Book, Entry, Failed, check
from tarry.testing.proof.deeds import Deeds
from tarry.testing.proof.tally import Broken, Tally
from tarry.testing.proof.victim import BOOK, FILE, IDLE, NOWHERE, RAW, WHEN, Order

FAULTS = {"kill": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}
Progress = Callable[[int], None]
_JOBS = 2
_LATER = START + 10 * 86_400_000
_KILLED = -9
FOLDER = "folder"
_LINE = re.compile(r'(?P<call>\w+)\((?:\d+<(?P<path>[^>]*)>|"(?P<name>[^"]*)")')
_WINDING = re.compile(rf'\w+\((?:{NOWHERE}|"")')


class Point(NamedTuple):
    """A system call of the victim's history: the so-and-so-many-th of its kind, on which file."""

    call: str
    number: int
    file: str


def unavailable() -> str:
    """Say why no system call can be made to fail here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-qq", "-f", "--seccomp-bpf", "-e", "trace=none", "true"]
    tried = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603
    return f"strace does not work here: {tried.stderr.strip()}" if tried.returncode else ""


def _silent(_tried: int) -> None:
    """Show no progress."""


@lru_cache(maxsize=1)
def all_points() -> tuple[Point, ...]:
    """Return every point of the history at which a fault can be injected."""
    with (
        tempfile.TemporaryDirectory(prefix="tarry-syscalls-") as folder,
        closing(_Ward(Path(folder), "kill")) as ward,
    ):
        _, log = ward.live()
    counts: Counter[str] = Counter()
    points = []
    for call, file in map(_read, log):
        if call in IDLE:
            counts[call] += 1
            points.append(Point(call, counts[call], file))
    assert max(counts.values()) < WHEN
    return tuple(points)


def sample(seed: int, count: int) -> list[Point]:
    """Return *count* points, as many of each call as there are or as fit."""
    points = list(all_points())
    random.Random(seed).shuffle(points)  # noqa: S311 - a seed of the campaign
    kinds: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        kinds[point.call].append(point)
    turns = chain.from_iterable(zip_longest(*kinds.values()))
    return [point for point in turns if point is not None][:count]


def run(
    seed: int,
    count: int,
    *,
    how: str,
    points: Sequence[Point] | None = None,
    progress: Progress = _silent,
    hasty: bool = False,
) -> Tally:
    """Inject the fault *how* (kill, EIO or ENOSPC) at *points*, else at *count* sampled ones.

    *hasty* plants a bug, cancels that are answered before they are done: the negative control.
    """
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tarry-syscalls-")))
        wards: SimpleQueue[_Ward] = SimpleQueue()
        for number in range(_JOBS):
            wards.put(stack.enter_context(closing(_Ward(folder / str(number), how))))

        def attempt(point: Point) -> Tally:
            ward = wards.get()
            try:
                return _attempt(ward, point, hasty=hasty)
            finally:
                wards.put(ward)

        with ThreadPoolExecutor(_JOBS) as pool:
            for each in pool.map(attempt, sample(seed, count) if points is None else points):
                tally.add(each)
                progress(1)
    return tally


class _Ward:
    """A warm victim under strace: one history, and one fault, at a time."""

    def __init__(self, folder: Path, how: str) -> None:
        self.how = how
        self.folder = folder / "history"
        self._log = folder / "log"
        self.folder.mkdir(parents=True)
        calls = ",".join(IDLE)
        # A filter spares all other calls the detour; strace cannot kill from within one.
        fast = () if how == "kill" else ("--seccomp-bpf",)
        self._process = subprocess.Popen(  # noqa: S603
            [
                *("strace", "-ff", *fast, "-qq", "-y", "-o", str(self._log)),
                *("-e", f"trace=write,{calls}"),
                *("-e", f"inject={calls}:{FAULTS[how]}:when={WHEN}"),
                *(sys.executable, "-m", "tarry.testing.proof.victim"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def live(
        self, call: str = "", number: int = 0, *, hasty: bool = False
    ) -> tuple[int, list[str]]:
        """Let a victim live in an empty folder; returns its exit code and strace's words."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = Order(str(self.folder), call, number, hasty=hasty)
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        child, code = map(int, self._process.stdout.readline().split())
        log = self._log.with_suffix(f".{child}")
        lines = log.read_text().splitlines()
        log.unlink()
        return code, [line for line in lines if not _WINDING.match(line)]

    def close(self) -> None:
        """End the victim's parent, and strace with it."""
        self._process.communicate()


def _attempt(ward: _Ward, point: Point, *, hasty: bool) -> Tally:
    """Inject one fault, and judge what is left."""
    code, log = ward.live(point.call, point.number, hasty=hasty)
    came = code == _KILLED if ward.how == "kill" else any(map(_is_injected, log))
    if not came:
        assert hasty, f"{point} did not come: the history is not the one that was counted"
        return Tally()
    raw = ward.folder / RAW
    entries = list(_read_book(ward.folder / BOOK))
    found = [] if ward.how == "kill" else list(_wrongly_acknowledged(point, log, entries))
    entries.append(Failed(by="worker", how="it is gone, with the leases it held"))
    if raw.exists():
        found.append(("raw error", raw.read_text().splitlines()[-1]))
    found += _judge(ward.folder / FILE, entries)
    acknowledged = sum(isinstance(entry, Answered) for entry in entries)
    counts = {f"{ward.how} {point.call} {point.file}": 1, "acknowledged": acknowledged}
    replay = f"python -m tarry.testing.proof.syscalls {ward.how} {point.call} {point.number}"
    broken = [Broken(rule, f"{point}: {said}", "" if hasty else replay) for rule, said in found]
    return Tally(1, counts, broken)


def _judge(path: Path, entries: list[Entry]) -> Iterator[tuple[str, str]]:
    """Open the file as any other process would, run what is left, and let the ledger judge."""
    first_op = max((entry.op for entry in entries if isinstance(entry, Asked)), default=0) + 1
    clock = ManualClock(_LATER)
    chance = random.Random(1)  # noqa: S311 - any will do
    try:
        with closing(SqliteStore(str(path), clock=clock)) as store:
            with closing(sqlite3.connect(path)) as db:
                report = [row[0] for row in db.execute("PRAGMA integrity_check")]
            if (problems := store.check() + report) != ["ok"]:
                yield "damaged", "; ".join(problems)
                return
            deeds = Deeds(clock, chance, entries.append, first_op=first_op)
            deeds.producer = deeds.worker = store
            deeds.drain()
    except (StoreError, sqlite3.Error) as error:
        yield "damaged", f"{type(error).__name__}: {error}"
        return
    for found in check(entries):
        yield found.rule, f"{found.ref}: {found.said}"


def _wrongly_acknowledged(
    point: Point, log: list[str], entries: list[Entry]
) -> Iterator[tuple[str, str]]:
    """Tell of answers to calls in which a system call had failed."""
    [hit] = [number for number, line in enumerate(log) if _is_injected(line)]
    noted = sum(line.startswith("write(") for line in log[:hit])
    before, after = entries[:noted], entries[noted:]
    open_ops = {entry.op for entry in before if isinstance(entry, Asked)}
    open_ops -= {entry.op for entry in before if isinstance(entry, Answered)}
    for entry in after:
        kept = isinstance(entry, Answered) and entry.op in open_ops and entry.status != "refused"
        if kept and point.file != FOLDER:
            yield "acknowledged", f"{entry} though {log[hit]}"


def _is_injected(line: str) -> bool:
    return line.endswith("(INJECTED)")


def _read_book(path: Path) -> Sequence[Entry]:
    with closing(Book(path)) as book:
        return book.entries()


def _read(line: str) -> tuple[str, str]:
    """Return the system call of a line of strace's, and which file it is about."""
    found = _LINE.match(line)
    if found is None:
        return "", ""
    name = (found["path"] or found["name"]).rpartition("/")[2]
    if not name.startswith(FILE):
        return found["call"], FOLDER
    return found["call"], name.removeprefix(FILE).removeprefix("-") or "db"


def main(how: str, call: str, number: str) -> int:
    """Show one fault again."""
    [point] = [p for p in all_points() if (p.call, p.number) == (call, int(number))]
    tally = run(0, 1, how=how, points=[point])
    for broken in tally.broken:
        sys.stdout.write(f"{broken.rule}: {broken.said}\n")
    return bool(tally.broken)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
