"""What a schedule does, in every mode."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.answers import ScheduleStatus
from tarry.attempt import DONE, Dead, Retry, Snooze
from tarry.clock import MS_PER_YEAR_9999
from tarry.due import At, Due, In
from tarry.request import OnConflict, Request
from tarry.stores.store import CHUNK, Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    REF,
    cancel,
    claim,
    claim_one,
    expire,
    get,
    kill,
    named,
    purge,
    schedule,
    settle,
    shown,
    start,
)

EVERY_MODE = pytest.mark.parametrize("mode", OnConflict, ids=named)
CHANGING_MODE = pytest.mark.parametrize(
    "mode", [OnConflict.REPLACE, OnConflict.EARLIEST, OnConflict.LATEST], ids=named
)


class Scheduling:
    """Place a task in its ref's waiting slot."""

    def test_a_schedule_makes_a_task_wait(self, store: Store, clock: ManualClock) -> None:
        answer = schedule(store, due=In(5_000), payload=b'{"a":1}', headers=b'{"h":2}')

        assert answer.status is ScheduleStatus.CREATED
        assert (answer.ref, answer.due) == (REF, clock.now() + 5_000)
        assert shown(store) == Task(
            ref=REF,
            due=clock.now() + 5_000,
            revision=answer.revision,
            created=clock.now(),
            payload=b'{"a":1}',
            headers=b'{"h":2}',
        )

    def test_revisions_are_positive(self, store: Store) -> None:
        assert schedule(store).revision > 0

    @EVERY_MODE
    def test_every_mode_creates_where_nothing_waits(self, store: Store, mode: OnConflict) -> None:
        answer = schedule(store, on_conflict=mode)

        assert answer.status is ScheduleStatus.CREATED
        assert claim_one(store).task.revision == answer.revision

    @EVERY_MODE
    def test_every_mode_creates_behind_a_running_attempt(
        self, store: Store, clock: ManualClock, mode: OnConflict
    ) -> None:
        lease = start(store)

        answer = schedule(store, due=In(7_000), on_conflict=mode)

        assert answer.status is ScheduleStatus.CREATED
        assert answer.due == clock.now() + 7_000
        assert answer.revision > lease.task.revision

    def test_replace_takes_everything_from_the_new_request(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = schedule(store, due=In(9_000), payload=b"1", headers=b"h", keep_ms=5)
        clock.advance(10)

        second = schedule(store, due=In(20_000), payload=b"2")

        assert second.status is ScheduleStatus.REPLACED
        assert second.due == clock.now() + 20_000
        assert second.revision > first.revision
        assert shown(store) == Task(
            ref=REF,
            due=second.due,
            revision=second.revision,
            created=clock.now(),
            payload=b"2",
        )

    def test_keep_changes_nothing_and_answers_with_what_waits(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, due=In(9_000), payload=b"1")
        before = shown(store)
        clock.advance(10)

        answer = schedule(store, due=In(1), payload=b"2", on_conflict=OnConflict.KEEP)

        assert answer.status is ScheduleStatus.KEPT
        assert (answer.due, answer.revision) == (before.due, before.revision)
        assert shown(store) == before

    def test_fail_is_a_conflict_that_changes_nothing(self, store: Store) -> None:
        schedule(store, due=In(9_000), payload=b"1")
        before = shown(store)

        answer = schedule(store, due=In(1), payload=b"2", on_conflict=OnConflict.FAIL)

        assert answer.status is ScheduleStatus.CONFLICT
        assert (answer.due, answer.revision) == (before.due, before.revision)
        assert shown(store) == before

    @pytest.mark.parametrize(
        ("mode", "new_ms", "chosen_ms"),
        [
            (OnConflict.EARLIEST, 3_000, 3_000),
            (OnConflict.EARLIEST, 20_000, 9_000),
            (OnConflict.LATEST, 3_000, 9_000),
            (OnConflict.LATEST, 20_000, 20_000),
        ],
    )
    def test_earliest_and_latest_choose_the_due_and_the_new_payload_wins(
        self, store: Store, clock: ManualClock, mode: OnConflict, new_ms: int, chosen_ms: int
    ) -> None:
        began = clock.now()
        first = schedule(store, due=At(began + 9_000), payload=b"1", headers=b"1")
        clock.advance(10)

        answer = schedule(
            store, due=At(began + new_ms), payload=b"2", headers=b"2", on_conflict=mode
        )

        assert answer.status is ScheduleStatus.REPLACED
        assert answer.due == began + chosen_ms
        assert answer.revision > first.revision
        task = shown(store)
        assert (task.due, task.revision) == (answer.due, answer.revision)
        assert (task.payload, task.headers) == (b"2", b"2")
        assert task.created == began

    def test_latest_puts_off_until_max_wait_is_used_up(
        self, store: Store, clock: ManualClock
    ) -> None:
        began = clock.now()
        dues = []

        for _ in range(4):
            answer = schedule(
                store, due=In(1_000), on_conflict=OnConflict.LATEST, max_wait_ms=2_000
            )
            dues.append(answer.due - began)
            clock.advance(600)

        assert dues == [1_000, 1_600, 2_000, 2_000]
        assert shown(store).created == began

    def test_max_wait_never_moves_a_due_back(self, store: Store) -> None:
        first = schedule(store, due=In(50_000))

        answer = schedule(store, due=In(60_000), on_conflict=OnConflict.LATEST, max_wait_ms=2_000)

        assert answer.due == first.due

    @CHANGING_MODE
    def test_the_counters_of_a_replaced_task_start_anew(
        self, store: Store, clock: ManualClock, mode: OnConflict
    ) -> None:
        settle(store, start(store), Snooze(In(0)))
        settle(store, claim_one(store), Retry(In(0), "failed"))
        claim_one(store)
        expire(clock)
        before = shown(store)
        assert (before.attempt, before.snoozes, before.lost) == (2, 1, 1)

        answer = schedule(store, due=In(0), on_conflict=mode)

        task = shown(store)
        assert answer.status is ScheduleStatus.REPLACED
        assert (task.attempt, task.snoozes, task.lost, task.reason) == (0, 0, 0, "")

    @pytest.mark.parametrize(
        ("mode", "status"),
        [
            (OnConflict.REPLACE, ScheduleStatus.REPLACED),
            (OnConflict.EARLIEST, ScheduleStatus.REPLACED),
            (OnConflict.LATEST, ScheduleStatus.REPLACED),
            (OnConflict.KEEP, ScheduleStatus.KEPT),
            (OnConflict.FAIL, ScheduleStatus.CONFLICT),
        ],
        ids=named,
    )
    def test_if_revision_that_is_met_leaves_the_mode_to_decide(
        self, store: Store, mode: OnConflict, status: ScheduleStatus
    ) -> None:
        first = schedule(store, due=In(9_000))

        answer = schedule(store, on_conflict=mode, if_revision=first.revision)

        assert answer.status is status

    @EVERY_MODE
    def test_if_revision_that_is_not_met_is_a_conflict(
        self, store: Store, mode: OnConflict
    ) -> None:
        old = schedule(store, due=In(9_000)).revision
        schedule(store, due=In(9_000), payload=b"newer")
        before = shown(store)

        answer = schedule(store, payload=b"mine", on_conflict=mode, if_revision=old)

        assert answer.status is ScheduleStatus.CONFLICT
        assert (answer.due, answer.revision) == (before.due, before.revision)
        assert shown(store) == before

    @EVERY_MODE
    def test_if_revision_is_a_conflict_where_nothing_waits(
        self, store: Store, mode: OnConflict
    ) -> None:
        answer = schedule(store, on_conflict=mode, if_revision=1)

        assert answer.status is ScheduleStatus.CONFLICT
        assert (answer.due, answer.revision) == (0, 0)
        assert get(store) is None

    def test_if_revision_does_not_mean_the_running_attempt(self, store: Store) -> None:
        lease = start(store)

        answer = schedule(store, if_revision=lease.task.revision)

        assert answer.status is ScheduleStatus.CONFLICT
        assert shown(store).state is TaskState.LEASED

    def test_revisions_grow_with_every_accepted_schedule(self, store: Store) -> None:
        revisions = [schedule(store, due=In(9_000)).revision for _ in range(5)]

        assert revisions == sorted(set(revisions))

    @pytest.mark.parametrize("end", ["done", "cancelled", "dead and purged"])
    def test_revisions_never_restart_though_the_ref_was_gone(self, store: Store, end: str) -> None:
        if end == "cancelled":
            old = schedule(store).revision
            assert cancel(store)
        elif end == "done":
            lease = start(store)
            old = lease.task.revision
            assert settle(store, lease, DONE)
        else:
            old = kill(store)
            assert purge(store)
        assert get(store) is None

        assert schedule(store).revision > old

    def test_a_delay_counts_from_when_the_store_accepts_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        request = Request(REF, In(5_000))
        clock.advance(3_000)

        [answer] = store.schedule([request])

        assert answer.due == clock.now() + 5_000

    @pytest.mark.parametrize("late_ms", [1, 60_000, None])
    def test_a_due_in_the_past_is_due_now(
        self, store: Store, clock: ManualClock, late_ms: int | None
    ) -> None:
        instant = 0 if late_ms is None else clock.now() - late_ms

        answer = schedule(store, due=At(instant))

        assert answer.due == clock.now()
        assert claim_one(store).task.due == clock.now()

    @pytest.mark.parametrize("due", [At(MS_PER_YEAR_9999), In(MS_PER_YEAR_9999)], ids=named)
    def test_the_last_due_is_in_the_year_9999(self, store: Store, due: Due) -> None:
        answer = schedule(store, due=due)

        assert answer.due == shown(store).due == MS_PER_YEAR_9999
        assert claim(store) == []

    def test_items_of_one_batch_with_the_same_ref_act_in_order(self, store: Store) -> None:
        modes = [OnConflict.FAIL, OnConflict.REPLACE, OnConflict.KEEP, OnConflict.FAIL]
        requests = [
            Request(REF, In(n), payload=b"%d" % n, on_conflict=mode) for n, mode in enumerate(modes)
        ]

        answers = store.schedule(requests)

        assert [answer.status for answer in answers] == [
            ScheduleStatus.CREATED,
            ScheduleStatus.REPLACED,
            ScheduleStatus.KEPT,
            ScheduleStatus.CONFLICT,
        ]
        assert {answer.revision for answer in answers[1:]} == {answers[1].revision}
        assert shown(store).payload == b"1"

    def test_a_conflict_leaves_the_rest_of_its_batch_alone(self, store: Store) -> None:
        schedule(store, payload=b"old")
        others = [TaskRef(KIND, "a"), TaskRef(KIND, "b")]

        answers = store.schedule(
            [
                Request(others[0], In(0)),
                Request(REF, In(0), on_conflict=OnConflict.FAIL),
                Request(others[1], In(0)),
            ]
        )

        assert [answer.ref for answer in answers] == [others[0], REF, others[1]]
        assert [answer.status.value for answer in answers] == ["created", "conflict", "created"]
        assert len(claim(store)) == 3
        assert shown(store).payload == b"old"

    def test_a_full_chunk_is_answered_item_by_item(self, store: Store, clock: ManualClock) -> None:
        refs = [TaskRef(KIND, f"{n * 7919 % CHUNK:03}") for n in range(CHUNK)]

        answers = store.schedule([Request(ref, In(n)) for n, ref in enumerate(refs)])

        assert [answer.ref for answer in answers] == refs
        assert [answer.due - clock.now() for answer in answers] == list(range(CHUNK))
        assert {answer.status for answer in answers} == {ScheduleStatus.CREATED}
        assert [task.revision for task in store.get(refs) if task] == [a.revision for a in answers]

    def test_a_dead_letter_does_not_count_as_waiting(self, store: Store) -> None:
        settle(store, start(store), Dead("broken"))

        assert schedule(store, on_conflict=OnConflict.FAIL).status is ScheduleStatus.CREATED
