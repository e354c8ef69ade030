"""Lateness on PostgreSQL: the clock at the handler's first line minus due, many waiting.

Dues are random milliseconds, scheduled well ahead; every claim is synced.
"""

from pg_server import serving

import measure  # isort: skip - the server's module has made it findable
from ledger import Ledger  # isort: skip

GOALS = {50: "≤ 2 ms", 99: "≤ 10 ms"}


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.seconds = 2_000, 1.0
    report = measure.Report(options)
    count = int(options.rate * options.seconds)
    with serving(options) as server, measure.scratch(options) as folder:
        measure.fill(server.url, options.waiting)
        ledger = Ledger.create(folder / "ledger", count)
        with measure.worker(server.url, ledger.path), measure.app_on(server.url) as app:
            first = measure.now_ms() + 3_000 + count // 4
            dues = measure.spread(count, first, int(options.seconds * 1_000))
            measure.place(app, dues)
            if measure.now_ms() > first - 200:
                raise SystemExit("the tasks were not scheduled in time: is the machine busy?")
            if not ledger.wait(count, seconds=options.seconds + 60, every=0.5):
                raise SystemExit(f"only {ledger.ran():,} of {count:,} tasks ran")
        late = measure.lateness_ms(dues, ledger.first())
        for percent, goal in GOALS.items():
            report.add(f"p{percent}", measure.percentile(late, percent), "ms", goal)
        report.add("max", max(late), "ms")
        report.add("early", sum(value < 0 for value in late), "tasks", "0")
    report.show()


if __name__ == "__main__":
    main()
