"""A server that is frozen, or killed and started again: clients and workers heal by themselves."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.network.media import MEDIA, Medium, stores
from tests.network.servers import LIMIT, Server
from tests.network.socket_store import TIMEOUT
from tests.network.world import KIND, Works, World, patiently

from tarry.answers import Scheduled, ScheduleStatus
from tarry.due import In
from tarry.events import AttemptEnded, StoreBack, StoreLost
from tarry.request import Request
from tarry.stores.store import Counts
from tarry.task import TaskRef


@pytest.fixture(params=stores(["socket", "redis"]))
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Medium]:
    """Serve one test only: it does not survive it."""
    with closing(MEDIA[request.param](tmp_path)) as medium:
        yield medium


@pytest.fixture
def server(medium: Medium) -> Server:
    return medium.server


@pytest.fixture
def world(medium: Medium) -> Iterator[World]:
    with closing(World(medium, "outage")) as world:
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
    schedule(world, "before", 3_600_000)
    answers: list[Scheduled] = []
    caller = threading.Thread(
        target=lambda: answers.append(schedule(world, "during", 3_600_000)), daemon=True
    )

    with frozen(server):
        caller.start()
        # Longer than one try lasts: some of them will arrive late, all at once.
        caller.join(TIMEOUT * 3)
        assert not answers
    caller.join(LIMIT)

    world.proxy.cut_all()
    patiently(lambda: schedule(world, "after", 3_600_000))
    [answer] = answers
    assert answer.status is ScheduleStatus.CREATED
    [task] = world.direct.get([TaskRef(KIND, "during")])
    assert task is not None
    assert task.revision == answer.revision


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
