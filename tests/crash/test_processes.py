"""Whatever dies or stalls: every acknowledged task runs, none early, none twice without a cause."""

import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.crash.conftest import Ground, Until

from tarry.stores.store import Filter
from tarry.task import TaskState
from tarry.testing.ledger import Finished, Settled, Started
from tarry.testing.proof.nursery import Child
from tarry.testing.proof.roles import Work


def test_eight_workers_run_ten_thousand_tasks_once_each(ground: Ground, until: Until) -> None:
    refs = ground.schedule("async.work", 10_000, Work())

    workers = [ground.worker(lease="30s") for _ in range(8)]
    until(ground.is_drained, "the end of all tasks")
    for worker in workers:
        assert ground.nursery.stop(worker)

    starts = ground.of(Started)
    assert Counter(start.ref for start in starts) == Counter(refs)
    assert len({start.token for start in starts}) == 10_000
    assert {start.attempt for start in starts} == {1}
    assert len({start.by for start in starts}) > 1
    assert ground.judged() == []
    assert ground.store.check() == []


def in_flight(ground: Ground, child: Child) -> set[int]:
    """Return the tokens of attempts that a worker has begun and not finished."""
    begun = {start.token for start in ground.of(Started) if start.by == child.name}
    return begun - {finished.token for finished in ground.of(Finished)}


@pytest.mark.parametrize("kind", ["async.work", "plain.work"])
def test_a_worker_that_stalls_beyond_its_lease_is_fenced(
    ground: Ground, until: Until, kind: str
) -> None:
    refs = ground.schedule(kind, 600, Work(run_ms=5))
    # Long enough that a busy machine does not stall the other worker beyond it, too.
    stalled = ground.worker(lease="2s", concurrency=4)
    until(lambda: len(ground.of(Started)) > 100, "some starts")

    ground.nursery.stall(stalled)
    held = in_flight(ground, stalled)
    other = ground.worker(lease="2s", concurrency=4)
    until(ground.is_drained, "another worker's taking over")
    at_waking = len(ground.book.entries())
    ground.nursery.go_on(stalled)
    assert ground.nursery.stop(stalled)
    assert ground.nursery.stop(other)

    late = ground.book.entries()[at_waking:]
    assert [entry for entry in late if isinstance(entry, Started)] == []
    taken = {entry.token for entry in ground.of(Settled) if entry.answer == "settled"}
    assert held
    assert held.isdisjoint(taken)
    assert {start.ref for start in ground.of(Started)} == set(refs)
    assert ground.judged() == []


@pytest.mark.parametrize("kind", ["async.work", "plain.work"])
def test_a_burst_survives_the_death_of_its_worker(ground: Ground, until: Until, kind: str) -> None:
    refs = ground.schedule(kind, 5_000, Work(run_ms=1))
    first = ground.worker(lease="2s")
    until(lambda: len(ground.of(Started)) > 1_000, "some starts")

    assert ground.nursery.kill(first)
    second = ground.worker(lease="2s")
    until(ground.is_drained, "the end of all tasks")
    assert ground.nursery.stop(second)

    starts = Counter(start.ref for start in ground.of(Started))
    assert set(starts) == set(refs)
    assert max(starts.values()) <= 2
    # What the first had begun and not yet settled: its slots, and the last batches of outcomes.
    assert sum(count == 2 for count in starts.values()) <= 500
    assert ground.judged() == []


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_task_that_kills_its_worker_becomes_a_dead_letter_alone(
    ground: Ground, until: Until, colour: str
) -> None:
    kind = f"{colour}.work"
    mates = ground.schedule(kind, 100, Work(run_ms=1))
    [poison] = ground.schedule(kind, 1, Work("die"), name="poison")

    deaths = 0
    while True:
        worker = ground.worker(lease="300ms", concurrency=20)
        until(partial(is_over, ground, worker), "a death or the end")
        if is_alive(worker):
            break
        assert ground.nursery.wait(worker) == -signal.SIGKILL
        deaths += 1
    assert ground.nursery.stop(worker)

    [dead] = ground.store.scan(Filter(state=TaskState.DEAD)).tasks
    assert str(dead.ref) == poison
    assert dead.reason.startswith("lost too often")
    assert deaths == dead.lost == 6
    done = {entry.token for entry in ground.of(Finished) if entry.outcome == "done"}
    assert {start.ref for start in ground.of(Started) if start.token in done} == set(mates)
    assert ground.judged() == []


def is_over(ground: Ground, worker: Child) -> bool:
    """Say whether a worker has died, or has nothing left to do."""
    return not is_alive(worker) or ground.is_drained()


def is_alive(child: Child) -> bool:
    """Say whether a process is neither gone nor waiting to be reaped."""
    try:
        line = Path(f"/proc/{child.pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return line.rpartition(")")[2].split()[0] != "Z"
