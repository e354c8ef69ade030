"""Whatever becomes claimable soon wakes the workers, once per call."""
# ruff: noqa: D102 - the name of a promise is its sentence

import threading
from collections.abc import Callable, Iterator

import pytest

from tarry.attempt import DONE, RELEASE, AnyOutcome, Retry, Snooze
from tarry.due import In
from tarry.request import OnConflict, Request, Settlement, Successor
from tarry.stores.store import WAKE_MS, Store
from tarry.task import Task, TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.conformance.kit import (
    KIND,
    LIMIT_S,
    OUTCOMES,
    REF,
    Ear,
    cancel,
    claim,
    claim_one,
    kill,
    move,
    named,
    one_order,
    renew,
    revive,
    schedule,
    settle,
    start,
)

SOON = In(1_500)
LATER = In(WAKE_MS + 1_000)


def shout(store: Store) -> int:
    """Make a wake-up that nothing else makes; returns its due."""
    return schedule(store, TaskRef("loud.kind", "x"), In(7)).due


class Waking:
    """Each test does one thing, then something loud, and hears what came before the loud one."""

    @pytest.fixture
    def listen(self, store: Store) -> Iterator[Callable[[], Ear]]:
        """Begin to listen; stop when the test is over."""
        ears: list[Ear] = []

        def begin() -> Ear:
            ears.append(Ear(store))
            return ears[-1]

        yield begin
        for ear in ears:
            ear.undo()

    def test_a_schedule_that_is_due_soon_wakes(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        ear = listen()

        answer = schedule(store, due=SOON)

        assert ear.heard(1) == [answer.due]

    def test_a_schedule_that_is_far_away_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        ear = listen()

        schedule(store, due=LATER)

        assert [shout(store)] == ear.heard(1)

    def test_a_move_wakes(self, store: Store, listen: Callable[[], Ear]) -> None:
        schedule(store, due=LATER)
        ear = listen()

        answer = move(store, SOON)

        assert ear.heard(1) == [answer.due]

    def test_a_move_far_away_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        schedule(store)
        ear = listen()

        move(store, LATER)

        assert [shout(store)] == ear.heard(1)

    @pytest.mark.parametrize("outcome", [Retry(SOON), Snooze(SOON)], ids=named)
    def test_a_retry_wakes(
        self, store: Store, clock: ManualClock, listen: Callable[[], Ear], outcome: AnyOutcome
    ) -> None:
        lease = start(store)
        ear = listen()

        settle(store, lease, outcome)

        assert ear.heard(1) == [clock.now() + SOON.delay_ms]

    @pytest.mark.parametrize("outcome", [Retry(LATER), Snooze(LATER)], ids=named)
    def test_a_retry_that_is_far_away_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear], outcome: AnyOutcome
    ) -> None:
        lease = start(store)
        ear = listen()

        settle(store, lease, outcome)

        assert [shout(store)] == ear.heard(1)

    def test_a_release_wakes(self, store: Store, listen: Callable[[], Ear]) -> None:
        lease = start(store)
        ear = listen()

        settle(store, lease, RELEASE)

        assert ear.heard(1) == [lease.task.due]

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
    def test_a_freed_revision_wakes(
        self, store: Store, listen: Callable[[], Ear], outcome: AnyOutcome
    ) -> None:
        lease = start(store)
        newer = schedule(store, due=In(300))
        ear = listen()

        settle(store, lease, outcome)

        assert ear.heard(1) == [newer.due]

    def test_a_next_occurrence_wakes(
        self, store: Store, clock: ManualClock, listen: Callable[[], Ear]
    ) -> None:
        lease = start(store, rule="every 1s")
        ear = listen()

        settle(store, lease, DONE, Successor(clock.now() + 1_000, clock.now() + 1_000))

        assert ear.heard(1) == [clock.now() + 1_000]

    def test_a_revived_task_wakes(
        self, store: Store, clock: ManualClock, listen: Callable[[], Ear]
    ) -> None:
        kill(store)
        ear = listen()

        revive(store)

        assert ear.heard(1) == [clock.now()]

    def test_a_resumed_kind_wakes(self, store: Store, listen: Callable[[], Ear]) -> None:
        schedule(store)
        store.pause(KIND, paused=True)
        ear = listen()

        store.pause(KIND, paused=False)

        assert len(ear.heard(1)) == 1

    def test_a_resumed_kind_with_nothing_soon_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        schedule(store, due=In(60_000))
        store.pause(KIND, paused=True)
        ear = listen()

        store.pause(KIND, paused=False)

        assert [shout(store)] == ear.heard(1)

    def test_a_paused_kind_costs_no_wake_up(self, store: Store, listen: Callable[[], Ear]) -> None:
        lease = start(store)
        ear = listen()
        store.pause(KIND, paused=True)

        settle(store, lease, Retry(In(0)))
        schedule(store, TaskRef(KIND, "2"))
        move(store, In(5), TaskRef(KIND, "2"))

        assert [shout(store)] == ear.heard(1)

    def test_a_revision_behind_a_running_attempt_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        start(store)
        ear = listen()

        schedule(store)
        move(store, In(1))

        assert [shout(store)] == ear.heard(1)

    def test_what_makes_nothing_claimable_costs_no_wake_up(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        schedule(store)
        lease = start(store, TaskRef("another.kind", "1"))
        ear = listen()

        schedule(store, on_conflict=OnConflict.KEEP)
        schedule(store, on_conflict=OnConflict.FAIL)
        move(store, In(0), if_revision=0)
        claim(store, "no.such.kind")
        renew(store, lease)
        settle(store, lease)
        settle(store, lease, Retry(In(0)))
        cancel(store)

        assert [shout(store)] == ear.heard(1)

    def test_one_call_wakes_once(self, store: Store, listen: Callable[[], Ear]) -> None:
        one_order(store)
        refs = [TaskRef(KIND, str(n)) for n in range(3)]
        ear = listen()

        answers = store.schedule([Request(ref, In(10 * n)) for n, ref in enumerate(refs)])
        loud = shout(store)

        first, second = ear.heard(2)
        assert first in {answer.due for answer in answers}
        assert second == loud

    def test_one_settle_wakes_once(
        self, store: Store, clock: ManualClock, listen: Callable[[], Ear]
    ) -> None:
        one_order(store)
        store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(3)])
        leases = claim(store)
        ear = listen()

        store.settle([Settlement(lease, Retry(In(50))) for lease in leases])
        loud = shout(store)

        assert ear.heard(2) == [clock.now() + 50, loud]

    def test_every_call_is_heard_in_order(self, store: Store, listen: Callable[[], Ear]) -> None:
        ear = listen()

        dues = [schedule(store, TaskRef(f"kind.{n}", "1"), In(n)).due for n in range(20)]

        heard = ear.heard(20)
        # Shards may lie on several servers.
        assert (heard if store.capabilities.shards == 1 else sorted(heard)) == dues

    def test_an_earlier_task_of_the_same_kind_wakes(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        schedule(store, due=In(1_000))
        ear = listen()

        earlier = schedule(store, TaskRef(KIND, "earlier"), In(500))

        assert ear.heard(1) == [earlier.due]

    def test_a_wake_up_comes_when_the_task_can_be_seen(self, store: Store) -> None:
        seen: list[Task | None] = []
        done = threading.Event()

        def look(_due: int) -> None:
            seen.extend(store.get([REF]))
            done.set()

        undo = store.watch(look)
        answer = schedule(store)

        assert done.wait(LIMIT_S)
        undo()
        assert [task and task.revision for task in seen] == [answer.revision]
        assert claim_one(store).task.revision == answer.revision

    def test_all_who_listen_hear(self, store: Store, listen: Callable[[], Ear]) -> None:
        ears = [listen(), listen()]

        answer = schedule(store)

        assert [ear.heard(1) for ear in ears] == [[answer.due]] * 2

    def test_who_stops_listening_hears_nothing_more(
        self, store: Store, listen: Callable[[], Ear]
    ) -> None:
        gone, stays = listen(), listen()
        first = schedule(store, TaskRef("kind.1", "1"), In(1)).due
        assert (gone.heard(1), stays.heard(1)) == ([first], [first])

        gone.undo()
        gone.undo()

        second = schedule(store, TaskRef("kind.2", "1"), In(2)).due
        assert stays.heard(2) == [first, second]
        assert gone.heard(1) == [first]
