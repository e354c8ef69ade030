"""Whatever dies: every acknowledged task runs, none early, none after its cancel, none twice."""

import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.crash.conftest import Nursery
from tests.crash.ledger import Line, check, starts_of

from tarry.clock import nap
from tarry.stores.store import Filter
from tarry.task import TaskRef, TaskState

Until = Callable[[Callable[[], object], str], None]

KILLS = int(os.environ.get("TARRY_KILLS", "60"))
SEED = int(os.environ.get("TARRY_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


def report(nursery: Nursery) -> list[str]:
    """Return the broken promises, with the whole history of each key."""
    return [
        f"{broken.promise}: {broken.key}\n  " + "\n  ".join(map(str, broken.lines))
        for broken in check(nursery.ledger.lines())
    ]


def test_eight_workers_run_ten_thousand_tasks_once_each(nursery: Nursery, until: Until) -> None:
    keys = nursery.schedule("async.work", 10_000)

    workers = [nursery.worker(lease="30s") for _ in range(8)]
    until(nursery.is_empty, "the end of all tasks")
    for worker in workers:
        nursery.stop(worker)

    assert starts_of(nursery.ledger.lines()) == Counter(keys)
    assert len({line.token for line in nursery.ledger.of("start")}) == 10_000
    assert {line.attempt for line in nursery.ledger.of("start")} == {1}
    assert len({line.pid for line in nursery.ledger.of("start")}) > 1
    assert report(nursery) == []
    assert nursery.store.check() == []


@pytest.mark.timeout(60 + KILLS)
def test_workers_and_producers_are_killed_at_random(nursery: Nursery, until: Until) -> None:
    dice = random.Random(SEED)
    settings = {"lease": "400ms", "concurrency": 8, "run_ms": 8}
    workers = [nursery.worker(**settings) for _ in range(3)]
    producers = [nursery.producer(seed=dice.randrange(1 << 32)) for _ in range(2)]

    for n in range(KILLS):
        nap(dice.random() * 0.1)
        if n % 2:
            victim = dice.randrange(len(workers))
            nursery.kill(workers[victim])
            workers[victim] = nursery.worker(**settings)
        else:
            victim = dice.randrange(len(producers))
            nursery.kill(producers[victim])
            producers[victim] = nursery.producer(seed=dice.randrange(1 << 32))
    for producer in producers:
        nursery.kill(producer)
    until(nursery.is_empty, "the end of all tasks")
    for worker in workers:
        nursery.stop(worker)

    assert report(nursery) == [], f"TARRY_SEED={SEED}"
    assert nursery.store.check() == []
    assert nursery.store.counts() == {}
    # A run in which nothing happened proves nothing.
    seen = Counter(f"{line.what} {line.status}".strip() for line in nursery.ledger.lines())
    again = [line for line in nursery.ledger.of("start") if line.lost]
    assert len(nursery.ledger.of("killed")) >= KILLS
    assert min(seen[what] for what in ("acked created", "acked replaced", "acked moved")) > 0
    assert min(seen[what] for what in ("cancelled cancelled", "start", "done")) > 0
    assert again or KILLS < 40, f"TARRY_SEED={SEED}: no kill has hit a running attempt"


def in_flight(lines: list[Line], pid: int) -> set[int]:
    """Return the tokens of attempts that *pid* has begun and not finished."""
    begun = {line.token for line in lines if line.what == "start" and line.pid == pid}
    return begun - {line.token for line in lines if line.what == "done"}


def stop_between_transactions(nursery: Nursery, pid: int) -> None:
    """Stop a process where it does not hold the database: SQLite's writers wait for each other."""
    path = nursery.url.removeprefix("sqlite:///").partition("?")[0]
    while True:
        os.kill(pid, signal.SIGSTOP)
        with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                nap(0.001)
                continue
            db.execute("ROLLBACK")
            return


@pytest.mark.parametrize("kind", ["async.work", "plain.work"])
def test_a_worker_that_stalls_beyond_its_lease_is_fenced(
    nursery: Nursery, until: Until, kind: str
) -> None:
    ledger = nursery.ledger
    keys = nursery.schedule(kind, 600)
    # Long enough that a busy machine does not stall the other worker beyond it, too.
    settings = {"lease": "2s", "concurrency": 4, "run_ms": 5}
    stalled = nursery.worker(**settings)
    until(lambda: len(ledger.of("start")) > 100, "some starts")

    stop_between_transactions(nursery, stalled)
    held = in_flight(ledger.lines(), stalled)
    held_keys = {line.key for line in ledger.of("start") if line.token in held}
    before = len(ledger.lines())
    other = nursery.worker(**settings)
    until(
        lambda: (
            len(starts_of(ledger.lines())) == 600
            and {line.key for line in ledger.lines()[before:] if line.what == "start"} >= held_keys
        ),
        "another worker's taking over",
    )
    until(nursery.is_empty, "the end of all tasks")
    at_waking = len(ledger.lines())
    os.kill(stalled, signal.SIGCONT)
    until(
        lambda: held <= {line.token for line in ledger.of("lost")},
        "the stalled worker's notice that its leases are lost",
    )
    nursery.stop(stalled)
    nursery.stop(other)

    late = ledger.lines()[at_waking:]
    assert [line for line in late if line.what == "start"] == []
    starts = starts_of(ledger.lines())
    twice = {key for key, count in starts.items() if count > 1}
    # Also what it had finished but not settled yet; never what it only had queued.
    assert held_keys <= twice
    assert twice <= {line.key for line in ledger.lines()[:before] if line.what == "start"}
    assert set(starts) == set(keys)
    assert report(nursery) == []
    assert nursery.store.counts() == {}


@pytest.mark.parametrize("kind", ["async.work", "plain.work"])
def test_a_burst_survives_the_death_of_its_worker(
    nursery: Nursery, until: Until, kind: str
) -> None:
    ledger = nursery.ledger
    keys = nursery.schedule(kind, 5_000)
    settings = {"lease": "2s", "run_ms": 1}
    first = nursery.worker(**settings)
    until(lambda: len(ledger.of("start")) > 1_000, "some starts")

    nursery.kill(first)
    second = nursery.worker(**settings)
    until(nursery.is_empty, "the end of all tasks")
    nursery.stop(second)

    starts = starts_of(ledger.lines())
    assert set(starts) == set(keys)
    assert max(starts.values()) <= 2
    twice = {key for key, count in starts.items() if count == 2}
    assert twice <= {line.key for line in ledger.of("start") if line.pid == first}
    # What the first had begun and not yet settled: its slots, and the last batches of outcomes.
    assert len(twice) <= 500
    assert report(nursery) == []
    assert nursery.store.counts() == {}


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_task_that_kills_its_worker_becomes_a_dead_letter_alone(
    nursery: Nursery, until: Until, colour: str
) -> None:
    poison = f"{colour}.poison"
    nursery.schedule(poison, 1)
    mates = nursery.schedule(f"{colour}.work", 100)
    settings = {"lease": "300ms", "concurrency": 20, "run_ms": 1}

    deaths = 0
    while not nursery.store.counts([poison])[poison].dead:
        worker = nursery.worker(**settings)

        def over(worker: int = worker) -> bool:
            dead = nursery.store.counts([poison])[poison].dead
            return bool(dead) or not is_alive(worker)

        until(over, "the end of a worker or of the poison")
        if is_alive(worker):
            break
        assert nursery.died(worker) == -signal.SIGKILL
        deaths += 1
    until(nursery.is_empty, "the end of all tasks")
    for worker in list(nursery.pids):
        nursery.stop(worker)

    [dead] = nursery.store.scan(Filter(state=TaskState.DEAD)).tasks
    assert dead.ref == TaskRef(poison, "0")
    assert dead.reason.startswith("lost too often")
    assert deaths == dead.lost == 6
    done = {line.key for line in nursery.ledger.of("done")}
    assert done == set(mates)


def is_alive(pid: int) -> bool:
    """Say whether a process is neither gone nor waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - one line of the kernel's
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
