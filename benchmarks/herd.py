"""Herd: a great many tasks due within one second, while a second kind goes on at its own pace.

One worker meets the herd: none may be lost, its memory stays bounded, and the second kind, a
trickle of tasks scheduled one second ahead, is hardly late. Then several workers share a smaller
herd: nothing may start twice. Each worker marks ledgers of its own, so that a start is counted
whoever else starts the same task at the same time.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import measure
from ledger import Ledger

from tarry import Tarry
from tarry.events import Event, WorkerStarted

TRICKLE = "trickle"
PER_SECOND = 20
GOALS = {
    "lost": "0",
    "twice": "0",
    "early": "0",
    "rss_growth_mb": "≤ 200",
    "trickle_lost": "0",
    "trickle_p99_ms": "≤ 100",
    "shared_lost": "0",
    "shared_twice": "0",
}


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        work(measure.place_of(sys.argv[2]), *(Path(name) for name in sys.argv[3:]))
        return
    options = read_options(__doc__)
    report = measure.Report(options)
    run(options, report)
    report.show()


def read_options(about: str | None) -> argparse.Namespace:
    """Return what the command line asks for; `store` is the URL of a store other than a file."""
    parser = measure.parser(about)
    parser.set_defaults(store="")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of the herd for one worker")
    parser.add_argument("--shared", type=int, default=100_000, help="of the herd for several")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--ordered", action="store_true", help="due in the order of scheduling")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.shared, options.workers = 4_000, 2_000, 2
    return options


def run(options: argparse.Namespace, report: measure.Report) -> None:
    """Measure, and take the figures into the report."""
    found = alone(options, report) | shared(options, report)
    for name, value in found.items():
        unit = name.rsplit("_", 1)[-1]
        known = unit if unit in {"ms", "mb", "us"} else "/s" if unit == "executed" else "tasks"
        report.add(name, value, known, GOALS.get(name, ""))


# ---- one worker, a herd and a trickle


def alone(options: argparse.Namespace, report: measure.Report) -> dict[str, float]:
    """Let one worker meet the herd while the trickle goes on."""
    with measure.scratch(options) as folder, measure.app_on(store(folder, options)) as app:
        herd = Ledger.create(folder / "herd", options.tasks)
        # More than can be needed: the trickle lasts as long as the herd.
        trickle = Ledger.create(folder / "trickle", PER_SECOND * (600 + options.tasks // 1_000))
        with worker(store(folder, options), herd.path, trickle.path) as process:
            dues = place(app, options.tasks, options, report)
            before, used = process.rss_kb(), process.cpu_seconds()
            report.note(f"one worker, process {process.pid}, due at {max(dues)}")
            promised = go_on(app, herd, trickle)
            measure.wait_empty(app, 0, 30)
            peak, used = peak_kb(process.pid), process.cpu_seconds() - used
        starts = herd.first()
        first, last = min(dues), max(starts)
        late = [
            start / 1e6 - due
            for due, start in zip(promised, trickle.first(), strict=False)
            if start and first <= due <= last / 1e6
        ]
        return {
            "executed": herd.ran() / (last / 1e9 - first / 1e3),
            "cpu_per_task_us": used * 1e6 / options.tasks,
            "lost": starts.count(0),
            "twice": sum(runs > 1 for runs in herd.runs()),
            "early": sum(ms < 0 for ms in [*measure.lateness_ms(dues, starts), *late]),
            "rss_before_mb": before / 1_024,
            "rss_growth_mb": (peak - before) / 1_024,
            "trickle": len(late),
            "trickle_lost": len(promised) - trickle.ran(),
            "trickle_p50_ms": measure.percentile(late, 50),
            "trickle_p99_ms": measure.percentile(late, 99),
            "trickle_max_ms": max(late),
        }


def go_on(app: Tarry, herd: Ledger, trickle: Ledger) -> list[int]:
    """Schedule the trickle until the whole herd has started, or stands still; returns its dues."""
    promised: list[int] = []
    ran, since = 0, time.monotonic()
    for _ in paced(trickle.size):
        n = len(promised)
        promised.append(app.schedule(TRICKLE, "1s", key=str(n), payload={"n": n}).due)
        if n % PER_SECOND == 0:
            now, seen = time.monotonic(), herd.ran()
            if seen == herd.size or (ran and seen == ran and now - since > 60):
                break
            if seen > ran:
                ran, since = seen, now
    trickle.wait(len(promised), seconds=30)
    return promised


def paced(count: int) -> Iterator[None]:
    """Yield *count* times, evenly in time."""
    began = time.monotonic()
    for n in range(count):
        time.sleep(max(0.0, began + n / PER_SECOND - time.monotonic()))
        yield


def peak_kb(pid: int) -> int:
    """Return the most memory a process has had (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM"))


# ---- several workers, one herd


def shared(options: argparse.Namespace, report: measure.Report) -> dict[str, float]:
    """Let several workers share a herd."""
    with (
        measure.scratch(options) as folder,
        measure.app_on(store(folder, options)) as app,
        ExitStack() as processes,
    ):
        ledgers = [
            Ledger.create(folder / f"herd{n}", options.shared) for n in range(options.workers)
        ]
        none = Ledger.create(folder / "trickle", 1)
        for ledger in ledgers:
            processes.enter_context(worker(store(folder, options), ledger.path, none.path))
        dues = place(app, options.shared, options, report)
        report.note(f"{options.workers} workers share {options.shared:,}")
        seconds = 60 + options.shared / 1_000 + (max(dues) - measure.now_ms()) / 1_000
        deadline = time.monotonic() + seconds
        while sum(map(Ledger.ran, ledgers)) < options.shared and time.monotonic() < deadline:
            time.sleep(0.5)
        measure.wait_empty(app, 0, 30)
        starts = [sum(runs) for runs in zip(*(ledger.runs() for ledger in ledgers), strict=True)]
        last = max(max(ledger.last()) for ledger in ledgers)
        return {
            "shared_executed": options.shared / (last / 1e9 - min(dues) / 1e3),
            "shared_lost": starts.count(0),
            "shared_twice": sum(count > 1 for count in starts),
            "shared_least": min(map(Ledger.ran, ledgers)),
        }


# ---- both


def place(app: Tarry, count: int, options: argparse.Namespace, report: measure.Report) -> list[int]:
    """Schedule the herd, due within the same second, and return the dues.

    In no order they are the harder case: every claim touches rows all over the file.
    """
    first = measure.now_ms() + 3_000 + count // 10
    dues = measure.spread(count, first, 1_000)
    if options.ordered:
        dues.sort()
    report.note(f"scheduling {count:,} tasks")
    measure.place(app, dues)
    spare = first - measure.now_ms()
    report.note(f"{count:,} tasks are due in {spare} ms")
    if spare < 1_000:
        raise SystemExit("the herd was not scheduled in time: is the machine busy?")
    return dues


def store(folder: Path, options: argparse.Namespace) -> measure.Place:
    """Return where the tasks rest: the store that was named, or a file in *folder*."""
    return str(options.store) if options.store else folder / "tarry.db"


def worker(place: measure.Place, herd: Path, trickle: Path) -> measure.Process:
    """Start a worker for both kinds, and wait until it looks after tasks."""
    command = [sys.executable, Path(__file__).resolve(), "worker", place, herd, trickle]
    return measure.Process(command).await_ready()


def work(place: measure.Place, herd: Path, trickle: Path) -> None:
    """Run a worker until SIGTERM."""
    app = Tarry(measure.url(place))
    for kind, ledger in ((measure.KIND, Ledger(herd)), (TRICKLE, Ledger(trickle))):
        declare(app, kind, ledger)
    app.listen(say_ready)
    app.run_worker()
    app.close()


def declare(app: Tarry, kind: str, ledger: Ledger) -> None:
    """Give *app* a handler of *kind* that does nothing but mark the ledger."""

    @app.task(kind, key="{n}")
    async def run(n: int) -> None:
        ledger.mark(n)


def say_ready(event: Event) -> None:
    if isinstance(event, WorkerStarted):
        print("ready", flush=True)


if __name__ == "__main__":
    main()
