"""Dead letters: records of their own, by ref and revision."""
# ruff: noqa: D102 - the name of a promise is its sentence

from msgspec.structs import replace

from tarry.answers import ReviveResult, SettleResult
from tarry.attempt import Dead, Retry
from tarry.due import In
from tarry.request import DeadRef
from tarry.stores.store import Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    REF,
    claim,
    claim_one,
    expire,
    get,
    kept,
    kill,
    purge,
    revive,
    schedule,
    settle,
    shown,
    start,
)


def letters(store: Store) -> list[int]:
    """Return the revisions of the dead letters of the one ref."""
    return [task.revision for task in kept(store, TaskState.DEAD)]


class DeadLetters:
    """What nobody attempts any more, until it is revived or purged."""

    def test_a_ref_may_have_several(self, store: Store) -> None:
        revisions = [kill(store, reason=str(n)) for n in range(3)]

        assert letters(store) == revisions
        assert [task.reason for task in kept(store, TaskState.DEAD)] == ["0", "1", "2"]
        assert shown(store).revision == revisions[-1]

    def test_scheduling_the_ref_anew_never_touches_them(self, store: Store) -> None:
        old = kill(store)

        schedule(store)
        settle(store, claim_one(store))

        assert letters(store) == [old]

    def test_revive_makes_a_new_revision_that_is_due_now(
        self, store: Store, clock: ManualClock
    ) -> None:
        lease = start(store, payload=b"p", headers=b"h", keep_ms=9)
        settle(store, lease, Retry(In(0)))
        claim_one(store)
        expire(clock)
        settle(store, claim_one(store), Dead("broken"))
        clock.advance(500)

        answer = revive(store)

        assert answer is ReviveResult.REVIVED
        assert answer
        task = shown(store)
        assert task.revision > lease.task.revision
        assert task == Task(
            ref=REF,
            due=clock.now(),
            revision=task.revision,
            created=clock.now(),
            payload=b"p",
            headers=b"h",
            keep_ms=9,
        )
        assert letters(store) == []
        assert claim_one(store).task.attempt == 1

    def test_revive_takes_the_newest_unless_told_otherwise(self, store: Store) -> None:
        first = kill(store, payload=b"first")
        second = kill(store, payload=b"second")
        third = kill(store, payload=b"third")

        assert revive(store)
        assert claim_one(store).task.payload == b"third"
        assert letters(store) == [first, second]
        assert third not in letters(store)

    def test_revive_takes_the_revision_it_is_told(self, store: Store) -> None:
        first = kill(store, payload=b"first")
        second = kill(store, payload=b"second")

        assert revive(store, revision=first)

        assert claim_one(store).task.payload == b"first"
        assert letters(store) == [second]

    def test_what_is_not_dead_cannot_be_revived(self, store: Store) -> None:
        old = kill(store)

        assert revive(store, TaskRef(KIND, "never")) is ReviveResult.ABSENT
        assert revive(store, revision=old + 1_000_000) is ReviveResult.ABSENT
        assert not revive(store, revision=old + 1_000_000)
        assert letters(store) == [old]

    def test_revive_is_skipped_where_a_task_waits(self, store: Store) -> None:
        old = kill(store)
        schedule(store, due=In(5_000))
        before = shown(store)

        answer = revive(store)

        assert answer is ReviveResult.SKIPPED
        assert not answer
        assert shown(store) == before
        assert letters(store) == [old]

    def test_revive_is_skipped_where_an_attempt_runs(self, store: Store) -> None:
        old = kill(store)
        lease = start(store)

        assert revive(store) is ReviveResult.SKIPPED

        assert letters(store) == [old]
        assert settle(store, lease) is SettleResult.SETTLED
        assert revive(store) is ReviveResult.REVIVED

    def test_revivals_of_one_batch_act_in_order(self, store: Store) -> None:
        first, second = kill(store), kill(store)
        only = TaskRef(KIND, "only")
        kill(store, only)

        answers = store.revive(
            [
                DeadRef(REF, first),
                DeadRef(REF, second),
                DeadRef(only),
                DeadRef(only),
                DeadRef(TaskRef(KIND, "never")),
            ]
        )

        assert answers == [
            ReviveResult.REVIVED,
            ReviveResult.SKIPPED,
            ReviveResult.REVIVED,
            ReviveResult.ABSENT,
            ReviveResult.ABSENT,
        ]
        assert letters(store) == [second]
        assert len(claim(store)) == 2

    def test_what_was_revived_may_die_again(self, store: Store) -> None:
        old = kill(store)
        revive(store)

        settle(store, claim_one(store), Dead("again"))

        [letter] = kept(store, TaskState.DEAD)
        assert letter.revision > old
        assert letter.reason == "again"

    def test_purge_deletes_the_newest_unless_told_otherwise(self, store: Store) -> None:
        first, second, third = kill(store), kill(store), kill(store)

        assert purge(store)
        assert letters(store) == [first, second]
        assert purge(store, revision=first)
        assert letters(store) == [second]
        assert not purge(store, revision=third)
        assert purge(store)
        assert not purge(store)
        assert get(store) is None

    def test_purges_are_answered_in_order(self, store: Store) -> None:
        kill(store)

        answers = store.purge([DeadRef(TaskRef(KIND, "never")), DeadRef(REF), DeadRef(REF)])

        assert answers == [False, True, False]

    def test_purge_touches_neither_what_waits_nor_what_runs(self, store: Store) -> None:
        kill(store)
        lease = start(store)
        schedule(store)

        assert purge(store)
        assert not purge(store, revision=lease.task.revision)

        assert settle(store, lease) is SettleResult.SUPERSEDED
        assert len(claim(store)) == 1

    def test_a_dead_letter_of_an_expired_lease_counts_what_it_lost(
        self, store: Store, clock: ManualClock
    ) -> None:
        start(store)
        expire(clock)
        lease = claim_one(store)

        settle(store, lease, Dead("lost too often"))

        assert shown(store) == replace(
            lease.task, state=TaskState.DEAD, reason="lost too often", ended=clock.now()
        )
        assert (lease.task.attempt, lease.task.lost) == (2, 1)
