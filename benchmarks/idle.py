"""Idle: what tarry costs with little to do: claims, memory, processor, imports, virtual time."""

import argparse
import statistics
import subprocess
import sys
import time
from array import array
from contextlib import ExitStack
from pathlib import Path

import measure
from ledger import Ledger

from tarry import Tarry
from tarry.testing import virtual

Options = argparse.Namespace


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the idle workers' load")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--waiting", type=int, nargs=2, default=[100_000, 1_000_000])
    parser.add_argument("--virtual", type=int, default=100_000, help="tasks in virtual time")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="a part of it")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.rate, options.seconds = 3, 200, 1.0
        options.idle_seconds, options.waiting, options.virtual = 1.0, [1_000, 2_000], 2_000
    report = measure.Report(options)
    for part in PARTS:
        if options.only in (None, part.__name__):
            with measure.scratch(options) as folder:
                part(folder, options, report)
    report.show()


def claims(folder: Path, options: Options, report: measure.Report) -> None:
    """Several workers share a steady rate: claim calls in total, and lateness."""
    report.note(f"{options.workers} workers, {options.rate}/s for {options.seconds:g} s")
    path, count = folder / "tarry.db", int(options.rate * options.seconds)
    ledger = Ledger.create(folder / "ledger", count)
    logs = [folder / f"claims-{n}" for n in range(options.workers)]
    with measure.app_on(path) as app, ExitStack() as stack:
        app.store.counts()
        workers = [
            stack.enter_context(measure.begin_worker(path, ledger.path, "--claims", log))
            for log in logs
        ]
        for worker in workers:
            worker.await_ready()
        first = measure.now_ms() + 2_000 + count // 4
        dues = measure.spread(count, first, int(options.seconds * 1_000))
        measure.place(app, dues)
        if not ledger.wait(count, seconds=options.seconds + 60, every=0.5):
            raise SystemExit(f"only {ledger.ran():,} of {count:,} tasks ran")
    calls = _claims_between(logs, first / 1_000, first / 1_000 + options.seconds)
    late = measure.lateness_ms(dues, ledger.first())
    report.add("claims", calls / options.seconds, "/s", "≤ 2,000/s in total")
    report.add("claims_per_task", calls / count, "")
    report.add("claims_p50", measure.percentile(late, 50), "ms")
    report.add("claims_p99", measure.percentile(late, 99), "ms", "≤ 15 ms")
    report.add("claims_max", max(late), "ms")
    report.add("claims_early", sum(value < 0 for value in late), "tasks", "0")


def _claims_between(logs: list[Path], first: float, last: float) -> int:
    calls = 0
    for log in logs:
        times = array("d")
        times.frombytes(log.read_bytes())
        calls += sum(first <= instant < last for instant in times)
    return calls


def memory(folder: Path, options: Options, report: measure.Report) -> None:
    """A worker that has run some tasks: resident memory with nothing waiting, and with a lot."""
    few, lot = 0, options.waiting[1]
    found = []
    for waits in (few, lot):
        report.note(f"memory with {waits:,} waiting")
        path = folder / f"memory-{waits}.db"
        measure.fill(path, waits)
        ledger = Ledger.create(folder / "ledger", 1_000)
        with measure.worker(path, ledger.path) as worker, measure.app_on(path) as app:
            measure.place(app, [measure.now_ms()] * 1_000)
            if not ledger.wait(1_000, seconds=60):
                raise SystemExit("the worker ran nothing")
            time.sleep(min(2.0, options.idle_seconds))
            found.append(worker.rss_kb() / 1_024)
    report.add("rss_none_waiting", found[0], "MB")
    report.add("rss_many_waiting", found[1], "MB")
    report.add("rss_difference", found[1] - found[0], "MB", "≤ 20 MB")


def processor(folder: Path, options: Options, report: measure.Report) -> None:
    """A worker with nothing due: seconds of processor time."""
    waits, seconds = options.waiting[0], options.idle_seconds
    report.note(f"idle for {seconds:g} s with {waits:,} waiting")
    measure.fill(folder / "tarry.db", waits)
    ledger = Ledger.create(folder / "ledger", 1)
    with measure.worker(folder / "tarry.db", ledger.path) as worker:
        # Starting is not idling.
        time.sleep(1.0)
        before = worker.cpu_seconds()
        time.sleep(seconds)
        report.add("idle_cpu", worker.cpu_seconds() - before, "s", "≤ 0.1 s")


def imports(folder: Path, options: Options, report: measure.Report) -> None:
    """The time of `import tarry`, and of whole processes."""
    del folder
    repeat = 3 if options.quick else 11
    report.note("imports")
    for name, line, goal in (
        ("import", "import tarry", "≤ 150 ms"),
        # The package may import lazily: this is what a producer pays in the end.
        ("import_and_connect", "import tarry; tarry.Tarry('memory:').store", ""),
    ):
        inside = f"import time; t = time.perf_counter(); {line}; print(time.perf_counter() - t)"
        took = [float(_run("-c", inside)[1]) for _ in range(repeat + 1)][1:]
        report.add(name, 1_000 * statistics.median(took), "ms", goal)
    for name, words, goal in (
        ("help", ("-m", "tarry", "--help"), "≤ 200 ms"),
        ("python_alone", ("-c", "pass"), ""),
    ):
        walls = [_run(*words)[0] for _ in range(repeat)]
        report.add(name, 1_000 * statistics.median(walls), "ms", goal)


def _run(*words: str) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def virtual_time(folder: Path, options: Options, report: measure.Report) -> None:
    """A test over seven virtual days, and many virtual tasks."""
    del folder
    report.note("virtual time")
    took = [_seven_days() for _ in range(3 if options.quick else 21)]
    report.add("virtual_7d_first", 1_000 * took[0], "ms", "≤ 5 ms")
    report.add("virtual_7d", 1_000 * statistics.median(took), "ms", "≤ 5 ms")
    scheduling, advancing = _many_virtual(options.virtual)
    report.add("virtual_many_scheduled", scheduling, "s")
    report.add("virtual_many_advanced", advancing, "s", f"≤ 3 s ({options.virtual:,} tasks)")


def _seven_days() -> float:
    """Return the seconds of a test as people write it."""
    ran: list[int] = []
    app = Tarry("memory:")

    @app.task(key="{loan}")
    def overdue(loan: int) -> None:
        ran.append(loan)

    began = time.perf_counter()
    with virtual(app) as time_machine:
        overdue.schedule("7d", 1)
        time_machine.assert_scheduled(overdue, 1, due="7d")
        time_machine.advance("6d")
        assert not ran
        time_machine.advance("1d")
        assert ran == [1]
        time_machine.assert_nothing_pending()
    return time.perf_counter() - began


def _many_virtual(count: int) -> tuple[float, float]:
    """Return the seconds of scheduling and of advancing *count* tasks over a week."""
    ran: list[int] = []
    app = Tarry("memory:")

    @app.task(key="{n}")
    def note(n: int) -> None:
        ran.append(n)

    with virtual(app) as time_machine:
        began = time.perf_counter()
        first = time_machine.now() + 1
        dues = measure.spread(count, first, 7 * 24 * measure.HOUR_MS)
        app.schedule_many(note.build((due - first) / 1_000, n) for n, due in enumerate(dues))
        scheduled = time.perf_counter()
        time_machine.advance("7d")
        advanced = time.perf_counter()
    assert len(ran) == count
    return scheduled - began, advanced - scheduled


PARTS = (claims, memory, processor, imports, virtual_time)

if __name__ == "__main__":
    main()
