"""Blocking: how long the server does nothing else while it runs one call of each verb.

By the server's own slow log, at the largest batches a client sends: 500 items or 1 MiB a call, and
a claim of 1,000; the worker's own are of at most 250. "Careful" is what is not plain: tasks that
are replaced, retries, leases that ran out. The slow log counts what other processes take from the
server, too; the processor time does not, but has the call's arguments and answer in it.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import above  # noqa: F401 - for the next imports
import measure
from redis_server import RedisServer, serving

from tarry.attempt import Dead, Done, Retry
from tarry.due import At, In
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.store import CHUNK, CHUNK_BYTES, Store
from tarry.task import TaskRef

MOST_CLAIMED = 1_000
WORKERS_MOST = 250
BODY = b'{"n":"%s"}' % (b"x" * 92)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=20, help="calls of each; the longest counts")
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.repeat = 2_000, 2
    report = measure.Report(options)
    with serving(options, slowlog_max_len="100000") as server:
        report.note(f"letting {options.waiting:,} tasks wait")
        measure.fill(server.url, options.waiting)
        with closing(connect(server.url)) as store:
            report.note("the largest calls")
            calls = Calls(server, store)
            calls.run(options)
    for name, took in calls.found.items():
        report.add(name, max(took) / 1_000, "ms", "≤ 10 ms")
        report.add(f"{name}_median", statistics.median(took) / 1_000, "ms")
        report.add(f"{name}_processor", statistics.median(calls.used[name]) / 1_000, "ms")
    report.show()


class Calls:
    """The largest calls of each verb, and what the slow log says of them."""

    def __init__(self, server: RedisServer, store: Store) -> None:
        self._server, self._store = server, store
        self.found: dict[str, list[float]] = {}
        """Microseconds of each call by the slow log, by name."""
        self.used: dict[str, list[float]] = {}
        """Microseconds of the server's processor, what is around the call included."""
        self._calls = itertools.count(1)

    def run(self, options: argparse.Namespace) -> None:
        """Make all calls."""
        base = measure.now_ms() + measure.HOUR_MS
        for turn in range(options.repeat):
            self._callers_verbs(base, turn)
            self._workers_verbs(base, turn)

    def _callers_verbs(self, base: int, turn: int) -> None:
        store = self._store
        refs = [TaskRef(measure.KIND, f"c{turn}-{n}") for n in range(CHUNK)]
        new = [Request(ref, At(base + n * 977), BODY) for n, ref in enumerate(refs)]
        large = b'{"n":"%s"}' % (b"x" * (CHUNK_BYTES // CHUNK - 8))
        heavy = [Request(TaskRef(measure.KIND, f"h{n}"), At(base), large) for n in range(CHUNK)]
        giant = b'{"n":"%s"}' % (b"x" * ((1 << 18) - 8))
        few = [Request(TaskRef(measure.KIND, f"g{n}"), At(base), giant) for n in range(4)]
        gone = [Cancellation(ref) for ref in refs]
        self._tell("schedule", lambda: store.schedule(new, call=self._call()))
        self._tell("schedule_careful", lambda: store.schedule(new, call=self._call()))
        self._tell("schedule_1_mib", lambda: store.schedule(heavy, call=self._call()))
        self._tell("schedule_1_mib_of_4", lambda: store.schedule(few, call=self._call()))
        moves = [Move(ref, At(base + n * 1_009)) for n, ref in enumerate(refs)]
        self._tell("reschedule", lambda: store.reschedule(moves, call=self._call()))
        self._tell("cancel", lambda: store.cancel(gone, call=self._call()))
        for requests in (heavy, few):
            store.cancel([Cancellation(request.ref) for request in requests])

    def _workers_verbs(self, base: int, turn: int) -> None:
        store = self._store
        leases = self._due(turn)
        leases += self._due(turn, name="", first=len(leases))
        self._tell("renew", lambda: store.renew(leases[:CHUNK], lease_ms=60_000))
        done = [Settlement(lease, Done()) for lease in leases[:CHUNK]]
        self._tell("settle", lambda: store.settle(done, call=self._call()))
        again = [Settlement(lease, Retry(In(base), "once more")) for lease in leases[CHUNK:]]
        self._tell("settle_careful", lambda: store.settle(again[:CHUNK], call=self._call()))
        dead = [Settlement(lease, Dead("over")) for lease in leases[2 * CHUNK :]][:CHUNK]
        self._tell("settle_dead", lambda: store.settle(dead, call=self._call()))
        letters = [DeadRef(settlement.lease.ref) for settlement in dead]
        self._tell("revive", lambda: store.revive(letters, call=self._call()))
        store.settle([Settlement(lease, Done()) for lease in leases[3 * CHUNK :]])
        self._clear([lease.task.ref for lease in leases])
        leases = self._due(turn, WORKERS_MOST)
        store.settle([Settlement(lease, Done()) for lease in leases])
        self._due(turn, CHUNK, lease_ms=1, name="")
        time.sleep(0.01)
        self._tell("claim_reclaims", lambda: self._claim(CHUNK, 60_000))
        self._clear([TaskRef(measure.KIND, f"d{turn}-{n}") for n in range(CHUNK)])

    def _due(
        self,
        turn: int,
        count: int = MOST_CLAIMED,
        *,
        lease_ms: int = 60_000,
        name: str = "claim",
        first: int = 0,
    ) -> list[Lease]:
        """Place due tasks, and claim them in one call."""
        now, store = measure.now_ms() - 1_000, self._store
        for start in range(first, first + count, CHUNK):
            store.schedule(
                [
                    Request(TaskRef(measure.KIND, f"d{turn}-{n}"), At(now), BODY)
                    for n in range(start, min(start + CHUNK, first + count))
                ]
            )
        leases: list[Lease] = []
        if name:
            said = f"{name}_{count}"
            self._tell(said, lambda: leases.extend(self._claim(count, lease_ms)))
        else:
            leases += self._claim(count, lease_ms)
        if len(leases) != count:
            raise SystemExit(f"{len(leases)} of {count} due tasks were claimed")
        return leases

    def _claim(self, limit: int, lease_ms: int) -> list[Lease]:
        claimed = self._store.claim(
            [measure.KIND], limit=limit, lease_ms=lease_ms, holder="b", call=next(self._calls)
        )
        return list(claimed.leases)

    def _clear(self, refs: list[TaskRef]) -> None:
        for start in range(0, len(refs), CHUNK):
            self._store.cancel([Cancellation(ref) for ref in refs[start : start + CHUNK]])

    def _call(self) -> str:
        return f"{next(self._calls):024x}"

    def _tell(self, name: str, call: Callable[[], object]) -> None:
        """Make a call, and note the longest command the server saw meanwhile."""
        with closing(self._server.client()) as client:
            client.config_set("slowlog-log-slower-than", 0)
            client.slowlog_reset()
            before = self._server.process.cpu_seconds()
            call()
            used = self._server.process.cpu_seconds() - before
            client.config_set("slowlog-log-slower-than", -1)
            entries: Any = client.slowlog_get(1_000)
        scripts = [e["duration"] for e in entries if e["command"].startswith(b"EVAL")]
        if not scripts:
            raise SystemExit(f"the slow log has nothing of {name}")
        self.found.setdefault(name, []).append(max(scripts))
        self.used.setdefault(name, []).append(used * 1e6)


if __name__ == "__main__":
    main()
