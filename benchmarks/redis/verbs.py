"""Verbs: schedule, cancel, reschedule, claim and settle, next to the bare commands they replace.

single: one caller; the same script through the driver's high-level client. coroutines: 50 callers
on one loop. many: schedule_many with many waiting. batches: claim and settle, 100 at a time.
Sides take turns on one server; a ratio is taken in each round, and the median of those counts.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from typing import Any, cast

import above  # noqa: F401 - for the next imports
import measure
from raw import LEASE_MS, RawCommands
from redis_server import RedisServer, serving
from used import Used

from tarry.api.function import TaskFunction
from tarry.attempt import Done
from tarry.due import At
from tarry.lease import Lease
from tarry.request import Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.redis.layout import prefix
from tarry.stores.redis.scripts import script
from tarry.stores.store import Store
from tarry.task import TaskRef

CALLERS = 50
TOGETHER = 100
BODY = b'{"n":"%s"}' % (b"x" * 92)
Function = TaskFunction[..., ..., ..., Any]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="for many and batches")
    parser.add_argument("--operations", type=int, default=4_000, help="single calls of a round")
    parser.add_argument("--batch", type=int, default=20_000, help="tasks of a round of batches")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["single", "coroutines", "many", "batches"])
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.operations, options.batch = 2_000, 200, 1_000
        options.rounds = 2
    report = measure.Report(options)
    parts = {"single": single, "coroutines": coroutines, "many": many, "batches": batches}
    for name, part in parts.items():
        if options.only in (None, name):
            with serving(options) as server:
                part(server, options, report)
    report.show()


def tell(
    report: measure.Report, name: str, rates: dict[str, list[float]], other: str, goal: str
) -> None:
    """Report the rate of tarry and of the *other* side, and what one is of the other."""
    shares = [100 * a / b for a, b in zip(rates["tarry"], rates[other], strict=True)]
    report.add(f"{name}_{other}", statistics.median(rates[other]))
    report.add(f"{name}_of_{other}", statistics.median(shares), "%", goal)
    report.add(f"{name}_of_{other}_lowest", min(shares), "%")
    report.add(f"{name}_of_{other}_highest", max(shares), "%")


# ---- one caller


def single(server: RedisServer, options: argparse.Namespace, report: measure.Report) -> None:
    """One call at a time: the app, the store below it, the script through the driver's client."""
    report.note("single calls")
    with (
        measure.app_on(server.url) as app,
        closing(connect(server.url, namespace="store")) as store,
        closing(ScriptCalls(server)) as calls,
    ):
        used = {"tarry": Used(server), "script": calls.used}
        task, numbers, ids = _task(app), itertools.count(), itertools.count()

        def below(n: int) -> None:
            request = Request(TaskRef(measure.KIND, str(n)), At(now + n), b'{"n":%d}' % n)
            store.schedule([request], call=f"{n:024x}")

        now = measure.now_ms() + measure.HOUR_MS
        sides: dict[str, measure.Side] = {
            "tarry": _timed(lambda n: task.schedule("1h", n), numbers, used["tarry"]),
            "script": calls,
            "store": _timed(below, ids),
        }
        rates = measure.in_turns(sides, operations=options.operations, rounds=options.rounds)
        report.add("schedule", statistics.median(rates["tarry"]))
        tell(report, "schedule", rates, "script", "≥ 130 %")
        tell(report, "schedule", rates, "store", "")
        tell_costs(report, "schedule", used, "script", options.operations * (options.rounds + 1))
        changes: dict[str, Callable[[int], object]] = {
            "reschedule": lambda n: task.reschedule("2h", n),
            "cancel": task.cancel,
        }
        for verb, call in changes.items():
            side = _timed(call, itertools.count())
            found = measure.in_turns(
                {"tarry": side}, operations=options.operations, rounds=options.rounds
            )
            report.add(verb, statistics.median(found["tarry"]))


class ScriptCalls:
    """The script of schedule, called as the driver's users call scripts; its answer is not read.

    What it is told is what the store tells it, taken down before the measure.
    """

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()
        self._store = cast("Any", connect(server.url, namespace="script"))
        self._script = self._client.register_script(script("schedule", clustered=False).source)
        name = prefix("script", 0)
        self._keys = [name, f"{name}!"]
        self._numbers = itertools.count()
        self._heard: list[Any] = []
        self.used = Used(server)
        self._store._exchange.call = self._hear  # noqa: SLF001 - nothing else has the words

    def _hear(self, name: str, shard: int, words: Sequence[Any], **_: object) -> bytes:
        del name, shard
        self._heard.append(list(words))
        raise HeardError

    def close(self) -> None:
        self._client.close()
        self._store.close()

    def __call__(self, operations: int) -> float:
        due = At(measure.now_ms() + measure.HOUR_MS)
        self._heard.clear()
        for n in itertools.islice(self._numbers, operations):
            request = Request(TaskRef(measure.KIND, str(n)), due, b'{"n":%d}' % n)
            with suppress(HeardError):
                self._store.schedule([request], call=f"{n:024x}")
        with self.used:
            began = time.perf_counter()
            for words in self._heard:
                self._script(keys=self._keys, args=words)
            return time.perf_counter() - began


class HeardError(Exception):
    """A call was taken down instead of being made."""


def _timed(
    call: Callable[[int], object], numbers: Iterator[int], used: Used | None = None
) -> measure.Side:
    def side(operations: int) -> float:
        some = list(itertools.islice(numbers, operations))
        with used or nullcontext():
            began = time.perf_counter()
            for n in some:
                call(n)
            return time.perf_counter() - began

    return side


# ---- many callers


def coroutines(server: RedisServer, options: argparse.Namespace, report: measure.Report) -> None:
    """Fifty coroutines on one event loop, each waiting for its answer."""
    count = options.operations * 5
    report.note(f"{CALLERS} coroutines, {count:,} calls of each verb")
    rates: dict[str, list[float]] = {"aschedule": [], "areschedule": [], "acancel": []}
    with measure.app_on(server.url) as app:
        task = _task(app)
        verbs: dict[str, Callable[[int], Awaitable[object]]] = {
            "aschedule": lambda n: task.aschedule("1h", n),
            "areschedule": lambda n: task.areschedule("2h", n),
            "acancel": task.acancel,
        }
        for turn in range(options.rounds):
            for name, verb in verbs.items():
                seconds = asyncio.run(_together(verb, count, turn))
                rates[name].append(count / seconds)
    for name, found in rates.items():
        report.add(f"{name}_{CALLERS}_callers", statistics.median(found), "/s", "≥ 40,000/s")
        report.add(f"{name}_{CALLERS}_callers_lowest", min(found))
        report.add(f"{name}_{CALLERS}_callers_highest", max(found))


async def _together(verb: Callable[[int], Awaitable[object]], count: int, turn: int) -> float:
    numbers = iter(range(turn * count, (turn + 1) * count))

    async def caller() -> None:
        for n in numbers:
            await verb(n)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


# ---- schedule_many


def many(server: RedisServer, options: argparse.Namespace, report: measure.Report) -> None:
    """Batches among many that wait, next to HSET and ZADD of the same data; built before."""
    base = _fill(server, options.waiting, report)
    report.note("schedule_many")
    beginning = options.waiting
    with measure.app_on(server.url) as app, closing(RawCommands(server.port)) as raw:
        task, used = (
            _task(app),
            {"tarry": Used(server), "raw": Used(server)},
        )
        numbers, ids = itertools.count(beginning), itertools.count(beginning)

        def tarry(operations: int) -> float:
            some = itertools.islice(numbers, operations)
            requests = [_request(n, base + n * 7 % beginning) for n in some]
            with used["tarry"]:
                began = time.perf_counter()
                app.schedule_many(requests)
                return time.perf_counter() - began

        def bare(operations: int) -> float:
            some = list(itertools.islice(ids, operations))
            dues = [base + n * 7 % beginning for n in some]
            made = raw.batches(dues, BODY, begin=some[0], size=measure.BATCH)
            with used["raw"]:
                return raw.schedule(made)

        rates = measure.in_turns(
            {"tarry": tarry, "raw": bare}, operations=options.batch, rounds=options.rounds
        )
        report.add("schedule_many", statistics.median(rates["tarry"]), "/s", "≥ 80,000/s")
        tell(report, "schedule_many", rates, "raw", "≥ 65 %")
        tell_costs(report, "schedule_many", used, "raw", options.batch * (options.rounds + 1))
        began = time.perf_counter()
        app.schedule_many(task.build("1d", n) for n in range(options.batch))
        report.add("schedule_many_built", options.batch / (time.perf_counter() - began))


# ---- claim and settle


def batches(server: RedisServer, options: argparse.Namespace, report: measure.Report) -> None:
    """Claims and settlements of 100 among many that wait, next to bare commands."""
    _fill(server, options.waiting, report)
    report.note(f"claim and settle, {TOGETHER} at a time")
    claims: dict[str, list[float]] = {}
    settles: dict[str, list[float]] = {}
    with (
        closing(connect(server.url)) as store,
        closing(RawCommands(server.port)) as raw,
    ):
        used = {f"{verb}_{who}": Used(server) for verb in VERBS for who in SIDES}
        sides: dict[str, TarryCycle | RawCycle] = {
            "tarry": TarryCycle(store, used),
            "raw": RawCycle(raw, used),
        }
        for turn in range(options.rounds + 1):
            names = list(sides) if turn % 2 else list(reversed(sides))
            for name in names:
                claiming, settling = sides[name].run(options.batch)
                if turn:
                    claims.setdefault(name, []).append(options.batch / claiming)
                    settles.setdefault(name, []).append(options.batch / settling)
    for verb, rates in (("claim", claims), ("settle", settles)):
        report.add(verb, statistics.median(rates["tarry"]))
        tell(report, verb, rates, "raw", "≥ 60 %")
        own = {who: used[f"{verb}_{who}"] for who in SIDES}
        tell_costs(report, verb, own, "raw", options.batch * (options.rounds + 1))


VERBS, SIDES = ("claim", "settle"), ("tarry", "raw")


class TarryCycle:
    """Places due tasks, claims them all, then settles them all, as a worker calls the store."""

    def __init__(self, store: Store, used: dict[str, Used]) -> None:
        self._store = store
        self._used = used
        self._calls = itertools.count(1)

    def run(self, count: int) -> tuple[float, float]:
        """Return the seconds of claiming and of settling."""
        now = measure.now_ms() - 1_000
        requests = [_request(n, now, "due") for n in range(count)]
        for start in range(0, count, measure.BATCH):
            self._store.schedule(requests[start : start + measure.BATCH])
        leases: list[list[Lease]] = []
        with self._used["claim_tarry"]:
            began = time.perf_counter()
            for _ in range(count // TOGETHER):
                claimed = self._store.claim(
                    [measure.KIND],
                    limit=TOGETHER,
                    lease_ms=LEASE_MS,
                    holder="bench",
                    call=next(self._calls),
                )
                leases.append(list(claimed.leases))
            claiming = time.perf_counter() - began
        if sum(map(len, leases)) != count // TOGETHER * TOGETHER:
            raise SystemExit("not every due task was claimed")
        with self._used["settle_tarry"]:
            began = time.perf_counter()
            for some in leases:
                settlements = [Settlement(lease, Done()) for lease in some]
                self._store.settle(settlements, call=f"{next(self._calls):024x}")
            settling = time.perf_counter() - began
        return claiming, settling


class RawCycle:
    """The same by bare commands."""

    def __init__(self, raw: RawCommands, used: dict[str, Used]) -> None:
        self._raw = raw
        self._used = used

    def run(self, count: int) -> tuple[float, float]:
        """Return the seconds of claiming and of settling."""
        raw, now = self._raw, measure.now_ms() - 1_000
        raw.schedule(raw.batches([now] * count, BODY, begin=10**9, size=measure.BATCH))
        with self._used["claim_raw"]:
            began = time.perf_counter()
            taken = [raw.claim(TOGETHER) for _ in range(count // TOGETHER)]
            claiming = time.perf_counter() - began
        with self._used["settle_raw"]:
            began = time.perf_counter()
            for keys in taken:
                raw.settle(keys)
            settling = time.perf_counter() - began
        return claiming, settling


# ---- what it costs


def tell_costs(
    report: measure.Report, name: str, used: dict[str, Used], other: str, tasks: int
) -> None:
    """Report the processor time per task of both sides, and the other's as a share of tarry's."""
    costs = {who: used[who].tell(report, name, who, tasks) for who in ("tarry", other)}
    report.add(f"{name}_cost_of_{other}", 100 * costs[other] / costs["tarry"], "%")


# ---- tasks


def _fill(server: RedisServer, count: int, report: measure.Report) -> int:
    """Let *count* tasks wait in tarry's keys and in the raw ones; returns the first due."""
    report.note(f"letting {count:,} tasks wait, twice")
    base = measure.fill(server.url, count)
    with closing(RawCommands(server.port)) as raw:
        raw.fill(count, b'{"n":0}', base)
    return base


def _request(n: int, due: int, suffix: str = "") -> Request:
    return Request(TaskRef(measure.KIND, f"w{n:012d}{suffix}"), At(due), BODY)


def _task(app: Any) -> Function:
    """Return the task that `measure.app_on` declared."""
    [handler] = cast("Sequence[Any]", list(app.registry))
    return TaskFunction(handler, app)


if __name__ == "__main__":
    main()
