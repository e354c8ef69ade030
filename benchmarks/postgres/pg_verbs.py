"""Verbs on PostgreSQL: single schedules, schedule_many, and claims and settlements of 100.

Claims and settlements are those of one connection, with many tasks waiting in 20 kinds. Every claim
and schedule is synced; settlements commit relaxed.
"""

import argparse
import itertools
import statistics
import time
from contextlib import closing

from pg_server import serving

import measure  # isort: skip - the server's module has made it findable
from tarry.attempt import Done
from tarry.due import In
from tarry.request import Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef

BODY = b'{"n":"%s"}' % (b"x" * 92)
CALLS = itertools.count()


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--kinds", type=int, default=20)
    parser.add_argument("--operations", type=int, default=2_000, help="single calls of a round")
    parser.add_argument("--batch", type=int, default=40_000, help="tasks of a round of batches")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.operations, options.batch, options.rounds = 4_000, 100, 2_000, 2
    report = measure.Report(options)
    with serving(options) as server, closing(connect(server.url, namespace="bench")) as store:
        kinds = [f"kind.{number}" for number in range(options.kinds)]
        rates = [
            many(store, kinds, options.waiting // options.rounds, In(measure.HOUR_MS * 24))
            for _ in range(options.rounds)
        ]
        report.add("schedule_many", statistics.median(rates), "/s", "≥ 50,000/s")
        report.add("schedule_many_lowest", min(rates))
        rates = [single(store, options.operations) for _ in range(options.rounds)]
        report.add("schedule", statistics.median(rates), "/s", "twice PgQueuer's")
        rates = [cycles(store, kinds, options) for _ in range(options.rounds)]
        report.add("claim_and_settle", statistics.median(rates), "/s", "≥ 40,000/s")
        report.add("claim_and_settle_lowest", min(rates))
    report.show()


def many(store: Store, kinds: list[str], count: int, due: In) -> float:
    """Schedule *count* tasks in calls of 500; returns tasks per second."""
    began = time.perf_counter()
    for start in range(0, count, 500):
        kind = kinds[start // 500 % len(kinds)]
        number = next(CALLS)
        requests = [Request(TaskRef(kind, f"{number:08d}.{n}"), due, BODY) for n in range(500)]
        store.schedule(requests, call=f"many.{number}")
    return count / (time.perf_counter() - began)


def single(store: Store, count: int) -> float:
    """Schedule one task at a time."""
    began = time.perf_counter()
    for _ in range(count):
        number = next(CALLS)
        ref = TaskRef("kind.0", f"one.{number}")
        store.schedule([Request(ref, In(measure.HOUR_MS * 24), BODY)], call=f"one.{number}")
    return count / (time.perf_counter() - began)


def cycles(store: Store, kinds: list[str], options: argparse.Namespace) -> float:
    """Claim and settle what was made due, 100 at a time."""
    many(store, kinds, options.batch, In(0))
    done, began = 0, time.perf_counter()
    while done < options.batch:
        number = next(CALLS)
        claimed = store.claim(kinds, limit=100, lease_ms=30_000, holder="bench", call=number)
        store.settle([Settlement(lease, Done()) for lease in claimed.leases], call=f"s{number}")
        done += len(claimed.leases)
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
