"""A scan shows every task that fits, page by page."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.due import In
from tarry.request import Request
from tarry.stores.store import Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    ANOTHER_KIND,
    KIND,
    REF,
    cancel,
    kill,
    pages,
    scanned,
    schedule,
    settle,
    start,
)


def keys(store: Store, where: Filter, limit: int = 100) -> list[str]:
    """Return the keys a scan shows, sorted."""
    return sorted(task.ref.key for task in scanned(store, where, limit))


class Scanning:
    """Look through many tasks without holding up the rest."""

    @pytest.fixture
    def zoo(self, store: Store, clock: ManualClock) -> int:
        """Fill the store with a task in every state; returns the instant it was done."""
        kill(store, TaskRef(KIND, "dead"))
        settle(store, start(store, TaskRef(KIND, "done"), keep_ms=600_000))
        schedule(store, TaskRef(KIND, "cancelled"), keep_ms=600_000)
        cancel(store, TaskRef(KIND, "cancelled"))
        start(store, TaskRef(KIND, "leased"))
        schedule(store, TaskRef(KIND, "near"), In(100))
        schedule(store, TaskRef(KIND, "far"), In(900_000))
        schedule(store, TaskRef(ANOTHER_KIND, "other"), In(500))
        return clock.now()

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (None, ["far", "leased", "near", "other"]),
            (TaskState.SCHEDULED, ["far", "near", "other"]),
            (TaskState.LEASED, ["leased"]),
            (TaskState.DEAD, ["dead"]),
            (TaskState.DONE, ["done"]),
            (TaskState.CANCELLED, ["cancelled"]),
        ],
    )
    @pytest.mark.usefixtures("zoo")
    def test_a_scan_shows_the_tasks_in_a_state(
        self, store: Store, state: TaskState | None, expected: list[str]
    ) -> None:
        assert keys(store, Filter(state=state)) == expected
        assert {task.state for task in scanned(store, Filter(state=state))} == (
            {TaskState.SCHEDULED, TaskState.LEASED} if state is None else {state}
        )

    @pytest.mark.usefixtures("zoo")
    def test_a_scan_shows_the_tasks_of_some_kinds(self, store: Store) -> None:
        assert keys(store, Filter(kinds=(ANOTHER_KIND,))) == ["other"]
        assert keys(store, Filter(kinds=(KIND,))) == ["far", "leased", "near"]
        assert keys(store, Filter(kinds=(KIND, ANOTHER_KIND, KIND))) == [
            "far",
            "leased",
            "near",
            "other",
        ]
        assert keys(store, Filter(kinds=("no.such.kind",))) == []
        assert keys(store, Filter(state=TaskState.DEAD, kinds=(ANOTHER_KIND,))) == []

    def test_a_scan_shows_the_tasks_due_in_a_span(self, store: Store, zoo: int) -> None:
        assert keys(store, Filter(due_before=zoo + 100)) == ["leased"]
        assert keys(store, Filter(due_before=zoo + 101)) == ["leased", "near"]
        assert keys(store, Filter(due_after=zoo + 500)) == ["far", "other"]
        assert keys(store, Filter(due_after=zoo + 100, due_before=zoo + 501)) == ["near", "other"]
        assert keys(store, Filter(due_after=zoo + 501, due_before=zoo + 501)) == []

    def test_a_prefix_is_no_pattern(self, store: Store) -> None:
        names = ["a%b", "a_b", "aXb", "A%b", "a", "%", "a*", "b\\"]
        store.schedule([Request(TaskRef(KIND, name), In(0)) for name in names])

        assert keys(store, Filter(key_prefix="a%")) == ["a%b"]
        assert keys(store, Filter(key_prefix="a_")) == ["a_b"]
        assert keys(store, Filter(key_prefix="a*")) == ["a*"]
        assert keys(store, Filter(key_prefix="a")) == ["a", "a%b", "a*", "aXb", "a_b"]
        assert keys(store, Filter(key_prefix="b\\")) == ["b\\"]
        assert keys(store, Filter(key_prefix="ab")) == []

    def test_a_prefix_may_be_any_text(self, store: Store) -> None:
        names = ["🐢1", "🐢", "🐣", "e\N{COMBINING ACUTE ACCENT}", "é"]
        store.schedule([Request(TaskRef(KIND, name), In(0)) for name in names])

        assert keys(store, Filter(key_prefix="🐢")) == ["🐢", "🐢1"]
        assert keys(store, Filter(key_prefix="é")) == ["é"]

    def test_all_filters_hold_at_once(self, store: Store, zoo: int) -> None:
        where = Filter(
            state=TaskState.SCHEDULED, kinds=(KIND,), key_prefix="n", due_before=zoo + 500
        )

        assert keys(store, where) == ["near"]

    def test_both_slots_of_a_ref_are_shown(self, store: Store) -> None:
        lease = start(store)
        newer = schedule(store, due=In(5_000))

        tasks = scanned(store)

        assert sorted(task.revision for task in tasks) == [lease.task.revision, newer.revision]
        [waiting] = scanned(store, Filter(state=TaskState.SCHEDULED))
        assert waiting.revision == newer.revision
        [running] = scanned(store, Filter(state=TaskState.LEASED))
        assert running == lease.task

    @pytest.mark.parametrize("limit", [1, 7, 10, 57, 100])
    def test_the_pages_of_a_scan_hold_every_task_once(self, store: Store, limit: int) -> None:
        refs = [TaskRef(KIND if n % 3 else ANOTHER_KIND, f"k{n}") for n in range(57)]
        store.schedule([Request(ref, In(n % 5)) for n, ref in enumerate(refs)])

        found = list(pages(store, Filter(), limit))

        assert all(len(page) <= limit for page in found)
        assert sorted(task.ref for page in found for task in page) == sorted(refs)

    @pytest.mark.parametrize("state", [TaskState.LEASED, TaskState.DEAD, TaskState.DONE])
    def test_the_pages_of_every_state_are_complete(self, store: Store, state: TaskState) -> None:
        refs = [TaskRef(KIND, f"k{n}") for n in range(23)]
        for ref in refs:
            if state is TaskState.DEAD:
                kill(store, ref)
            else:
                lease = start(store, ref, keep_ms=60_000)
                if state is TaskState.DONE:
                    settle(store, lease)

        found = [task.ref for task in scanned(store, Filter(state=state), limit=5)]

        assert sorted(found) == sorted(refs)

    def test_several_dead_letters_of_a_ref_are_all_shown(self, store: Store) -> None:
        revisions = [kill(store) for _ in range(7)]

        found = scanned(store, Filter(state=TaskState.DEAD), limit=2)

        assert sorted(task.revision for task in found) == revisions

    def test_a_rare_task_is_found_in_small_steps(self, store: Store) -> None:
        store.schedule([Request(TaskRef(KIND, f"k{n:03}"), In(n)) for n in range(300)])
        schedule(store, TaskRef(KIND, "rare"), In(150))

        found = list(pages(store, Filter(key_prefix="rare"), limit=2))

        assert [task.ref.key for page in found for task in page] == ["rare"]

    def test_what_stays_is_shown_once_whatever_comes_and_goes_meanwhile(self, store: Store) -> None:
        stays = [TaskRef(KIND, f"stays {n:02}") for n in range(40)]
        goes = [TaskRef(KIND, f"goes {n:02}") for n in range(40)]
        for n in range(40):
            store.schedule([Request(stays[n], In(n * 10)), Request(goes[n], In(n * 10 + 5))])
        found = []

        for n, page in enumerate(pages(store, Filter(), limit=6)):
            found += [task.ref for task in page if task.ref in stays]
            for ref in goes[n * 2 :: 7]:
                cancel(store, ref)
            schedule(store, TaskRef(KIND, f"comes {n:02}"), In(n * 40))

        assert sorted(found) == stays

    def test_a_task_is_shown_as_get_shows_it(self, store: Store) -> None:
        schedule(store, payload=b"p", headers=b"h", rule="r", keep_ms=5)

        assert scanned(store) == store.get([REF])
