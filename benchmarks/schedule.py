"""Schedule, cancel, reschedule: calls per second, next to bare statements of the same run.

Single calls run in turns with the bare statements (see bare.py), the median of the rounds counts.
"Ordered" is growing keys and dues; "random" is anywhere among what waits.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import measure
from bare import OwnStatements, PlainInsert, PlainUpdate

from tarry import Tarry
from tarry.api.function import TaskFunction
from tarry.request import Request

CALLERS = 100
Function = TaskFunction[..., ..., ..., Any]
Sides = dict[str, measure.Side]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="for schedule_many")
    parser.add_argument("--few", type=int, default=10_000, help="what growth is compared with")
    parser.add_argument("--batch", type=int, default=10_000, help="tasks of one schedule_many")
    parser.add_argument("--operations", type=int, default=2_000, help="single calls of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--full-rounds", type=int, default=3, help="rounds of calls with fsync")
    parser.add_argument("--only", choices=["single", "callers", "many"], help="a part of it")
    options = parser.parse_args()
    if options.quick:
        options.waiting, options.few, options.batch = 10_000, 1_000, 1_000
        options.operations, options.rounds, options.full_rounds = 200, 2, 2
    report = measure.Report(options)
    parts = {"single": single, "callers": callers, "many": many}
    for name, part in parts.items():
        if options.only in (None, name):
            with measure.scratch(options) as folder:
                part(folder, options, report)
    report.show()


# ---- single calls


def single(folder: Path, options: argparse.Namespace, report: measure.Report) -> None:
    """One caller, one call at a time."""
    goals = {
        "normal": ("≥ 12,000/s", "≥ 50 %", ""),
        "full": ("", "", "≥ 60 %"),
    }
    for sync, (rate_goal, own_goal, insert_goal) in goals.items():
        report.note(f"single schedule, sync={sync}")
        rates = _single_schedule(folder, sync, options)
        name = f"schedule_{sync}"
        report.add(name, rates["tarry"], "/s", rate_goal)
        report.add(f"{name}_own_statements", rates["own"])
        report.add(f"{name}_bare_insert", rates["insert"])
        report.add(f"{name}_of_own", 100 * rates["tarry"] / rates["own"], "%", own_goal)
        report.add(f"{name}_of_bare", 100 * rates["tarry"] / rates["insert"], "%", insert_goal)
    report.note("single reschedule and cancel, sync=full")
    rates = _single_change(folder, options)
    report.add("bare_update_full", rates["update"])
    for verb in ("reschedule", "cancel"):
        report.add(f"{verb}_full", rates[verb])
        report.add(f"{verb}_full_of_bare", 100 * rates[verb] / rates["update"], "%", "≥ 60 %")


def _single_schedule(folder: Path, sync: str, options: argparse.Namespace) -> dict[str, float]:
    with (
        measure.app_on(folder / f"tarry-{sync}.db", sync) as app,
        closing(OwnStatements(folder / f"own-{sync}.db", sync)) as own,
        closing(PlainInsert(folder / f"insert-{sync}.db", sync)) as insert,
    ):
        task, numbers = _task(app), iter(range(10**9))
        tarry = _timed(lambda n: task.schedule("1h", n), numbers)
        sides: Sides = {"tarry": tarry, "own": own, "insert": insert}
        rounds = options.full_rounds if sync == "full" else options.rounds
        return measure.compare(sides, operations=options.operations, rounds=rounds)


def _single_change(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    there = options.operations * (options.full_rounds + 1)
    with (
        measure.app_on(folder / "change.db") as app,
        closing(PlainUpdate(folder / "update.db", "full", there)) as update,
    ):
        measure.place(app, [measure.now_ms() + measure.HOUR_MS] * there)
        task, moved, gone = _task(app), iter(_shuffled(there)), iter(_shuffled(there))
        # One after the other: nothing is moved that was cancelled.
        moving = _timed(lambda n: task.reschedule("2h", n), moved)
        first: Sides = {"update": update, "reschedule": moving}
        then: Sides = {"update": update, "cancel": _timed(task.cancel, gone)}
        count, rounds = options.operations, options.full_rounds
        moves = measure.compare(first, operations=count, rounds=rounds)
        cancels = measure.compare(then, operations=count, rounds=rounds)
        both = statistics.mean([moves["update"], cancels["update"]])
        left = app.store.counts([measure.KIND])[measure.KIND].scheduled
        if left:
            raise SystemExit(f"{left} tasks were not cancelled")
        return {"update": both, "reschedule": moves["reschedule"], "cancel": cancels["cancel"]}


def _timed(call: Callable[[int], object], numbers: Iterator[int]) -> measure.Side:
    def side(operations: int) -> float:
        began = time.perf_counter()
        for _ in range(operations):
            call(next(numbers))
        return time.perf_counter() - began

    return side


# ---- many callers


def callers(folder: Path, options: argparse.Namespace, report: measure.Report) -> None:
    """A hundred coroutines on one event loop, each waiting for its answer."""
    count = options.operations * 10
    report.note(f"{CALLERS} callers, {count:,} calls of each verb")
    rates: dict[str, list[float]] = {"aschedule": [], "areschedule": [], "acancel": []}
    with measure.app_on(folder / "callers.db") as app:
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
    goals = {"aschedule": "≥ 25,000/s", "areschedule": "≥ 15,000/s", "acancel": "≥ 15,000/s"}
    for name, found in rates.items():
        report.add(f"{name}_{CALLERS}_callers", statistics.median(found), "/s", goals[name])


async def _together(verb: Callable[[int], Awaitable[object]], count: int, turn: int) -> float:
    numbers = iter(range(turn * count, (turn + 1) * count))

    async def caller() -> None:
        for n in numbers:
            await verb(n)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


# ---- schedule_many


def many(folder: Path, options: argparse.Namespace, report: measure.Report) -> None:
    """Batches with few and with many tasks waiting; the requests are built before."""
    report.note(f"schedule_many with {options.few:,} waiting")
    few = _many(folder / "few.db", options.few, options)
    report.note(f"letting {options.waiting:,} tasks wait")
    lot = _many(folder / "lot.db", options.waiting, options)
    goals = {"ordered": ("≥ 70,000/s", "< 1.5"), "random": ("≥ 15,000/s", "< 3")}
    for order, (rate_goal, growth_goal) in goals.items():
        report.add(f"schedule_many_{order}_few", few[order])
        report.add(f"schedule_many_{order}", lot[order], "/s", rate_goal)
        report.add(f"growth_{order}", few[order] / lot[order], "times", growth_goal)
    report.add("schedule_many_built", lot["built"], "/s")


def _many(path: Path, waits: int, options: argparse.Namespace) -> dict[str, float]:
    """Return rates on a file where *waits* tasks wait, and a little more after each batch."""
    base = measure.fill(path, waits)
    size, chance = options.batch, random.Random(1)
    rates: dict[str, list[float]] = {"ordered": [], "random": [], "built": []}
    with measure.app_on(path) as app:
        task = _task(app)
        app.schedule_many([measure.waiting(waits, base + waits)])
        for turn in range(3):
            start = waits + 1 + turn * size
            ordered = [measure.waiting(n, base + n) for n in range(start, start + size)]
            anywhere = [
                measure.waiting(chance.randrange(waits), base + chance.randrange(waits), f"-{n}")
                for n in range(start, start + size)
            ]
            rates["ordered"].append(_rate(app, ordered))
            rates["random"].append(_rate(app, anywhere))
            began = time.perf_counter()
            app.schedule_many(task.build("1d", n) for n in range(start, start + size))
            rates["built"].append(size / (time.perf_counter() - began))
    return {name: statistics.median(found) for name, found in rates.items()}


def _rate(app: Tarry, requests: list[Request]) -> float:
    began = time.perf_counter()
    app.schedule_many(requests)
    return len(requests) / (time.perf_counter() - began)


# ---- the task


def _task(app: Tarry) -> Function:
    """Return the task that `measure.app_on` declared."""
    [handler] = list(app.registry)
    return TaskFunction(handler, app)


def _shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(0).shuffle(numbers)
    return numbers


if __name__ == "__main__":
    main()
