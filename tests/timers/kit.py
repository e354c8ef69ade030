"""What the tests of the timers share: the structures, and a skip where the core in C is not."""

import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tarry.timers import HashedWheel, Heap, Timers
from tarry.timers.hierarchical_wheel import HierarchicalWheel as Twin

Make = Callable[..., Timers[Any]]

LIMIT = 10
"""Seconds after which a test that waits for another thread gives up."""

try:
    core: ModuleType | None = import_module("tarry.timers._wheel")
except ImportError:
    core = None


def native() -> Any:
    """Return the module in C; skip at a desk, fail in CI, where it was not built."""
    if core is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the native core was not built: CI must have a compiler")
        pytest.skip("the native core was not built")
    return core


def small_ring(now: int = 0, **kwargs: Any) -> HashedWheel[Any]:
    """Return a hashed wheel on which every boundary is near."""
    return HashedWheel(now, tick=10, slots=4, **kwargs)


STRUCTURES: dict[str, Make] = {
    "native": lambda *args, **kwargs: native().HierarchicalWheel(*args, **kwargs),
    "twin": Twin,
    "heap": Heap,
    "hashed": HashedWheel,
    "small hashed": small_ring,
}
