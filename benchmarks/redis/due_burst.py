"""Burst on Redis: tasks due at one instant, others waiting; executed/s, and how late the last is.

The worker is a process of its own and waits before the instant; the producer is quiet by then.
"""

import argparse
import statistics
from pathlib import Path

import above  # noqa: F401 - for the next imports
import measure
from ledger import Ledger
from redis_server import RedisServer, serving


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--few", type=int, default=5_000, help="of the smaller burst")
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; the median counts")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.few, options.waiting, options.repeat = 2_000, 500, 1_000, 1
    report = measure.Report(options)
    with serving(options) as server, measure.scratch(options) as folder:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(server.url, options.waiting)
        for handler in ("async", "sync"):
            runs = [
                burst(server, folder, options, options.tasks, handler, report)
                for _ in range(options.repeat)
            ]
            rates = [options.tasks / run["seconds"] for run in runs]
            goal = "≥ 20,000/s" if handler == "async" else ""
            report.add(handler, statistics.median(rates), "/s", goal)
            report.add(f"{handler}_lowest", min(rates))
            report.add(f"{handler}_highest", max(rates))
            for name in ("first_ms", "worker_us", "server_us"):
                unit = "ms" if name == "first_ms" else "µs/task"
                report.add(f"{handler}_{name}", statistics.median(r[name] for r in runs), unit)
            runs = [
                burst(server, folder, options, options.few, handler, report)
                for _ in range(options.repeat)
            ]
            last = [run["seconds"] for run in runs]
            report.add(f"{handler}_few_last", statistics.median(last), "s", "≤ 0.5 s")
            report.add(f"{handler}_few_last_highest", max(last), "s")
    report.show()


def burst(
    server: RedisServer,
    folder: Path,
    options: argparse.Namespace,
    tasks: int,
    handler: str,
    report: measure.Report,
) -> dict[str, float]:
    """Return when the first and the last task started, and what processor time they took."""
    ledger = Ledger.create(folder / "ledger", tasks)
    settings = ("--handler", handler, "--concurrency", options.concurrency)
    with (
        measure.worker(server.url, ledger.path, *settings) as worker,
        measure.app_on(server.url) as app,
    ):
        instant = measure.now_ms() + 1_500 + tasks // 10
        measure.place(app, [instant] * tasks)
        spare = instant - measure.now_ms()
        report.note(f"{handler}: {tasks:,} due in {spare} ms")
        if spare < 500:
            raise SystemExit("the burst was not scheduled in time: is the machine busy?")
        used = worker.cpu_seconds(), server.process.cpu_seconds()
        if not ledger.wait(tasks, seconds=60 + spare / 1_000, every=0.2):
            raise SystemExit(f"only {ledger.ran():,} of {tasks:,} tasks ran")
        measure.wait_empty(app, options.waiting, 5)
        working = worker.cpu_seconds() - used[0]
        serving_them = server.process.cpu_seconds() - used[1]
    starts = [(start - instant * 1_000_000) / 1e9 for start in ledger.first()]
    if max(ledger.runs()) > 1 or min(starts) < 0:
        raise SystemExit("a task ran twice or early")
    return {
        "first_ms": min(starts) * 1_000,
        "seconds": max(starts),
        "worker_us": working * 1e6 / tasks,
        "server_us": serving_them * 1e6 / tasks,
    }


if __name__ == "__main__":
    main()
