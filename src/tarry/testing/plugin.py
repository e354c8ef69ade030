"""The pytest plugin: the fixture `tarry_time`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tarry.app import Tarry
from tarry.testing.virtual import Virtual, virtual


@pytest.fixture
def tarry_time() -> Iterator[Callable[[Tarry], Virtual]]:
    """Put apps on virtual time for one test; call it with the app."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(virtual(app))
