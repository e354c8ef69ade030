"""A real server behind a proxy, and every phase of a verb's exchange hit, one after the other."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.network.media import Medium, started, stores
from tests.network.servers import LIMIT
from tests.network.world import World

from tarry.stores.store import Store
from tarry.testing.proxy import Coverage, Phase

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


@pytest.fixture(scope="module", params=stores())
def medium(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Medium]:
    """Serve each medium in turn, in a process of its own."""
    with closing(started(request.param, tmp_path_factory.mktemp("medium"))) as medium:
        yield medium


@pytest.fixture
def world(medium: Medium) -> Iterator[World]:
    """Return one namespace of the server, seen through a proxy and directly."""
    with closing(new_world(medium)) as world:
        yield world


@pytest.fixture
def patient_world(medium: Medium) -> Iterator[World]:
    """Return one whose callers wait long for a reply."""
    with closing(new_world(medium, timeout=LIMIT)) as world:
        yield world


def new_world(medium: Medium, coverage: Coverage | None = None, **options: Any) -> World:
    """Return a namespace of *medium* that nobody has used."""
    return World(medium, f"n{next(_NAMES)}", coverage, **options)


Hit = Callable[[str], Iterator[World]]


@pytest.fixture
def hit(medium: Medium) -> Hit:
    """Yield a fresh world for each phase, in which the next exchange of a verb will be hit."""
    return lambda verb: worlds(medium, verb)


def worlds(
    medium: Medium, verb: str, around: Callable[[Store], Any] = lambda store: store
) -> Iterator[World]:
    """Yield a world for each phase; when the next is asked for, the one before was really hit."""
    coverage = Coverage()
    coverage.expect([verb], Phase)
    for phase in Phase:
        with closing(new_world(medium, coverage)) as world:
            world.wrap(around)
            world.arm(verb, phase)
            yield world
            assert world.proxy.hits == [(verb, phase)]
    assert coverage.missing() == []
