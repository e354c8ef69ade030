"""What a reschedule does; its answers come in one order."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest
from msgspec.structs import replace

from tarry.answers import Moved, MoveStatus, SettleResult
from tarry.attempt import Retry, Snooze
from tarry.clock import MS_PER_YEAR_9999
from tarry.due import At, By, Due, In
from tarry.request import Move, Only
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    REF,
    claim,
    claim_one,
    expire,
    get,
    kill,
    move,
    named,
    schedule,
    settle,
    shown,
    start,
)

NOT_MET = pytest.mark.parametrize(
    ("only", "due"),
    [
        (Only.EARLIER, In(9_000)),
        (Only.EARLIER, In(20_000)),
        (Only.EARLIER, By(0)),
        (Only.LATER, In(9_000)),
        (Only.LATER, In(1_000)),
        (Only.LATER, By(-1)),
    ],
    ids=named,
)


class Rescheduling:
    """Give the waiting revision a new due."""

    def test_nothing_to_move_is_absent(self, store: Store) -> None:
        assert move(store, In(5)) == Moved(REF, 0, 0, MoveStatus.ABSENT)
        assert get(store) is None

    def test_a_dead_letter_cannot_be_moved(self, store: Store) -> None:
        kill(store)

        assert move(store, In(5)).status is MoveStatus.ABSENT

    def test_absent_is_said_before_conflict(self, store: Store) -> None:
        assert move(store, In(5), if_revision=7).status is MoveStatus.ABSENT

    def test_only_a_running_attempt_is_running(self, store: Store) -> None:
        lease = start(store)

        answer = move(store, In(5_000))

        assert answer == Moved(REF, 0, 0, MoveStatus.RUNNING)
        assert shown(store) == lease.task

    def test_running_is_said_before_conflict(self, store: Store) -> None:
        start(store)

        assert move(store, In(5), if_revision=0).status is MoveStatus.RUNNING

    def test_a_move_that_came_too_late_does_not_shift_the_retry(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        move(store, In(5_000))

        settle(store, lease, Retry(In(700)))

        assert shown(store).due == clock.now() + 700

    def test_another_revision_than_the_wanted_one_is_a_conflict(self, store: Store) -> None:
        old = schedule(store, due=In(9_000)).revision
        schedule(store, due=In(9_000))
        before = shown(store)

        answer = move(store, In(5_000), if_revision=old)

        assert answer == Moved(REF, before.due, before.revision, MoveStatus.CONFLICT)
        assert shown(store) == before

    @NOT_MET
    def test_conflict_is_said_before_unchanged(
        self, store: Store, only: Only, due: Due | By
    ) -> None:
        old = schedule(store, due=In(9_000)).revision
        schedule(store, due=In(9_000))

        assert move(store, due, only=only, if_revision=old).status is MoveStatus.CONFLICT

    @NOT_MET
    def test_a_move_the_wrong_way_leaves_the_task_unchanged(
        self, store: Store, only: Only, due: Due | By
    ) -> None:
        schedule(store, due=In(9_000))
        before = shown(store)

        answer = move(store, due, only=only, if_revision=before.revision)

        assert answer == Moved(REF, before.due, before.revision, MoveStatus.UNCHANGED)
        assert shown(store) == before

    @pytest.mark.parametrize(
        ("only", "due", "due_ms"),
        [
            (Only.ANY, In(5_000), 5_000),
            (Only.ANY, In(20_000), 20_000),
            (Only.ANY, In(9_000), 9_000),
            (Only.EARLIER, In(8_999), 8_999),
            (Only.LATER, In(9_001), 9_001),
            (Only.ANY, By(1_500), 10_500),
            (Only.ANY, By(-1_500), 7_500),
            (Only.EARLIER, By(-60_000), 0),
            (Only.ANY, In(0), 0),
        ],
        ids=named,
    )
    def test_a_move_changes_due_and_revision_and_nothing_else(
        self, store: Store, clock: ManualClock, only: Only, due: Due | By, due_ms: int
    ) -> None:
        settle(store, start(store, payload=b"p", headers=b"h", keep_ms=9), Snooze(In(0)))
        settle(store, claim_one(store), Retry(In(0), "failed"))
        claim_one(store)
        expire(clock)
        claim_one(store)
        expire(clock)
        move(store, In(9_000))
        before = shown(store)
        assert (before.attempt, before.snoozes, before.lost) == (3, 1, 2)

        answer = move(store, due, only=only, if_revision=before.revision)

        assert answer
        assert answer.status is MoveStatus.MOVED
        assert answer.due == clock.now() + due_ms
        assert answer.revision > before.revision
        assert shown(store) == replace(before, due=answer.due, revision=answer.revision)

    def test_only_moved_is_true(self, store: Store) -> None:
        schedule(store)

        assert not move(store, In(5), TaskRef(KIND, "absent"))
        assert not move(store, In(5), if_revision=0)
        assert not move(store, In(5), only=Only.EARLIER)
        assert move(store, In(5))

    def test_a_task_moved_away_does_not_run_at_its_old_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, due=In(1_000))
        move(store, In(5_000))

        clock.advance(4_999)
        assert claim(store) == []
        clock.advance(1)
        assert len(claim(store)) == 1

    def test_a_task_moved_up_runs_at_its_new_due(self, store: Store, clock: ManualClock) -> None:
        schedule(store, due=In(60_000))
        schedule(store, TaskRef(KIND, "first"), In(500))

        move(store, In(100))
        clock.advance(100)

        assert claim_one(store).ref == REF

    def test_a_move_into_the_past_is_a_move_to_now(self, store: Store, clock: ManualClock) -> None:
        schedule(store, due=In(9_000))

        assert move(store, At(clock.now() - 5_000)).due == clock.now()

    def test_no_shift_leads_beyond_the_year_9999(self, store: Store) -> None:
        schedule(store, due=In(9_000))

        assert move(store, By(MS_PER_YEAR_9999)).due == MS_PER_YEAR_9999
        assert move(store, By(1)).due == MS_PER_YEAR_9999

    def test_a_revision_behind_a_running_attempt_can_be_moved(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        schedule(store, due=In(1_000))

        assert move(store, In(3_000))

        assert settle(store, lease) is SettleResult.SUPERSEDED
        clock.advance(2_999)
        assert claim(store) == []
        clock.advance(1)
        assert len(claim(store)) == 1

    def test_moves_of_one_batch_with_the_same_ref_act_in_order(
        self, store: Store, clock: ManualClock
    ) -> None:
        schedule(store, due=In(9_000))

        answers = store.reschedule(
            [Move(REF, By(100)), Move(TaskRef(KIND, "absent"), In(1)), Move(REF, By(100))]
        )

        assert [answer.status for answer in answers] == [
            MoveStatus.MOVED,
            MoveStatus.ABSENT,
            MoveStatus.MOVED,
        ]
        assert answers[2].revision > answers[0].revision
        assert shown(store).due == clock.now() + 9_200

    def test_a_move_that_finds_an_ended_lease_counts_it_as_lost(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        answer = move(store, In(5_000))

        assert answer
        task = shown(store)
        assert (task.due, task.attempt, task.lost) == (clock.now() + 5_000, 1, 1)
        assert settle(store, lease) is SettleResult.LEASE_LOST

    def test_an_ended_lease_that_need_not_move_is_ended_all_the_same(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store)
        expire(clock)

        assert move(store, In(5_000), only=Only.EARLIER).status is MoveStatus.UNCHANGED

        assert settle(store, lease) is SettleResult.LEASE_LOST
        assert claim_one(store).task.lost == 1
