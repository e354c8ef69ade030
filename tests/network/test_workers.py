"""A real worker gets through each fault: one attempt, one settlement, no lease lost."""
# ruff: noqa: B023 - what closes over a world is called before the next one is made

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.network.conftest import Hit, new_world
from tests.network.media import Medium
from tests.network.servers import LIMIT, until
from tests.network.world import KIND, Works, World

from tarry import Context, Retry
from tarry.due import In
from tarry.events import AttemptEnded, StoreBack, StoreLost
from tarry.request import Request
from tarry.stores.store import Counts
from tarry.task import TaskRef, TaskState
from tarry.testing.proxy import Coverage, Fault, Phase

REF = TaskRef(KIND, "42")
SLOW_MS = 40
MANY = 30


def due_now(world: World, key: str = REF.key) -> None:
    world.direct.schedule([Request(TaskRef(KIND, key), In(0))])


def outcomes(works: Works) -> list[str]:
    return [event.outcome for event in works.of(AttemptEnded)]


def test_claim(hit: Hit) -> None:
    for world in hit("claim"):
        due_now(world)
        works = Works(world)

        with works.working():
            works.wait_for(AttemptEnded)
            # Waited for within the lease: had it been given to nobody, this would come too late.
            until(lambda: world.left() == Counts(), "the task is settled")

        assert [(ctx.attempt, ctx.lost) for ctx in works.started] == [(1, 0)]
        assert works.lost == []


@pytest.mark.parametrize("outcome", ["done", "retry"])
def test_settle(hit: Hit, outcome: str) -> None:
    for world in hit("settle"):
        due_now(world)
        works = Works(world, lambda _ctx: None if outcome == "done" else Retry("1h"))

        with works.working():
            works.wait_for(AttemptEnded)
            until(lambda: world.left().leased == 0, "the attempt is settled")
            world.arrived()

        assert len(works.started) == 1
        assert works.lost == []
        [task] = world.direct.get([REF])
        if outcome == "done":
            assert task is None
        else:
            assert task is not None
            assert (task.state, task.attempt, task.lost) == (TaskState.SCHEDULED, 1, 0)


def test_renew(medium: Medium) -> None:
    coverage = Coverage()
    coverage.expect(["renew"], Phase)

    def renewed(phase: Phase) -> None:
        opened = threading.Event()
        with closing(new_world(medium, coverage)) as world:
            due_now(world)
            world.arm("renew", phase)
            works = Works(world, lambda _ctx: opened.wait(LIMIT))
            with works.working(lease="3s"):
                world.proxy.wait_for_hits()
                seen = world.served("renew")
                until(lambda: world.served("renew") > seen, "leases are renewed again")
                opened.set()
                # On a busy machine the renewal that was hit is the one of the start gate: what it
                # could not confirm is given back, and claimed again.
                works.wait(
                    lambda: "done" in [one.outcome for one in works.of(AttemptEnded)], "done"
                )

            assert [(ctx.attempt, ctx.lost) for ctx in works.started] == [(1, 0)]
            assert works.lost == []
            assert world.left() == Counts()

    # Heartbeats are slow: all phases at the same time.
    with ThreadPoolExecutor(len(Phase)) as pool:
        list(pool.map(renewed, Phase))
    assert coverage.missing() == []


def test_a_worker_starts_though_the_store_is_not_there_yet(world: World) -> None:
    due_now(world)
    works = Works(world)
    world.proxy.refuse()

    with works.working():
        works.wait_for(StoreLost)
        world.proxy.heal()
        works.wait_for(AttemptEnded)

    assert works.of(StoreBack)


def test_a_worker_hears_of_news_again_after_its_lines_were_cut(world: World) -> None:
    works = Works(world)
    with works.working():
        due_now(world, "1")
        works.wait_for(AttemptEnded, 1)

        world.proxy.cut_all()
        due_now(world, "2")
        works.wait_for(AttemptEnded, 2)

    assert sorted(ctx.ref.key for ctx in works.started) == ["1", "2"]
    assert all(_first(ctx) for ctx in works.started)


def test_a_slow_network_makes_a_worker_slow_and_nothing_else(patient_world: World) -> None:
    slow = Fault(Phase.DELAY_REPLY, "any", SLOW_MS)
    patient_world.proxy.follow(lambda _request: slow)
    works = Works(patient_world)
    with works.working():
        for number in range(MANY):
            due_now(patient_world, str(number))
        works.wait_for(AttemptEnded, MANY)
        until(lambda: patient_world.left() == Counts(), "everything is settled")

    assert len(patient_world.proxy.hits) > 2
    assert sorted(int(ctx.ref.key) for ctx in works.started) == list(range(MANY))
    assert all(_first(ctx) for ctx in works.started)
    assert works.of(StoreLost) == []
    assert works.lost == []


def test_a_worker_goes_on_by_itself_when_a_cut_network_is_whole_again(world: World) -> None:
    works = Works(world)
    with works.working():
        due_now(world, "before")
        works.wait_for(AttemptEnded, 1)

        world.proxy.refuse()
        world.proxy.cut_all()
        due_now(world, "meanwhile")
        works.wait_for(StoreLost)
        world.proxy.heal()

        works.wait_for(StoreBack)
        works.wait_for(AttemptEnded, 2)
        until(lambda: world.left() == Counts(), "everything is settled")

    assert [ctx.ref.key for ctx in works.started] == ["before", "meanwhile"]
    assert works.lost == []


def _first(ctx: Context) -> bool:
    return (ctx.attempt, ctx.lost) == (1, 0)
