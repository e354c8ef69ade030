"""Every store agrees with the memory store, whatever is done to both."""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tarry.due import In
from tarry.request import Request
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.state_machine import compare

MakeStore = Callable[[ManualClock], Store]


def memory(_folder: Path) -> MakeStore:
    return lambda clock: MemoryStore(namespace="test", clock=clock)


def sqlite(folder: Path) -> MakeStore:
    from tarry.stores.sqlite.store import SqliteStore

    numbers = count()
    return lambda clock: SqliteStore(folder / f"{next(numbers)}.db", namespace="test", clock=clock)


MEDIA = {"memory": memory}
if find_spec("tarry.stores.sqlite.store"):
    MEDIA["sqlite"] = sqlite


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.timeout(300)
def test_a_store_agrees_with_the_model(medium: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        compare(MEDIA[medium](tmp_path)),
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class Forgetful(MemoryStore):
    """A store with a planted mistake."""

    def renew(self, leases, *, lease_ms):  # type: ignore[no-untyped-def]
        return super().renew(leases, lease_ms=lease_ms + 1)


class Numbered(MemoryStore):
    """A store whose revisions are its own, and grow in steps."""

    def _draw(self) -> int:
        self._revision += 7
        return self._revision


def test_a_planted_mistake_is_found() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            compare(lambda clock: Forgetful(clock=clock)),
            settings=settings(
                max_examples=200,
                deadline=None,
                database=None,
                derandomize=True,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )


def test_revisions_need_only_grow() -> None:
    def make(clock: ManualClock) -> Store:
        store = Numbered(clock=clock)
        store.schedule([Request(TaskRef("elsewhere", "1"), In(0))])
        store.cancel([])
        return Numbered(clock=clock)

    run_state_machine_as_test(
        compare(make),
        settings=settings(max_examples=10, deadline=None, database=None),
    )
