"""A server that is frozen, or killed and started again: clients and workers heal by themselves."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.network.servers import HOST, LIMIT, Server, python
from tests.network.world import KIND, Works, World, patiently

from tarry.answers import Scheduled, ScheduleStatus
from tarry.due import In
from tarry.events import AttemptEnded, StoreBack, StoreLost
from tarry.request import Request
from tarry.stores.store import Counts
from tarry.task import TaskRef


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve one test only: it does not survive it."""
    with python("store_server.py") as server:
        yield server


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    with closing(World((HOST, server.port), "outage")) as world:
        yield world


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.go_on()


def schedule(world: World, key: str, delay_ms: int = 0) -> Scheduled:
    [answer] = world.client.schedule([Request(TaskRef(KIND, key), In(delay_ms))])
    return answer


def run(world: World, works: Works, key: str) -> None:
    """See a task through, from its schedule to its end."""
    schedule(world, key)
    works.wait(lambda: key in [ctx.ref.key for ctx in works.started], f"{key} is started")


def test_a_client_gets_through_a_server_that_freezes(server: Server, world: World) -> None:
    assert schedule(world, "before", 3_600_000).revision == 1
    answers: list[Scheduled] = []
    caller = threading.Thread(
        target=lambda: answers.append(schedule(world, "during", 3_600_000)), daemon=True
    )

    with frozen(server):
        caller.start()
        # Longer than one try lasts: some of them will arrive late, all at once.
        caller.join(world.store.timeout * 3)
        assert not answers
    caller.join(LIMIT)

    assert [(answer.status, answer.revision) for answer in answers] == [(ScheduleStatus.CREATED, 2)]
    world.proxy.cut_all()
    assert patiently(lambda: schedule(world, "after", 3_600_000)).revision == 3


def test_a_worker_gets_through_a_server_that_freezes(server: Server, world: World) -> None:
    works = Works(world)
    with works.working():
        run(world, works, "before")
        with frozen(server):
            works.wait_for(StoreLost)
        works.wait_for(StoreBack)
        run(world, works, "after")
        works.wait_for(AttemptEnded, 2)

    assert [ctx.attempt for ctx in works.started] == [1, 1]
    assert world.left() == Counts()


def test_a_client_and_a_worker_heal_when_the_server_was_killed(
    server: Server, world: World
) -> None:
    works = Works(world)
    with works.working():
        run(world, works, "before")
        works.wait_for(AttemptEnded)

        server.kill()
        works.wait_for(StoreLost)
        server.start()

        works.wait_for(StoreBack)
        run(world, works, "after")
        works.wait_for(AttemptEnded, 2)

    assert [ctx.ref.key for ctx in works.started] == ["before", "after"]
