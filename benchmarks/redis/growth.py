"""Growth: memory per task, and what each verb costs the server with few and with very many waiting.

Both next to the bare commands in the same run. The costs are the server's own processor time per
task in calls of 100: the client's part does not grow. A growth is many divided by few.
"""

import argparse
import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TypeVar

import above  # noqa: F401 - for the next imports
import measure
from raw import LEASE_MS, RawCommands
from redis_server import RedisServer, serving

from tarry.attempt import Done
from tarry.due import At
from tarry.lease import Lease
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef

TOGETHER = 100
BODY = b'{"n":"%s"}' % (b"x" * 92)
VERBS = ("schedule", "reschedule", "cancel", "claim", "settle")
Costs = dict[str, list[float]]
I = TypeVar("I")  # noqa: E741 - an item


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="for memory")
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=5_000_000)
    parser.add_argument("--operations", type=int, default=5_000, help="of each verb in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["memory", "verbs"])
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.few, options.many = 5_000, 1_000, 5_000
        options.operations, options.rounds = 500, 2
    report = measure.Report(options)
    for name, part in {"memory": memory, "verbs": verbs}.items():
        if options.only in (None, name):
            part(options, report)
    report.show()


# ---- memory


def memory(options: argparse.Namespace, report: measure.Report) -> None:
    """Bytes per waiting task with a body of 100 bytes, next to one ZSET entry and one field."""
    count, base = options.tasks, measure.now_ms() + measure.HOUR_MS
    report.note(f"memory of {count:,} tasks")
    with serving(options) as server:
        with closing(RawCommands(server.port, head=b"")) as raw:
            before = server.used_memory()
            raw.fill(count, BODY, base)
            bare = (server.used_memory() - before) / count
        # Without a call id nothing is remembered that would have to expire first.
        with closing(connect(server.url)) as store:
            before = server.used_memory()
            fill(store, count, base)
            own = (server.used_memory() - before) / count
            report.note("memory of the same tasks, with calls that can be repeated")
            before = server.used_memory()
            fill(store, count // 10, base, begin=count, remembered=True)
            remembered = (server.used_memory() - before) / (count // 10)
    report.add("memory", own, "bytes/task")
    report.add("memory_raw", bare, "bytes/task")
    report.add("memory_of_raw", own / bare, "times", "≤ 1.35")
    report.add("memory_for_30_s", max(0.0, remembered - own), "bytes/task")


def fill(store: Store, count: int, base: int, *, begin: int = 0, remembered: bool = False) -> None:
    """Let *count* tasks wait, a millisecond apart."""
    for start in range(begin, begin + count, measure.BATCH):
        some = range(start, min(start + measure.BATCH, begin + count))
        call = f"{start:024x}" if remembered else ""
        store.schedule([_request(n, base + n) for n in some], call=call)


# ---- verbs


def verbs(options: argparse.Namespace, report: measure.Report) -> None:
    """The server's processor time for each verb, few and many waiting."""
    found: dict[int, dict[str, Costs]] = {}
    for waits in (options.few, options.many):
        report.note(f"letting {waits:,} tasks wait, twice")
        base = measure.now_ms() + measure.HOUR_MS
        with (
            serving(options) as server,
            closing(connect(server.url)) as store,
            closing(RawCommands(server.port)) as raw,
        ):
            fill(store, waits, base)
            raw.fill(waits, BODY, base)
            report.note("the verbs")
            sides: dict[str, Tarry | Raw] = {
                "tarry": Tarry(server, store, waits, base),
                "raw": Raw(server, raw, waits, base),
            }
            found[waits] = in_turns(sides, options)
    few, many = found[options.few], found[options.many]
    for verb in VERBS:
        medians = {
            (name, waits): statistics.median(found[waits][name][verb])
            for waits in found
            for name in ("tarry", "raw")
        }
        for (name, waits), value in medians.items():
            size = "few" if waits == options.few else "many"
            report.add(f"{verb}_{name}_{size}", value, "µs/task")
        grown = {
            name: statistics.median(many[name][verb]) / statistics.median(few[name][verb])
            for name in ("tarry", "raw")
        }
        report.add(f"{verb}_growth", grown["tarry"], "times")
        report.add(f"{verb}_growth_raw", grown["raw"], "times")
        report.add(f"{verb}_growth_of_raw", grown["tarry"] / grown["raw"], "times", "≤ 1.2")


def in_turns(sides: dict[str, "Tarry | Raw"], options: argparse.Namespace) -> dict[str, Costs]:
    """Return what each verb of each side costs in each round, the first not counted."""
    found: dict[str, Costs] = {name: {verb: [] for verb in VERBS} for name in sides}
    for turn in range(options.rounds + 1):
        for name in list(sides) if turn % 2 else list(reversed(sides)):
            costs = sides[name].round(options.operations)
            if turn:
                for verb, cost in costs.items():
                    found[name][verb].append(cost)
    return found


class Tarry:
    """A round of all verbs; as many wait after it as before."""

    def __init__(self, server: RedisServer, store: Store, waits: int, base: int) -> None:
        self._server, self._store = server, store
        self._waits, self._base = waits, base
        self._chance = random.Random(1)
        self._calls = itertools.count(1)

    def round(self, count: int) -> dict[str, float]:
        """Return the microseconds per task of each verb."""
        store, chance, waits, base = self._store, self._chance, self._waits, self._base
        new = [_request(n, base + chance.randrange(waits), "new") for n in range(count)]
        some = chance.sample(range(waits), count)
        moves = [Move(_request(n, 0).ref, At(base + chance.randrange(waits))) for n in some]
        gone = [Cancellation(request.ref) for request in new]
        due = [_request(n, measure.now_ms() - 1_000, "due") for n in range(count)]
        costs = {
            "schedule": self._cost(new, lambda part: store.schedule(part, call=self._call())),
            "reschedule": self._cost(moves, lambda part: store.reschedule(part, call=self._call())),
            "cancel": self._cost(gone, lambda part: store.cancel(part, call=self._call())),
        }
        for start in range(0, count, measure.BATCH):
            store.schedule(due[start : start + measure.BATCH])
        leases: list[Lease] = []
        costs["claim"] = self._cost(due, lambda part: leases.extend(self._claim(len(part))))
        ends = [Settlement(lease, Done()) for lease in leases]
        costs["settle"] = self._cost(ends, lambda part: store.settle(part, call=self._call()))
        if len(leases) != count:
            raise SystemExit("not every due task was claimed")
        return costs

    def _claim(self, limit: int) -> Sequence[Lease]:
        return self._store.claim(
            [measure.KIND],
            limit=limit,
            lease_ms=LEASE_MS,
            holder="bench",
            call=next(self._calls),
        ).leases

    def _call(self) -> str:
        return f"{next(self._calls):024x}"

    def _cost(self, items: Sequence[I], verb: Callable[[Sequence[I]], object]) -> float:
        return cost(self._server, items, verb)


class Raw:
    """The same by bare commands."""

    def __init__(self, server: RedisServer, raw: RawCommands, waits: int, base: int) -> None:
        self._server, self._raw = server, raw
        self._waits, self._base = waits, base
        self._chance = random.Random(1)

    def round(self, count: int) -> dict[str, float]:
        """Return the microseconds per task of each verb."""
        raw, chance, waits, base = self._raw, self._chance, self._waits, self._base
        dues = [base + chance.randrange(waits) for _ in range(count)]
        new = raw.batches(dues, BODY, begin=10**10, size=TOGETHER)
        moves = [
            (f"w{n:012d}", base + chance.randrange(waits))
            for n in chance.sample(range(waits), count)
        ]
        gone = [f"w{n:012d}" for n in range(10**10, 10**10 + count)]
        server = self._server
        costs = {
            "schedule": cost(server, new, raw.schedule, each=1) / TOGETHER,
            "reschedule": cost(server, moves, lambda part: raw.reschedule(part, BODY)),
            "cancel": cost(server, gone, raw.cancel),
        }
        now = measure.now_ms() - 1_000
        raw.schedule(raw.batches([now] * count, BODY, begin=10**11, size=measure.BATCH))
        keys: list[bytes] = []
        costs["claim"] = cost(server, range(count), lambda part: keys.extend(raw.claim(len(part))))
        costs["settle"] = cost(server, keys, raw.settle)
        return costs


def cost(
    server: RedisServer,
    items: Sequence[I],
    verb: Callable[[Sequence[I]], object],
    *,
    each: int = TOGETHER,
) -> float:
    """Return the microseconds of the server's processor time per item, in calls of *each*."""
    before = server.process.cpu_seconds()
    for start in range(0, len(items), each):
        verb(items[start : start + each])
    return (server.process.cpu_seconds() - before) * 1e6 / len(items)


def _request(n: int, due: int, suffix: str = "") -> Request:
    return Request(TaskRef(measure.KIND, f"w{n:012d}{suffix}"), At(due), BODY)


if __name__ == "__main__":
    main()
