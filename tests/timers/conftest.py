"""Fixtures of the timers: each structure in turn."""

from typing import Any

import pytest
from tests.timers.kit import STRUCTURES, Make

from tarry.timers import Timers


@pytest.fixture(params=sorted(STRUCTURES))
def make(request: pytest.FixtureRequest) -> Make:
    return STRUCTURES[request.param]


@pytest.fixture
def timers(make: Make) -> Timers[Any]:
    return make()
