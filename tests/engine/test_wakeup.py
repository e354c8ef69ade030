"""How long a worker sleeps after each claim, and which news wakes it."""

import pytest

from tarry.engine.wakeup import LOOK_NS, Wakeup
from tarry.lease import Lease
from tarry.stores.store import WAKE_MS, Claimed
from tarry.task import Task, TaskRef

NOW = 1_000_000
MS = 1_000_000
LEASE = Lease(
    task=Task(ref=TaskRef("k", "1"), due=NOW, revision=1, created=NOW),
    token=1,
    holder="w",
    expires=NOW + 1_000,
)


def claimed(next_due: int | None, *, leases: int = 0, now: int = NOW, micros: int = 0) -> Claimed:
    return Claimed([LEASE] * leases, now, micros, next_due)


def test_sleeps_until_the_next_due_to_the_microsecond() -> None:
    assert Wakeup().after(claimed(NOW + 700, micros=250), full=False) == 700 * MS - 250_000


def test_looks_every_two_seconds_when_nothing_is_in_sight() -> None:
    wakeup = Wakeup()

    assert wakeup.after(claimed(None), full=False) == LOOK_NS == WAKE_MS * MS
    assert wakeup.wakes_at == NOW + WAKE_MS


def test_looks_every_two_seconds_however_far_the_next_due_is() -> None:
    assert Wakeup().after(claimed(NOW + 86_400_000), full=False) == LOOK_NS


def test_claims_again_at_once_when_the_limit_was_met() -> None:
    wakeup = Wakeup()

    assert wakeup.after(claimed(NOW + 700, leases=2), full=True) == 0
    assert wakeup.wakes_at is None


def test_claims_again_at_once_when_it_got_something_and_more_is_due() -> None:
    wakeup = Wakeup()

    assert wakeup.after(claimed(NOW, leases=1), full=False) == 0
    assert wakeup.wakes_at is None


def test_sleeps_after_a_claim_that_took_all_there_was() -> None:
    assert Wakeup().after(claimed(NOW + 30, leases=1), full=False) == 30 * MS


def test_full_without_leases_is_no_reason_to_hurry() -> None:
    assert Wakeup().after(claimed(None), full=True) == LOOK_NS


@pytest.mark.parametrize("overdue", [0, 5])
def test_backs_off_from_5_to_250_ms_while_others_hold_what_is_due(overdue: int) -> None:
    wakeup = Wakeup()

    pauses = [wakeup.after(claimed(NOW - overdue), full=False) // MS for _ in range(8)]

    assert pauses == [5, 10, 20, 40, 80, 160, 250, 250]
    assert wakeup.wakes_at == NOW + 250


def test_a_lease_ends_the_backing_off() -> None:
    wakeup = Wakeup()
    for _ in range(4):
        wakeup.after(claimed(NOW), full=False)

    wakeup.after(claimed(NOW, leases=1), full=False)

    assert wakeup.after(claimed(NOW), full=False) == 5 * MS


def test_a_due_in_the_future_ends_the_backing_off() -> None:
    wakeup = Wakeup()
    for _ in range(4):
        wakeup.after(claimed(NOW), full=False)
    wakeup.after(claimed(NOW + 50), full=False)

    assert wakeup.after(claimed(NOW), full=False) == 5 * MS


def too_late(wakeup: Wakeup, now: int) -> int:
    """Come at *now*, as aimed at, and find others faster; returns the wait beyond the next due."""
    following = now + 100
    return wakeup.after(claimed(following, now=now), full=False) // MS - 100


def test_stands_by_from_1_to_20_ms_while_others_are_faster() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW), full=False)

    waits = [too_late(wakeup, NOW + 100 * n) for n in range(1, 8)]

    assert waits == [1, 2, 4, 8, 16, 20, 20]


def test_a_lease_ends_the_standing_by() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW), full=False)
    assert [too_late(wakeup, NOW + 100 * n) for n in (1, 2)] == [1, 2]

    wakeup.after(claimed(NOW + 300, now=NOW + 201, leases=1), full=False)

    assert wakeup.after(claimed(NOW + 500, now=NOW + 250), full=False) == 250 * MS


def test_standing_by_never_sleeps_longer_than_the_look() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW), full=False)

    assert wakeup.after(claimed(NOW + WAKE_MS + 1, now=NOW + 1), full=False) == LOOK_NS


def test_waking_before_the_due_it_aimed_at_is_not_coming_too_late() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW + 500), full=False)

    assert wakeup.after(claimed(NOW + 500, now=NOW + 100), full=False) == 400 * MS


def test_news_is_no_lost_race() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW + 100), full=False)
    wakeup.news()

    assert wakeup.after(claimed(NOW + 300, now=NOW + 100), full=False) == 200 * MS


def test_news_matters_when_it_is_earlier_than_what_the_sleep_aims_at() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW + 500), full=False)

    assert wakeup.matters(NOW + 499)
    assert not wakeup.matters(NOW + 500)


def test_any_news_matters_to_a_worker_that_is_awake() -> None:
    wakeup = Wakeup()
    assert wakeup.matters(NOW + 10_000)

    wakeup.after(claimed(NOW, leases=1), full=False)

    assert wakeup.matters(NOW + 10_000)


@pytest.mark.parametrize("full", [False, True])
def test_a_worker_that_claims_again_at_once_is_not_asleep(full: bool) -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW + 500), full=False)

    assert wakeup.after(claimed(NOW, leases=1), full=full) == 0

    assert wakeup.wakes_at is None


def test_a_worker_that_claims_is_not_asleep() -> None:
    wakeup = Wakeup()
    wakeup.after(claimed(NOW + 500), full=False)

    wakeup.awake()

    assert wakeup.matters(NOW + 10_000)


def test_sleeps_a_single_millisecond_and_does_not_back_off() -> None:
    wakeup = Wakeup()

    assert wakeup.after(claimed(NOW + 1), full=False) == MS
    assert wakeup.wakes_at == NOW + 1
