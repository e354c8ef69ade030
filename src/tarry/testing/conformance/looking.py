"""What can be seen of one task, of each kind, and of the time to come."""
# ruff: noqa: D102 - the name of a promise is its sentence

from tarry.attempt import Dead
from tarry.due import At, In
from tarry.request import Request
from tarry.stores.store import CHUNK, Counts, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    ANOTHER_KIND,
    KIND,
    REF,
    claim,
    claim_one,
    expire,
    get,
    kill,
    schedule,
    settle,
    shown,
    start,
)


class Looking:
    """Get, counts and forecast."""

    def test_what_was_never_scheduled_is_not_there(self, store: Store) -> None:
        assert get(store) is None

    def test_get_shows_what_waits_before_what_runs(self, store: Store) -> None:
        lease = start(store)
        assert shown(store) == lease.task

        newer = schedule(store)

        assert (shown(store).state, shown(store).revision) == (
            TaskState.SCHEDULED,
            newer.revision,
        )

    def test_get_shows_what_runs_before_what_is_dead(self, store: Store) -> None:
        kill(store)

        lease = start(store)

        assert shown(store) == lease.task

    def test_get_shows_the_newest_of_what_has_ended(self, store: Store) -> None:
        kill(store)
        settle(store, start(store, keep_ms=60_000))
        assert shown(store).state is TaskState.DONE

        settle(store, start(store, keep_ms=60_000), Dead("broken"))
        assert shown(store).state is TaskState.DEAD

    def test_get_answers_in_order_and_as_often_as_asked(self, store: Store) -> None:
        store.schedule([Request(TaskRef(KIND, str(n)), In(n)) for n in range(3)])
        refs = [TaskRef(KIND, key) for key in ("2", "no", "0", "2")]

        tasks = store.get(refs)

        assert [task and task.ref for task in tasks] == [refs[0], None, refs[2], refs[3]]

    def test_a_full_chunk_is_shown_at_once(self, store: Store) -> None:
        refs = [TaskRef(KIND, str(n)) for n in range(CHUNK)]
        store.schedule([Request(ref, In(0)) for ref in refs[::2]])

        tasks = store.get(refs)

        assert [task is not None for task in tasks] == [True, False] * (CHUNK // 2)

    def test_an_empty_batch_has_no_answers(self, store: Store) -> None:
        assert store.schedule([]) == []
        assert store.reschedule([]) == []
        assert store.cancel([]) == []
        assert store.renew([], lease_ms=1) == []
        assert store.settle([]) == []
        assert store.get([]) == []
        assert store.revive([]) == []
        assert store.purge([]) == []

    def test_an_empty_store_has_nothing_to_count(self, store: Store) -> None:
        assert dict(store.counts()) == {}

    def test_counts_tells_how_many_tasks_there_are_by_kind(
        self, store: Store, clock: ManualClock
    ) -> None:
        kill(store, TaskRef(KIND, "dead"))
        start(store, TaskRef(KIND, "leased"))
        schedule(store, TaskRef(KIND, "leased"), In(50_000))
        oldest = schedule(store, TaskRef(KIND, "overdue"), In(10))
        schedule(store, TaskRef(KIND, "overdue too"), In(20))
        schedule(store, TaskRef(ANOTHER_KIND, "1"), In(50_000))
        clock.advance(100)

        counts = store.counts()

        assert dict(counts) == {
            KIND: Counts(scheduled=3, leased=1, dead=1, overdue=2, oldest_due=oldest.due),
            ANOTHER_KIND: Counts(scheduled=1),
        }

    def test_counts_tells_of_the_asked_kinds_only(self, store: Store) -> None:
        schedule(store, due=In(50_000))
        schedule(store, TaskRef(ANOTHER_KIND, "1"), In(50_000))

        assert dict(store.counts([ANOTHER_KIND, "no.such.kind"])) == {
            ANOTHER_KIND: Counts(scheduled=1),
            "no.such.kind": Counts(),
        }

    def test_a_kind_with_nothing_but_dead_letters_is_counted(self, store: Store) -> None:
        kill(store)

        assert dict(store.counts()) == {KIND: Counts(dead=1)}

    def test_forecast_counts_the_tasks_due_in_each_span(self, store: Store) -> None:
        for n, delay in enumerate([0, 5, 999, 1_000, 1_500, 3_999, 4_000, 90_000]):
            schedule(store, TaskRef(KIND, str(n)), In(delay))

        assert store.forecast(bucket_ms=1_000, buckets=4) == [3, 2, 0, 1]

    def test_forecast_counts_what_is_overdue_in_the_first_span(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store)
        schedule(store, TaskRef(ANOTHER_KIND, "1"), At(clock.now() + 50))
        clock.advance(60_000)

        assert store.forecast(bucket_ms=1_000, buckets=2) == [2, 0]

    def test_forecast_leaves_out_what_runs_and_what_is_dead(self, store: Store) -> None:
        kill(store)
        start(store)

        assert store.forecast(bucket_ms=1_000, buckets=2) == [0, 0]

    def test_looking_changes_nothing(self, store: Store, clock: ManualClock) -> None:
        schedule(store)
        before = shown(store)

        for _ in range(3):
            store.counts()
            store.forecast(bucket_ms=10, buckets=3)
            store.get([REF])

        assert claim_one(store).task.revision == before.revision
        expire(clock)
        assert [lease.task.attempt for lease in claim(store)] == [2]
