"""A real server behind a proxy, and every phase of a verb's exchange hit, one after the other."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from tests.network.servers import HOST, Server, python
from tests.network.world import World

from tarry.testing.proxy import Coverage, Phase

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


@pytest.fixture(scope="module")
def store_server() -> Iterator[Server]:
    """Serve memory stores in a process of their own."""
    with python("store_server.py") as server:
        yield server


@pytest.fixture
def world(store_server: Server) -> Iterator[World]:
    """Return one namespace of the server, seen through a proxy and directly."""
    with closing(new_world(store_server)) as world:
        yield world


def new_world(server: Server, coverage: Coverage | None = None) -> World:
    """Return a namespace of *server* that nobody has used."""
    return World((HOST, server.port), f"n{next(_NAMES)}", coverage)


Hit = Callable[[str], Iterator[World]]


@pytest.fixture
def hit(store_server: Server) -> Hit:
    """Yield a fresh world for each phase, in which the next exchange of a verb will be hit."""
    return lambda verb: worlds(store_server, verb)


def worlds(server: Server, verb: str) -> Iterator[World]:
    """Yield a world for each phase; when the next is asked for, the one before was really hit."""
    coverage = Coverage()
    coverage.expect([verb], Phase)
    for phase in Phase:
        with closing(new_world(server, coverage)) as world:
            world.arm(verb, phase)
            yield world
            assert world.proxy.hits == [(verb, phase)]
    assert coverage.missing() == []
