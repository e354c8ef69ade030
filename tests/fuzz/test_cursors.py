"""Whatever is handed back as a cursor, a scan goes on from it or refuses it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tarry import Tarry
from tarry.attempt import Dead
from tarry.due import In
from tarry.errors import CursorError
from tarry.request import Request, Settlement
from tarry.stores.store import Filter, Store
from tarry.task import TaskRef, TaskState

CURSORS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from([" ", "0", "1", "-1", "k", "9" * 30, "9" * 5_000, "٣", "\x00", "\ud800"]),
        max_size=6,
    ).map("".join),
    st.lists(st.integers(), min_size=1, max_size=4).map(lambda found: " ".join(map(str, found))),
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Hand out a store with tasks that wait, run and are dead."""
    sqlite = f"sqlite:///{tmp_path}/tarry.db?sync=normal"
    with Tarry("memory:" if request.param == "memory" else sqlite) as app:
        store = app.store
        store.schedule([Request(TaskRef("k", str(n)), In(n // 6)) for n in range(9)])
        leases = store.claim(["k"], limit=4, lease_ms=60_000, holder="w").leases
        store.settle([Settlement(lease, Dead("broken")) for lease in leases[:2]])
        yield store


@given(CURSORS, st.sampled_from([None, *TaskState]))
@example("x", None)
@example("9" * 30, TaskState.DEAD)
@example("0 0 " + "9" * 30, None)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cursor_is_understood_or_refused(
    store: Store, cursor: str, state: TaskState | None
) -> None:
    try:
        page = store.scan(Filter(state), cursor=cursor, limit=3)
    except CursorError as error:
        assert "what the page before answered" in str(error)  # noqa: PT017 - refused, and says why
        return
    assert len(page.tasks) <= 3


@pytest.mark.parametrize("state", [None, TaskState.DEAD])
@pytest.mark.parametrize("cursor", ["", "x", "1 x", "9" * 5_000])
def test_what_is_no_cursor_at_all_is_refused(
    store: Store, cursor: str, state: TaskState | None
) -> None:
    with pytest.raises(CursorError, match="is no cursor"):
        store.scan(Filter(state), cursor=cursor)


@pytest.mark.parametrize("state", [None, TaskState.SCHEDULED, TaskState.DEAD])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_cursor_of_a_page_leads_to_the_next_one(
    store: Store, state: TaskState | None, limit: int
) -> None:
    whole = store.scan(Filter(state), limit=100).tasks
    found, cursor = [], None
    while True:
        page = store.scan(Filter(state), cursor=cursor, limit=limit)
        found += page.tasks
        if (cursor := page.cursor) is None:
            break

    assert found == whole
