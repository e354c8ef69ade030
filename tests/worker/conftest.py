"""Apps for workers, on every medium that needs no server."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.kit import Ears, Gate

from tarry import Tarry


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports: xdist cannot even carry some of it."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tarry]:
    sqlite = f"sqlite:///{tmp_path}/tarry.db?sync=normal"
    with Tarry("memory:" if request.param == "memory" else sqlite) as app:
        yield app


@pytest.fixture
def ears(app: Tarry) -> Ears:
    return Ears(app)


@pytest.fixture(params=["async", "plain"])
def colour(request: pytest.FixtureRequest) -> str:
    colour: str = request.param
    return colour


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()
