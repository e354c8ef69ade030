"""Rest: what a worker and its Redis use of the processor with nothing due, and Redis alone."""

import time

import above  # noqa: F401 - for the next imports
import measure
from ledger import Ledger
from redis_server import serving


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.seconds = 1_000, 1.0
    report = measure.Report(options)
    with serving(options) as server, measure.scratch(options) as folder:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(server.url, options.waiting)
        report.note(f"Redis alone for {options.seconds:g} s")
        time.sleep(1.0)
        before = server.process.cpu_seconds()
        time.sleep(options.seconds)
        report.add("redis_alone", server.process.cpu_seconds() - before, "s")
        ledger = Ledger.create(folder / "ledger", 1)
        with measure.worker(server.url, ledger.path) as worker:
            report.note(f"with an idle worker for {options.seconds:g} s")
            # Starting is not idling.
            time.sleep(1.0)
            used = worker.cpu_seconds(), server.process.cpu_seconds()
            calls = int(server.info("stats")["total_commands_processed"])
            time.sleep(options.seconds)
            working = worker.cpu_seconds() - used[0]
            serving_it = server.process.cpu_seconds() - used[1]
            commands = int(server.info("stats")["total_commands_processed"]) - calls
    report.add("worker", working, "s")
    report.add("redis", serving_it, "s")
    report.add("both", working + serving_it, "s", "≤ 0.15 s")
    # Telling the number is a command, too.
    report.add("commands", commands - 1, "")
    report.show()


if __name__ == "__main__":
    main()
