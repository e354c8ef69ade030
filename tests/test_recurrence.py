"""Which occurrence of a recurring task comes next."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.clock import MS_PER_YEAR_9999
from tarry.errors import HandlerError
from tarry.recurrence import Rule

HOUR = 3_600_000
DAY = 24 * HOUR
TEN_YEARS = 3_652 * DAY
CatchUp = Literal["latest", "all", "none"]


def at(text: str) -> int:
    """Return the instant of an ISO text."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def iso(instants: list[int]) -> list[str]:
    """Return the instants as short ISO texts in UTC."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [epoch + timedelta(milliseconds=instant) for instant in instants]
    return [moment.strftime("%m-%dT%H:%M") for moment in moments]


NOW = at("2025-06-11T10:00:00.500+00:00")


def test_the_first_interval_starts_now() -> None:
    assert Rule.make(every="1h").first(NOW) == NOW + HOUR


def test_the_first_cron_occurrence_is_after_now() -> None:
    rule = Rule.make(cron="0 10 * * *", tz="Europe/Berlin")

    assert rule.first(at("2025-06-11T07:59:59.999Z")) == at("2025-06-11T08:00Z")
    assert rule.first(at("2025-06-11T08:00Z")) == at("2025-06-12T08:00Z")


def test_six_fields_start_with_the_seconds() -> None:
    rule = Rule.make(cron="*/20 * * * * *")

    assert rule.upcoming(NOW, 2) == [NOW - 500 + 20_000, NOW - 500 + 40_000]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("all", NOW + HOUR), ("latest", NOW + 5 * HOUR), ("none", NOW + 6 * HOUR)],
)
@pytest.mark.parametrize("settings", [{"every": "1h"}, {"cron": "0 * * * *"}])
def test_catch_up_says_what_becomes_of_missed_occurrences(
    catch_up: CatchUp, expected: int, settings: dict[str, str]
) -> None:
    nominal = NOW - 500
    rule = Rule.make(**settings, catch_up=catch_up)

    assert rule.next(nominal, nominal + 5 * HOUR + 1) == expected - 500


@pytest.mark.parametrize("catch_up", ["all", "latest", "none"])
@pytest.mark.parametrize("settings", [{"every": "1h"}, {"cron": "0 * * * *"}])
def test_with_nothing_missed_the_next_occurrence_is_the_one_after(
    catch_up: CatchUp, settings: dict[str, str]
) -> None:
    nominal = NOW - 500
    rule = Rule.make(**settings, catch_up=catch_up)

    assert rule.next(nominal, nominal) == nominal + HOUR
    assert rule.next(nominal, nominal + HOUR - 1) == nominal + HOUR
    assert rule.next(nominal, nominal - 5 * HOUR) == nominal + HOUR


@given(
    st.integers(0, 4 * 10**12),
    st.integers(1, TEN_YEARS),
    st.integers(-TEN_YEARS, TEN_YEARS),
    st.sampled_from(["latest", "all", "none"]),
)
def test_an_interval_keeps_its_phase(
    nominal: int, every_ms: int, gap: int, catch_up: CatchUp
) -> None:
    now = nominal + gap
    following = Rule(every_ms=every_ms, catch_up=catch_up).next(nominal, now)

    assert following is not None
    assert following > nominal
    assert (following - nominal) % every_ms == 0
    if catch_up == "all":
        assert following == nominal + every_ms
    elif catch_up == "none":
        assert following > now
        assert following - every_ms <= max(now, nominal)
    else:
        assert following + every_ms > now
        assert following <= max(now, nominal + every_ms)


@pytest.mark.parametrize("catch_up", ["all", "latest", "none"])
@pytest.mark.parametrize(
    "settings",
    [{"every": "1ms"}, {"cron": "* * * * * *"}, {"cron": "* * * * *", "tz": "Asia/Tokyo"}],
)
@pytest.mark.timeout(2)
def test_a_gap_of_ten_years_is_crossed_at_once(catch_up: CatchUp, settings: dict[str, str]) -> None:
    nominal = NOW - 500
    now = nominal + TEN_YEARS
    rule = Rule.make(**settings, catch_up=catch_up)
    following = rule.next(nominal, now)

    assert following is not None
    if catch_up == "all":
        assert following <= nominal + 60_000
    else:
        assert abs(following - now) <= 60_000
        assert (following > now) == (catch_up == "none")


PATTERNS = [
    "30 2 * * *",
    "0-59 2 * * *",
    "0 2,3 * * *",
    "30 23 * * *",
    "0 0 * * *",
    "*/20 * * * *",
    "15 */2 * * *",
    "0 30 2 * * *",
    "*/30 59 * * * *",
    "0 0 L * *",
    "0 12 * * 1-5",
    "30 */3 */2 * *",
    "0 */10 23 * * SUN",
]
ZONES = ["UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe"]
CLOCK_CHANGES = [
    at("2025-03-09T05:00Z"),
    at("2025-03-29T22:00Z"),
    at("2025-03-30T01:00Z"),
    at("2025-04-05T15:00Z"),
    at("2025-10-04T15:30Z"),
    at("2025-10-25T21:00Z"),
    at("2025-10-26T01:00Z"),
    at("2025-11-02T05:00Z"),
]


@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(ZONES),
    st.sampled_from(CLOCK_CHANGES),
    st.integers(-3 * HOUR, 3 * HOUR),
    st.integers(0, 2 * DAY),
)
@settings(max_examples=400, deadline=None)
def test_latest_agrees_with_taking_every_occurrence_in_turn(
    cron: str, tz: str, change: int, offset: int, gap: int
) -> None:
    now = change + offset
    nominal = now - gap
    rule = Rule(cron=cron, tz=tz)
    expected = rule.first(nominal)
    while (following := rule.first(expected)) <= now:
        expected = following

    assert rule.next(nominal, now) == expected


@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(ZONES),
    st.sampled_from(CLOCK_CHANGES),
    st.integers(-3 * HOUR, 3 * HOUR),
)
@settings(max_examples=400, deadline=None)
def test_the_series_does_not_depend_on_where_it_is_resumed(
    cron: str, tz: str, change: int, offset: int
) -> None:
    rule = Rule(cron=cron, tz=tz, catch_up="all")
    series = rule.upcoming(change + offset, 30)

    resumed = [rule.next(nominal, change) for nominal in series[:-1]]

    assert series == sorted(set(series))
    assert series[0] > change + offset
    assert resumed == series[1:]


def test_berlin_half_past_two_fires_once_in_the_night_that_skips_it() -> None:
    rule = Rule.make(cron="30 2 * * *", tz="Europe/Berlin")

    fired = rule.upcoming(at("2025-03-29T00:00Z"), 3)

    assert iso(fired) == ["03-29T01:30", "03-30T01:00", "03-31T00:30"]


def test_berlin_half_past_two_fires_once_in_the_night_that_has_it_twice() -> None:
    rule = Rule.make(cron="30 2 * * *", tz="Europe/Berlin")

    fired = rule.upcoming(at("2025-10-25T00:00Z"), 3)

    assert iso(fired) == ["10-25T00:30", "10-26T00:30", "10-27T01:30"]
    assert iso([rule.first(at("2025-10-26T01:10Z"))]) == ["10-27T01:30"]


def test_an_interval_ends_with_the_year_9999() -> None:
    rule = Rule.make(every="1h")

    assert rule.next(MS_PER_YEAR_9999, 0) is None
    assert rule.upcoming(MS_PER_YEAR_9999 - HOUR, 9) == [MS_PER_YEAR_9999]


@pytest.mark.parametrize(
    ("tz", "last"),
    [
        ("UTC", "9999-12-31T23:00Z"),
        ("America/New_York", "9999-12-31T23:00Z"),
        ("Asia/Tokyo", "9999-12-31T14:00Z"),
    ],
)
def test_a_cron_ends_with_the_year_9999_in_utc_and_in_its_zone(tz: str, last: str) -> None:
    rule = Rule.make(cron="0 * * * *", tz=tz)

    assert rule.next(at(last) - 1, MS_PER_YEAR_9999) == at(last)
    assert rule.next(at(last), MS_PER_YEAR_9999) is None
    assert rule.next(MS_PER_YEAR_9999, MS_PER_YEAR_9999) is None


def test_a_rule_that_is_over_has_no_first_occurrence() -> None:
    with pytest.raises(HandlerError, match="no occurrence"):
        Rule.make(every="9999999w").first(NOW)


def test_no_occurrences_are_asked_for_and_none_are_given() -> None:
    assert Rule.make(every="1h").upcoming(NOW, 0) == []
    assert Rule.make(every="1h").upcoming(NOW, -1) == []


def test_the_text_leaves_out_what_is_the_default() -> None:
    assert Rule.make(every="1h").text() == '{"every_ms":3600000}'
    assert Rule.make(cron=" 0  3 * * * ", tz="UTC").text() == '{"cron":"0 3 * * *"}'


@pytest.mark.parametrize(
    "rule",
    [
        Rule.make(every="1h", catch_up="all"),
        Rule.make(cron="0 3 * * *", tz="Europe/Berlin", catch_up="none"),
    ],
)
def test_a_rule_reads_back_from_its_text(rule: Rule) -> None:
    assert Rule.parse(rule.text()) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"every_ms":0}',
        '{"every_ms":"1h"}',
        '{"every_ms":1,"cron":"0 3 * * *"}',
        '{"every_ms":1,"tz":"Europe/Berlin"}',
        '{"every_ms":1,"catch_up":"some"}',
        '{"cron":"nonsense"}',
        '{"cron":"0 3 * * *","tz":"Mars/Olympus"}',
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(HandlerError):
        Rule.parse(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either cron= or every="),
        ({"cron": "0 3 * * *", "every": "1h"}, "either cron= or every="),
        ({"cron": ""}, "cron: ''"),
        ({"cron": 5}, "cron: 5"),
        ({"cron": "* * *"}, "Wrong number of fields"),
        ({"cron": "@daily"}, "Wrong number of fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "9" * 5000 + " * * * *"}, "cron: "),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 */30 2 MON#5"}, "never fires"),
        ({"cron": "0 3 * * *", "tz": "Mars/Olympus"}, "tz: unknown time zone"),
        ({"cron": "0 3 * * *", "tz": ""}, "tz: unknown time zone"),
        ({"every": "1h", "tz": "UTC"}, "tz: only a cron"),
        ({"every": 0}, "every: the interval"),
        ({"every": "often"}, "every: 'often'"),
        ({"every": "1h", "catch_up": "some"}, "catch_up: 'some'"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(HandlerError, match=message):
        Rule.make(**arguments)


@given(
    st.lists(st.text("0123456789*/-,#LWMONJANSU", min_size=1, max_size=4), min_size=5, max_size=6)
)
@settings(max_examples=300, deadline=None)
def test_any_cron_is_read_or_refused(fields: list[str]) -> None:
    try:
        rule = Rule.make(cron=" ".join(fields))
    except HandlerError:
        return
    assert rule.first(NOW) > NOW
