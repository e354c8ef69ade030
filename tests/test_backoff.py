"""When a failed task is tried again, and when it is given up."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.backoff import DEFAULT, LONGEST_DELAY_MS, Backoff
from tarry.errors import HandlerError

MINUTE = 60_000
CHANCES = st.floats(0, 1, exclude_max=True)


def delays(policy: Backoff, count: int) -> list[int | None]:
    """Return the waits after the first *count* failures of a new task."""
    return [policy.delay_ms(failures, 0, 0.5) for failures in range(1, count + 1)]


def test_fixed_waits_the_same_each_time() -> None:
    assert delays(Backoff.fixed("30s", times=3), 4) == [30_000, 30_000, 30_000, None]


def test_exponential_grows_by_its_factor_up_to_its_max() -> None:
    policy = Backoff.exponential("10s", 3, max="2m", times=5)

    assert delays(policy, 6) == [10_000, 30_000, 90_000, 120_000, 120_000, None]


def test_exponential_takes_a_broken_factor() -> None:
    assert delays(Backoff.exponential("1s", 1.5), 4) == [1_000, 1_500, 2_250, 3_375]


def test_a_max_below_the_base_holds_from_the_first_delay_on() -> None:
    assert delays(Backoff.exponential("1h", max="1m"), 2) == [MINUTE, MINUTE]


def test_powers_are_x_x2_x3_units() -> None:
    policy = Backoff.powers(3, unit="1m", times=3)

    assert delays(policy, 4) == [3 * MINUTE, 9 * MINUTE, 27 * MINUTE, None]


def test_a_ladder_has_as_many_retries_as_steps() -> None:
    assert delays(Backoff.ladder(["1m", 300]), 3) == [MINUTE, 5 * MINUTE, None]


def test_a_ladder_repeats_its_last_step_when_times_goes_beyond() -> None:
    policy = Backoff.ladder(("1m", "5m"), times=4)

    assert delays(policy, 5) == [MINUTE, 5 * MINUTE, 5 * MINUTE, 5 * MINUTE, None]


def test_the_default_is_five_retries_from_ten_seconds_on() -> None:
    assert delays(DEFAULT, 6) == [10_000, 20_000, 40_000, 80_000, 160_000, None]
    assert DEFAULT.cap_ms == 60 * MINUTE


def test_times_zero_gives_up_at_the_first_failure() -> None:
    assert delays(Backoff.fixed("1m", times=0), 1) == [None]


def test_the_count_of_failures_starts_at_one() -> None:
    assert Backoff.ladder(["1m", "5m"]).delay_ms(0, 0, 0.5) == MINUTE


@pytest.mark.parametrize(
    "policy",
    [
        Backoff.exponential("1ms", 1000, times=None),
        Backoff.exponential("1ms", 1e300, times=None),
        Backoff.exponential("1ms", 1.0001, times=None),
        Backoff.exponential("9999w", 2, times=None),
        Backoff.powers(1e308, times=None),
        Backoff.powers(10**400, times=None),
        Backoff.fixed("9999w", times=None),
        Backoff.exponential("1s", 2, max="9999w", times=None, jitter=1),
    ],
)
@pytest.mark.parametrize("failures", [1_000_000, 10**100])
def test_no_delay_is_longer_than_a_year_however_often_it_failed(
    policy: Backoff, failures: int
) -> None:
    assert policy.delay_ms(failures, 0, 0.99) == LONGEST_DELAY_MS


def test_no_delay_stays_no_delay() -> None:
    assert Backoff.exponential(0, 2, times=None).delay_ms(10**6, 0, 0.5) == 0


def test_max_age_gives_up_when_the_retry_would_come_too_late() -> None:
    policy = Backoff.fixed("10m", times=None, max_age="1h")

    assert policy.delay_ms(1, 50 * MINUTE, 0.5) == 10 * MINUTE
    assert policy.delay_ms(1, 50 * MINUTE + 1, 0.5) is None


def test_jitter_spreads_the_delay_evenly_around_itself() -> None:
    policy = Backoff.fixed("100s", jitter=0.2)

    assert policy.delay_ms(1, 0, 0.0) == 80_000
    assert policy.delay_ms(1, 0, 0.5) == 100_000
    assert policy.delay_ms(1, 0, 0.75) == 110_000


@given(
    st.integers(0, 10**12),
    st.floats(1, 100),
    st.integers(1, 10**6),
    st.floats(0, 1),
    CHANCES,
)
def test_every_delay_is_within_its_jitter_and_the_limit(
    base_ms: int, factor: float, failures: int, jitter: float, chance: float
) -> None:
    plain = Backoff((base_ms,), factor).delay_ms(failures, 0, chance)
    spread = Backoff((base_ms,), factor, jitter=jitter).delay_ms(failures, 0, chance)

    assert plain is not None
    assert spread is not None
    assert 0 <= plain <= LONGEST_DELAY_MS
    assert 0 <= spread <= LONGEST_DELAY_MS
    assert math.floor(plain * (1 - jitter)) <= spread <= math.ceil(plain * (1 + jitter))


@given(st.integers(0, 10**6), st.floats(1, 10), st.integers(1, 1000))
def test_delays_never_shrink(base_ms: int, factor: float, failures: int) -> None:
    policy = Backoff((base_ms,), factor)

    assert (policy.delay_ms(failures + 1, 0, 0) or 0) >= (policy.delay_ms(failures, 0, 0) or 0)


def make(name: str, **settings: Any) -> Backoff:
    """Make a policy as the class method *name* does, past the type checker."""
    maker: Any = getattr(Backoff, name)
    policy: Backoff = maker(**settings)
    return policy


@pytest.mark.parametrize(
    ("name", "settings", "parameter"),
    [
        ("fixed", {"delay": "soon"}, "delay"),
        ("fixed", {"delay": -1}, "delay"),
        ("fixed", {"delay": True}, "delay"),
        ("fixed", {"delay": 1, "times": -1}, "times"),
        ("fixed", {"delay": 1, "times": -(10**5000)}, "times"),
        ("fixed", {"delay": 1, "times": 1.0}, "times"),
        ("fixed", {"delay": 1, "times": True}, "times"),
        ("fixed", {"delay": 1, "times": "5"}, "times"),
        ("fixed", {"delay": 1, "max_age": "-1h"}, "max_age"),
        ("fixed", {"delay": 1, "jitter": -0.1}, "jitter"),
        ("fixed", {"delay": 1, "jitter": 1.1}, "jitter"),
        ("fixed", {"delay": 1, "jitter": 10**5000}, "jitter"),
        ("fixed", {"delay": 1, "jitter": float("nan")}, "jitter"),
        ("fixed", {"delay": 1, "jitter": False}, "jitter"),
        ("fixed", {"delay": 1, "jitter": None}, "jitter"),
        ("exponential", {"base": None}, "base"),
        ("exponential", {"base": 1, "factor": 0.9}, "factor"),
        ("exponential", {"base": 1, "factor": True}, "factor"),
        ("exponential", {"base": 1, "factor": float("inf")}, "factor"),
        ("exponential", {"base": 1, "max": "1y"}, "max"),
        ("powers", {"x": 0}, "x"),
        ("powers", {"x": "2"}, "x"),
        ("powers", {"x": 2, "unit": "minute"}, "unit"),
        ("ladder", {"steps": []}, "steps"),
        ("ladder", {"steps": "1m"}, "steps"),
        ("ladder", {"steps": 60}, "steps"),
        ("ladder", {"steps": ["1m", "later"]}, "steps"),
        ("ladder", {"steps": ["1m"], "times": -1}, "times"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_the_name_of_its_parameter(
    name: str, settings: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(HandlerError, match=f"^{parameter}: "):
        make(name, **settings)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Backoff.powers(2, unit="1m", times=5), "2m, 4m, 8m, 16m, 32m, then dead"),
        (Backoff.fixed("1m", times=0), "no retry, then dead"),
        (
            Backoff.fixed("1m", times=20, jitter=0.1),
            "1m, 1m, 1m, 1m, 1m, 1m, 1m, 1m, … 20 times (±10%), then dead",
        ),
        (
            Backoff.exponential("1s", max="4s", times=None, max_age="2h"),
            "1s, 2s, 4s, 4s, 4s, 4s, 4s, 4s, … without end; dead when older than 2h",
        ),
        (Backoff.ladder(["1m", "5m", "30m"]), "1m, 5m, 30m, then dead"),
    ],
)
def test_a_policy_says_what_it_does(policy: Backoff, text: str) -> None:
    assert str(policy) == text


def test_the_longest_delay_is_a_year_of_365_days() -> None:
    assert Backoff.fixed("9999w").delay_ms(1, 0, 0.5) == 365 * 24 * 60 * MINUTE


@pytest.mark.parametrize(
    "policy", [Backoff.fixed("1s"), Backoff.exponential("1s"), Backoff.powers(2, unit="1s")]
)
def test_a_policy_that_names_no_times_retries_five_times(policy: Backoff) -> None:
    assert [delay is None for delay in delays(policy, 6)] == [False] * 5 + [True]


def test_delays_stay_the_same_where_no_factor_is_named() -> None:
    assert delays(Backoff((5, 7)), 4) == [5, 7, 7, 7]


def test_powers_of_one_are_the_unit() -> None:
    assert delays(Backoff.powers(1, unit="1m", times=2), 3) == [MINUTE, MINUTE, None]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fixed", {"delay": 1, "times": 1.0}, "times: 1.0 is not a whole number of at least 0"),
        ("fixed", {"delay": 1, "jitter": 2}, "jitter: 2 is not a number from 0 to 1"),
        ("exponential", {"base": 1, "factor": 0}, "factor: 0 is not a number of at least 1"),
        ("ladder", {"steps": "1m"}, "steps: '1m' is not a list of durations such as"),
    ],
)
def test_a_refusal_says_what_would_have_been_accepted(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(HandlerError) as refused:
        make(name, **settings)

    assert str(refused.value).startswith(message)
