"""Verbs on MariaDB: single calls, schedule_many, claim and settle with many tasks waiting.

single: one caller, every commit synced. many: schedule_many in batches of 500. batches: claim and
settle, 100 at a time, one kind and twenty. A joined schedule is measured in a plain connection.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count

import above_mysql  # noqa: F401 - for the next imports
import measure
import pymysql
from mysql_serving import serving

from tarry.attempt import Done
from tarry.due import At, In
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.mysql.store import MysqlStore
from tarry.stores.mysql.url import parse
from tarry.stores.store import CHUNK
from tarry.task import TaskRef

BODY = b'{"n":"%s"}' % (b"x" * 92)
TOGETHER = 100
KINDS = 20


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--operations", type=int, default=1_000, help="single calls of a round")
    parser.add_argument("--batch", type=int, default=20_000, help="tasks of a round of batches")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.operations, options.batch, options.rounds = 2_000, 50, 1_000, 2
    report = measure.Report(options)
    with serving() as server, closing(MysqlStore(parse(server.url), namespace="bench")) as store:
        single(store, server.port, options, report)
        fill(store, options.waiting)
        report.note(f"with {options.waiting:,} waiting")
        many(store, options, report)
        for kinds in (1, KINDS):
            batches(store, kinds, options, report)
    report.show()


def fill(store: MysqlStore, waiting: int) -> None:
    """Let tasks wait from an hour ahead on."""
    base = measure.now_ms() + measure.HOUR_MS
    for start in range(0, waiting, CHUNK):
        numbers = range(start, min(start + CHUNK, waiting))
        store.schedule([_request("waiting", n, At(base + n)) for n in numbers])


def _request(kind: str, n: int, due: At | In) -> Request:
    return Request(TaskRef(kind, f"order:{n:09d}"), due, BODY)


def _rate(act: Callable[[int], object], operations: int, rounds: int) -> float:
    rates = []
    numbers = count()
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(operations):
            act(next(numbers))
        rates.append(operations / (time.perf_counter() - began))
    return statistics.median(rates)


def single(
    store: MysqlStore, port: int, options: argparse.Namespace, report: measure.Report
) -> None:
    """One call after the other."""
    hour = In(measure.HOUR_MS)
    acts: dict[str, Callable[[int], object]] = {
        "schedule": lambda n: store.schedule([_request("one", n, hour)], call=f"s{n}"),
        "reschedule": lambda n: store.reschedule(
            [Move(TaskRef("one", f"order:{n:09d}"), hour)], call=f"m{n}"
        ),
        "cancel": lambda n: store.cancel(
            [Cancellation(TaskRef("one", f"order:{n:09d}"))], call=f"c{n}"
        ),
    }
    for name, act in acts.items():
        report.add(name, _rate(act, options.operations, options.rounds))
    with closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as caller:

        def joined(n: int) -> None:
            steps = store.join_schedule([_request("joined", n, hour)])
            with caller.cursor() as cursor:
                statement = next(steps)
                cursor.execute(statement.sql, statement.values)
                try:
                    steps.send(cursor.fetchall())
                except StopIteration:
                    return
                raise SystemExit("a joined schedule needed a second statement")

        joined(10**8)
        caller.commit()
        report.add("joined_schedule", _rate(joined, options.operations, options.rounds))
        caller.commit()


def many(store: MysqlStore, options: argparse.Namespace, report: measure.Report) -> None:
    """Batches of 500, as schedule_many sends them."""
    rates = []
    for turn in range(options.rounds):
        base = turn * options.batch
        steps = [
            [_request("many", n, At(measure.now_ms() + measure.HOUR_MS + n)) for n in range(a, b)]
            for a, b in _parts(base, options.batch)
        ]
        began = time.perf_counter()
        for number, step in enumerate(steps):
            store.schedule(step, call=f"many{turn}.{number}")
        rates.append(options.batch / (time.perf_counter() - began))
    report.add("schedule_many", statistics.median(rates), "/s", "≥ 25,000/s")


def _parts(base: int, length: int) -> list[tuple[int, int]]:
    ends = range(base, base + length, CHUNK)
    return [(start, min(start + CHUNK, base + length)) for start in ends]


def batches(
    store: MysqlStore, kinds: int, options: argparse.Namespace, report: measure.Report
) -> None:
    """Claim and settle, 100 at a time."""
    names = [f"due.{kinds}.{n}" for n in range(kinds)]
    claims, settles, both = [], [], []
    numbers = count(1)
    for turn in range(options.rounds):
        for a, b in _parts(turn * options.batch, options.batch):
            store.schedule([_request(names[n % kinds], n, In(0)) for n in range(a, b)])
        spent = [0.0, 0.0]
        left = options.batch
        while left:
            began = time.perf_counter()
            claimed = store.claim(
                names, limit=TOGETHER, lease_ms=60_000, holder=f"w{kinds}", call=next(numbers)
            )
            between = time.perf_counter()
            settled = [Settlement(lease, Done()) for lease in claimed.leases]
            store.settle(settled, call=f"d{kinds}.{turn}.{left}")
            spent[0] += between - began
            spent[1] += time.perf_counter() - between
            left -= len(claimed.leases)
        claims.append(options.batch / spent[0])
        settles.append(options.batch / spent[1])
        both.append(options.batch / sum(spent))
    report.add(f"claim_{kinds}_kinds", statistics.median(claims))
    report.add(f"settle_{kinds}_kinds", statistics.median(settles))
    report.add(f"claim_settle_{kinds}_kinds", statistics.median(both), "/s", "≥ 12,000/s")


if __name__ == "__main__":
    main()
