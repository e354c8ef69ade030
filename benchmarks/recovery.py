"""Recovery: `kill -9` of the worker in the middle of a burst, and a new worker at once.

Counts what is missing, what ran twice and whether that was in flight (leased at the kill), and
the time from the kill to the last first run.
"""

import argparse
import time
from pathlib import Path

import measure
from ledger import Ledger

from tarry import Tarry
from tarry.stores.store import Filter
from tarry.task import TaskState


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds")
    parser.add_argument("--handler", choices=["async", "sync"], default="sync")
    parser.add_argument("--pause-ms", type=float, default=1.0, help="how long a handler takes")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.lease = 1_000, 1.0
    report = measure.Report(options)
    with measure.scratch(options) as folder, measure.app_on(folder / "tarry.db") as app:
        ledger = Ledger.create(folder / "ledger", options.tasks)
        killed, held = break_off(folder, app, ledger, options, report)
    runs, starts = ledger.runs(), ledger.first()
    twice = {str(n) for n, count in enumerate(runs) if count > 1}
    report.add("missing", runs.count(0), "tasks", "0")
    report.add("twice", len(twice), "tasks", "only what was in flight")
    report.add("in_flight_at_kill", len(held), "tasks")
    report.add("twice_not_in_flight", len(twice - held), "tasks", "0")
    report.add("most_runs_of_one", max(runs), "", "2")
    limit = f"≤ {options.lease + 2:g} s"
    report.add("kill_to_last_first_run", (max(starts) - killed) / 1e9, "s", limit)
    report.add("kill_to_last_run", (max(ledger.last()) - killed) / 1e9, "s")
    report.show()


def break_off(
    folder: Path, app: Tarry, ledger: Ledger, options: argparse.Namespace, report: measure.Report
) -> tuple[int, set[str]]:
    """Return when the first worker was killed, and what it held then; all is over afterwards."""
    settings = ["--handler", options.handler, "--pause-ms", options.pause_ms]
    settings += ["--lease", f"{int(options.lease * 1_000)}ms"]
    with measure.worker(folder / "tarry.db", ledger.path, *settings) as first:
        instant = measure.now_ms() + 2_000
        measure.place(app, [instant] * options.tasks)
        if not ledger.wait(options.tasks // 5, seconds=30, every=0.001):
            raise SystemExit("the burst did not begin")
        first.kill()
        killed = time.time_ns()
        report.note(f"killed after {ledger.ran():,} of {options.tasks:,}")
        # Some milliseconds: the new worker must not hold anything yet.
        held = leased(app)
        with measure.begin_worker(folder / "tarry.db", ledger.path, *settings):
            if not measure.wait_empty(app, 0, options.lease + 30):
                report.note("gave up: tasks are left")
    return killed, held


def leased(app: Tarry) -> set[str]:
    """Return the keys of the tasks under a lease."""
    found: set[str] = set()
    cursor = None
    while True:
        page = app.store.scan(Filter(TaskState.LEASED), cursor=cursor, limit=500)
        found |= {task.ref.key for task in page.tasks}
        if page.cursor is None:
            return found
        cursor = page.cursor


if __name__ == "__main__":
    main()
