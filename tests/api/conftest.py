"""Apps on every medium that needs no server, and verbs in both colours."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import Tarry


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/tarry.db?sync=normal"


@pytest.fixture
def app(url: str) -> Iterator[Tarry]:
    with Tarry(url, namespace="shop") as app:
        yield app


@pytest.fixture(params=["blocking", "async"])
def say(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call a verb of an app or a task, or its a-twin: ``say(task.schedule, "1h", 42)``."""

    def call(verb: Any, *args: Any, **kwargs: Any) -> Any:
        if request.param == "blocking":
            return verb(*args, **kwargs)
        twin = getattr(verb.__self__, f"a{verb.__name__}")
        return asyncio.run(twin(*args, **kwargs))

    return call
