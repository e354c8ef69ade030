"""What becomes of an attempt, decided without clock or store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.attempt import (
    DONE,
    REASON_LIMIT,
    RELEASE,
    AnyOutcome,
    Dead,
    Done,
    Outcome,
    Retry,
    Skip,
    Snooze,
)
from tarry.backoff import Backoff
from tarry.due import At, Earlier, In, Shift
from tarry.errors import TarryError, WhenError
from tarry.outcome import decide
from tarry.outcome.decide import LOST_LIMIT
from tarry.recurrence import Rule
from tarry.task import Task, TaskRef

NOW = 1_750_000_000_000


class Limits:
    def __init__(self, retry: Backoff, drop_after_ms: int | None = None) -> None:
        self.retry = retry
        self.drop_after_ms = drop_after_ms


LADDER = Limits(Backoff.ladder(["1s", "5s"]))


def task(**facts: Any) -> Task:
    given = {"ref": TaskRef("k", "1"), "due": NOW, "revision": 1, "created": NOW, "attempt": 1}
    return Task(**{**given, **facts})


def failing(error: BaseException, **facts: Any) -> AnyOutcome:
    return decide.of_error(error, task(**facts), LADDER, NOW, 0.5)


# ---- before the attempt


def test_a_task_may_start() -> None:
    assert decide.before(task(), LADDER, 1e9) is None


def test_a_task_that_was_lost_too_often_is_dead() -> None:
    assert decide.before(task(lost=LOST_LIMIT), LADDER, 0) is None

    dead = decide.before(task(lost=LOST_LIMIT + 1), LADDER, 0)

    assert dead is not None
    assert dead.reason.startswith("lost too often")


def test_a_task_that_is_too_late_is_dead() -> None:
    limits = Limits(LADDER.retry, drop_after_ms=1_000)
    assert decide.before(task(), limits, 1_000) is None

    dead = decide.before(task(), limits, 1_000.5)

    assert dead == Dead("expired: 1.000 s late")


def test_a_task_at_the_limit_of_losses_runs_alone() -> None:
    assert not decide.runs_alone(task(lost=LOST_LIMIT - 1))
    assert decide.runs_alone(task(lost=LOST_LIMIT))


# ---- results


@pytest.mark.parametrize("result", [None, 7, "text", object(), True, DONE, RELEASE, Retry, ...])
def test_whatever_is_no_wish_is_done(result: object) -> None:
    assert decide.of_result(result, NOW) == DONE


@pytest.mark.parametrize("outcome", [Done("well"), Skip("paid"), Dead("broken")])
def test_a_wish_is_an_outcome_returned_or_raised(outcome: AnyOutcome) -> None:
    assert decide.of_result(outcome, NOW) == outcome
    assert failing(outcome) == outcome


@pytest.mark.parametrize("wish", [Retry, Snooze])
@pytest.mark.parametrize(
    ("when", "due"),
    [
        ("5m", In(300_000)),
        (5, In(5_000)),
        (0.25, In(250)),
        (timedelta(seconds=2), In(2_000)),
        ("now", In(0)),
        (datetime(2030, 1, 1, tzinfo=UTC), At(1_893_456_000_000)),
        (In(7), In(7)),
        (At(NOW), At(NOW)),
    ],
)
def test_the_time_of_a_wish_is_read(wish: type[Retry | Snooze], when: Any, due: object) -> None:
    outcome = decide.of_result(wish(when, "why"), NOW)

    assert type(outcome) is wish
    assert outcome.due == due
    assert outcome.reason == "why"
    assert failing(wish(when, "why")) == outcome


BAD_TIMES = [
    "soon",
    -1,
    datetime(2030, 1, 1),
    None,
    b"1m",
    Shift("+1m"),
    Earlier("1m"),
    [],
    object(),
]


@pytest.mark.parametrize("wish", [Retry, Snooze])
@pytest.mark.parametrize("when", BAD_TIMES, ids=lambda when: type(when).__name__)
def test_a_wish_with_a_bad_time_is_a_failure(wish: type[Retry | Snooze], when: Any) -> None:
    with pytest.raises(WhenError):
        decide.of_result(wish(when), NOW)

    raised = failing(wish(when))

    assert isinstance(raised, Retry)
    assert raised.due == In(1_000)
    assert raised.reason.startswith("WhenError")


def test_a_wish_of_a_users_own_class_is_understood() -> None:
    class Later(Snooze):
        def __init__(self) -> None:
            super().__init__("5m", "mine")

    outcome = decide.of_result(Later(), NOW)

    assert isinstance(outcome, Snooze)
    assert outcome.due == In(300_000)


def test_an_outcome_of_a_users_own_class_has_the_word_of_its_base() -> None:
    class CardExpired(Dead): ...

    class Paid(Skip):
        def __init__(self, order: int) -> None:
            super().__init__(f"order {order} is paid")

    assert decide.of_result(CardExpired("card"), NOW) == Dead("card")
    assert failing(Paid(7)) == Skip("order 7 is paid")


def test_the_due_of_a_wish_that_was_not_read_is_an_error() -> None:
    with pytest.raises(TypeError, match="not been read"):
        _ = Retry("5m").due


# ---- errors


def test_a_failure_is_retried_by_the_policy() -> None:
    assert failing(ValueError("no")) == Retry(In(1_000), "ValueError: no")
    assert failing(ValueError("no"), attempt=2) == Retry(In(5_000), "ValueError: no")


def test_after_the_last_retry_the_task_is_dead() -> None:
    assert failing(ValueError("no"), attempt=3) == Dead("failed too often (3): ValueError: no")


def test_lost_attempts_are_no_failures() -> None:
    assert failing(ValueError("no"), attempt=5, lost=4) == Retry(In(1_000), "ValueError: no")


def test_a_wish_to_retry_counts_as_a_failure() -> None:
    wish = Retry(In(7), "not today")

    assert decide.within_limits(wish, task(attempt=2), LADDER, NOW) is wish
    assert decide.within_limits(wish, task(attempt=3), LADDER, NOW) == Dead(
        "failed too often (3): not today"
    )
    assert decide.within_limits(Retry(In(7)), task(attempt=3), LADDER, NOW) == Dead(
        "failed too often (3): it asked to be retried"
    )


@pytest.mark.parametrize("outcome", [DONE, Skip(), Dead(), Snooze(In(7))])
def test_other_wishes_have_no_limit(outcome: AnyOutcome) -> None:
    assert decide.within_limits(outcome, task(attempt=50), LADDER, NOW) is outcome


def test_the_age_of_a_task_counts_from_its_creation() -> None:
    limits = Limits(Backoff.fixed("1s", max_age="10s"))

    young = decide.of_error(ValueError(), task(created=NOW - 9_000), limits, NOW, 0)
    old = decide.of_error(ValueError(), task(created=NOW - 9_001), limits, NOW, 0)
    unborn = decide.of_error(ValueError(), task(created=NOW + 5_000), limits, NOW, 0)

    assert isinstance(young, Retry)
    assert isinstance(old, Dead)
    assert isinstance(unborn, Retry)


class Speechless(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("I have no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError("  no\n"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(3), "SystemExit: 3"),
        (Speechless(), "Speechless"),
    ],
)
def test_an_error_is_told_in_one_line(error: BaseException, text: str) -> None:
    assert decide.describe(error) == text
    assert failing(error) == Retry(In(1_000), text)


def test_a_reason_can_always_be_kept() -> None:
    surrogates = failing(ValueError("file \udcff"))

    assert surrogates.reason.encode()
    assert len(Dead("x" * 10_000).reason) == REASON_LIMIT
    assert Dead(ValueError("odd")).reason == "odd"  # type: ignore[arg-type]
    assert Dead(None).reason == ""  # type: ignore[arg-type]
    assert Dead("\udcff").reason.encode()


def test_outcomes_are_values() -> None:
    assert Skip("a") == Skip("a")
    assert Skip("a") != Skip("b")
    assert Skip("a") != Done("a")
    assert len({Skip("a"), Skip("a"), Dead("a")}) == 2
    assert repr(Retry("5m", "why")) == "Retry(reason='why', when='5m')"
    assert repr(DONE) == "Done()"
    assert not isinstance(DONE, TarryError)
    assert issubclass(Outcome, Exception)


# ---- what follows


def test_a_task_without_a_rule_has_no_successor() -> None:
    assert decide.successor(task(), NOW) is None


def test_the_successor_follows_the_nominal_occurrence() -> None:
    rule = Rule.make(every="1m").text()

    found = decide.successor(task(rule=rule, nominal=NOW - 500, due=NOW), NOW)

    assert found is not None
    assert found.due == found.nominal == NOW - 500 + 60_000


def test_a_series_ends_with_the_calendar() -> None:
    rule = Rule.make(every="365d").text()

    assert decide.successor(task(rule=rule, nominal=253_402_300_000_000), NOW) is None


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (DONE, "done"),
        (Skip(), "skip"),
        (Dead(), "dead"),
        (Retry("1s"), "retry"),
        (Snooze("1s"), "snooze"),
        (RELEASE, "release"),
    ],
)
def test_an_outcome_has_a_word(outcome: AnyOutcome, word: str) -> None:
    assert decide.name(outcome) == word


def test_a_wished_retry_counts_as_a_failure_and_ends_where_the_policy_does() -> None:
    wish = Retry(In(7_000), "slow down")
    young, old = task(attempt=1), task(attempt=99)

    assert decide.within_limits(wish, young, LADDER, NOW) is wish
    dead = decide.within_limits(wish, old, LADDER, NOW)
    assert isinstance(dead, Dead)
    assert "slow down" in dead.reason


def test_other_wishes_have_no_limits() -> None:
    wish = Snooze(In(7_000))

    assert decide.within_limits(wish, task(attempt=99), LADDER, NOW) is wish


# ---- the limits themselves


def test_a_task_may_be_lost_five_times() -> None:
    assert decide.before(task(lost=5), LADDER, 0) is None
    assert decide.before(task(lost=6), LADDER, 0) is not None


def test_a_dead_letter_says_how_late_it_was_in_seconds() -> None:
    limits = Limits(LADDER.retry, drop_after_ms=1_000)

    assert decide.before(task(), limits, 61_500) == Dead("expired: 61.500 s late")


@pytest.mark.parametrize(("delay", "outcome"), [("1s", Retry), (1.001, Dead)])
def test_a_task_that_was_created_in_the_future_has_no_age(
    delay: str | float, outcome: type[AnyOutcome]
) -> None:
    limits = Limits(Backoff.fixed(delay, max_age="1s"))

    assert type(decide.failed("no", task(created=NOW + 5_000), limits, NOW, 0)) is outcome


def test_a_wished_retry_is_judged_without_jitter() -> None:
    limits = Limits(Backoff.fixed("10s", jitter=0.5, max_age="10s"))
    wish = Retry(In(7_000))

    assert decide.within_limits(wish, task(), limits, NOW) is wish
