"""What callers may say about time, and what it means."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.clock import MS_PER_YEAR_9999
from tarry.due import (
    At,
    By,
    Due,
    Earlier,
    In,
    Later,
    Shift,
    duration_ms,
    format_duration,
    format_instant,
    parse_when,
    resolve,
    shown,
    zone_of,
)
from tarry.errors import WhenError

INSTANTS = st.integers(0, MS_PER_YEAR_9999)


def at(text: str) -> int:
    """Return the instant of an ISO text, by the datetime module alone."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = at("2025-06-11T10:00:00+00:00")  # a Wednesday; noon in Berlin


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("500ms", 500),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("5m5ms", 300_005),
        ("0s", 0),
        ("PT30M", 1_800_000),
        ("P7D", 604_800_000),
        ("P1W", 604_800_000),
        ("P1DT2H3M4S", 93_784_000),
        ("PT0.5S", 500),
        ("PT1,25S", 1_250),
        ("PT0.0001S", 1),
        ("PT0.000001S", 1),
        ("PT0.0010000S", 1),
        (0, 0),
        (90, 90_000),
        (0.25, 250),
        (16.1, 16_100),
        (2.01, 2_010),
        (0.0001, 1),
        (timedelta(minutes=1), 60_000),
        (timedelta(microseconds=1), 1),
        ("9" * 100 + "w", MS_PER_YEAR_9999),
        pytest.param(10**5000, MS_PER_YEAR_9999, id="huge"),
        (1e300, MS_PER_YEAR_9999),
        (timedelta.max, MS_PER_YEAR_9999),
    ],
)
def test_a_duration_is_read_and_rounded_up(value: Any, expected: int) -> None:
    assert duration_ms(value) == expected


NO_DURATIONS = [
    "",
    " ",
    "30",
    "30 m",
    " 30m",
    "30m\n",
    "30M",
    "30min",
    "1.5h",
    "m",
    "30m1h",
    "1m1m",
    "-5m",
    "+5m",
    "٣m",
    "9" * 5000 + "s",
    "P",
    "PT",
    "P1DT",
    "P1Y",
    "P1M",
    "PT1H1H",
    "-PT5M",
    -1,
    -0.001,
    -1e-9,
    pytest.param(-(10**5000), id="huge and negative"),
    True,
    False,
    float("nan"),
    float("inf"),
    timedelta(microseconds=-1),
    timedelta.min,
    None,
    b"30m",
    [],
]


@pytest.mark.parametrize("value", NO_DURATIONS)
def test_what_is_no_duration_is_refused_with_what_is_accepted(value: Any) -> None:
    with pytest.raises(WhenError, match="1h30m"):
        duration_ms(value)
    with pytest.raises(WhenError, match="1h30m"):
        parse_when(value, NOW)


def test_now_is_a_time_but_no_duration() -> None:
    assert parse_when("now", NOW) == In(0)

    with pytest.raises(WhenError, match="'now' is not a duration"):
        duration_ms("now")


@given(INSTANTS)
def test_a_formatted_duration_reads_back_exactly(ms: int) -> None:
    assert duration_ms(format_duration(ms)) == ms


@given(st.timedeltas(min_value=timedelta()), st.floats(0, 1e9))
def test_no_duration_is_shortened(delta: timedelta, seconds: float) -> None:
    assert timedelta(milliseconds=duration_ms(delta)) >= min(
        delta, timedelta(milliseconds=MS_PER_YEAR_9999)
    )
    assert duration_ms(seconds) >= seconds * 1000 - 0.001


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (500, "500ms"),
        (5_400_000, "1h30m"),
        (172_800_000, "2d"),
        (604_800_000, "1w"),
        (-300_000, "-5m"),
        (-1, "-1ms"),
    ],
)
def test_a_duration_is_formatted_in_its_largest_units(ms: int, text: str) -> None:
    assert format_duration(ms) == text


def test_an_instant_is_formatted_in_utc_with_milliseconds() -> None:
    assert format_instant(0) == "1970-01-01T00:00:00.000Z"
    assert format_instant(MS_PER_YEAR_9999) == "9999-12-31T23:59:59.999Z"


@given(INSTANTS)
def test_a_formatted_instant_reads_back_exactly(instant: int) -> None:
    assert parse_when(format_instant(instant), NOW) == At(instant)


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        (In(0), NOW),
        (In(5), NOW + 5),
        (In(-5), NOW),
        (In(MS_PER_YEAR_9999), MS_PER_YEAR_9999),
        (At(NOW + 7), NOW + 7),
        (At(0), NOW),
        (At(MS_PER_YEAR_9999 + 1), MS_PER_YEAR_9999),
    ],
)
def test_a_due_is_never_before_now_nor_after_9999(due: Due, expected: int) -> None:
    assert resolve(due, NOW) == expected


@pytest.mark.parametrize("value", ["1h", "PT1H", 3600, 3600.0, timedelta(hours=1)])
def test_a_duration_stays_a_delay(value: Any) -> None:
    assert parse_when(value, NOW) == In(3_600_000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "2025-01-02T03:04:05+00:00"),
        (datetime(2025, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2025-01-02T01:00+00:00"),
        ("2025-01-02T03:04:05Z", "2025-01-02T03:04:05+00:00"),
        ("2025-01-02T03:04:05.250+02:00", "2025-01-02T01:04:05.250+00:00"),
        ("2025-01-02 03:04+02:00", "2025-01-02T01:04+00:00"),
        ("2025-01-02 03:04 UTC", "2025-01-02T03:04+00:00"),
        ("2025-01-02 03:04:05 Europe/Berlin", "2025-01-02T02:04:05+00:00"),
        ("today 08:00 Europe/Berlin", "2025-06-11T06:00+00:00"),
        ("TODAY 13:00 Europe/Berlin", "2025-06-11T11:00+00:00"),
        ("today 13:00 Pacific/Kiritimati", "2025-06-11T23:00+00:00"),
        ("tomorrow 08:00 Europe/Berlin", "2025-06-12T06:00+00:00"),
        ("tomorrow 00:30 Asia/Tokyo", "2025-06-11T15:30+00:00"),
        ("12:00:01 Europe/Berlin", "2025-06-11T10:00:01+00:00"),
        ("12:00 Europe/Berlin", "2025-06-12T10:00+00:00"),
        ("11:59 Europe/Berlin", "2025-06-12T09:59+00:00"),
        ("wed 12:01 Europe/Berlin", "2025-06-11T10:01+00:00"),
        ("wed 12:00 Europe/Berlin", "2025-06-18T10:00+00:00"),
        ("Tue 09:00 Europe/Berlin", "2025-06-17T07:00+00:00"),
        ("thu 09:00 Europe/Berlin", "2025-06-12T07:00+00:00"),
        ("fri 09:00 UTC", "2025-06-13T09:00+00:00"),
        ("sat 09:00 UTC", "2025-06-14T09:00+00:00"),
        ("sun 09:00 UTC", "2025-06-15T09:00+00:00"),
    ],
)
def test_a_point_in_time_is_read(value: Any, expected: str) -> None:
    assert parse_when(value, NOW) == At(at(expected))


def test_less_than_a_millisecond_is_rounded_up_so_that_nothing_runs_early() -> None:
    moment = datetime(2025, 1, 1, microsecond=1, tzinfo=UTC)

    assert parse_when(moment, NOW) == At(at("2025-01-01T00:00:00.001+00:00"))
    assert parse_when(datetime.max.replace(tzinfo=UTC), NOW) == At(MS_PER_YEAR_9999)


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        # 2025-03-30: Berlin's clocks skip 02:00 to 03:00 at 01:00 UTC.
        ("2025-03-30 02:30 Europe/Berlin", "2025-01-01T00:00Z", "2025-03-30T01:30Z"),
        ("02:30 Europe/Berlin", "2025-03-29T23:30Z", "2025-03-30T01:30Z"),
        ("sun 02:30 Europe/Berlin", "2025-03-30T01:10Z", "2025-03-30T01:30Z"),
        # 2025-10-26: Berlin's 02:30 exists at 00:30 UTC and at 01:30 UTC.
        ("2025-10-26 02:30 Europe/Berlin", "2025-01-01T00:00Z", "2025-10-26T00:30Z"),
        ("02:30 Europe/Berlin", "2025-10-25T23:30Z", "2025-10-26T00:30Z"),
        ("02:30 Europe/Berlin", "2025-10-26T01:10Z", "2025-10-27T01:30Z"),
        # A day later is the same local time, 23 or 25 hours on.
        ("12:00 Europe/Berlin", "2025-03-29T11:00Z", "2025-03-30T10:00Z"),
        ("sun 12:00 Europe/Berlin", "2025-10-19T10:00Z", "2025-10-26T11:00Z"),
    ],
)
def test_clock_changes_take_the_first_of_two_and_skip_forward(
    text: str, now: str, expected: str
) -> None:
    assert parse_when(text, at(now)) == At(at(expected))


@pytest.mark.parametrize(
    "value",
    [datetime(2025, 1, 1), "2025-01-01T12:00:00", "2025-01-01"],
)
def test_a_naive_datetime_is_refused_and_called_so(value: Any) -> None:
    with pytest.raises(WhenError, match=r"naive.*aware datetime"):
        parse_when(value, NOW)


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "25:00 UTC",
        "12:60 UTC",
        "2025-02-30 12:00 UTC",
        "0000-01-01 12:00 UTC",
        "2025-13-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "1969-12-31T23:59:59.999Z",
        "0001-01-01 00:00 Asia/Tokyo",
        "9999-12-31 23:00 America/New_York",
        "today 12:00",
        "monday 12:00 UTC",
        "2025-01-01T12:00 Europe/Berlin",
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        object(),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_accepted(value: Any) -> None:
    with pytest.raises(WhenError, match="Zone/City"):
        parse_when(value, NOW)


def test_the_last_day_has_no_tomorrow() -> None:
    with pytest.raises(WhenError):
        parse_when("tomorrow 12:00 UTC", MS_PER_YEAR_9999)
    with pytest.raises(WhenError):
        parse_when("today 12:00 Asia/Tokyo", MS_PER_YEAR_9999)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "Europe/", "Europe//Berlin"])
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(WhenError, match=f"unknown time zone '{zone}'"):
        parse_when(f"12:00 {zone}", NOW)


def test_a_zone_cannot_leave_the_zone_database() -> None:
    with pytest.raises(WhenError, match="unknown time zone"):
        zone_of("../../etc/passwd")


@given(st.text(max_size=40), INSTANTS)
@settings(deadline=None)  # reads zone files
def test_any_text_is_read_or_refused(text: str, now: int) -> None:
    try:
        due = parse_when(text, now)
    except WhenError:
        return
    assert now <= resolve(due, now) <= MS_PER_YEAR_9999


@given(
    st.integers(0, MS_PER_YEAR_9999 - 10 * 86_400_000),
    st.sampled_from(["", "mon ", "thu ", "sun "]),
    st.times().map(lambda time: time.strftime("%H:%M:%S")),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
@settings(deadline=None)  # reads zone files
def test_a_time_without_a_date_is_ahead_within_a_day_or_a_week(
    now: int, day: str, time: str, zone: str
) -> None:
    due = parse_when(f"{day}{time} {zone}", now)

    assert isinstance(due, At)
    assert now < due.instant <= now + (7 if day else 1) * 86_400_000 + 2 * 3_600_000


@pytest.mark.parametrize(
    ("amount", "shift_ms"),
    [
        ("+15m", 900_000),
        ("-5m", -300_000),
        ("15m", 900_000),
        ("-PT5M", -300_000),
        (timedelta(minutes=5), 300_000),
        (timedelta(minutes=-5), -300_000),
        (90, 90_000),
        (-90, -90_000),
        (-0.5, -500),
        (0.5, 500),
        (0, 0),
    ],
)
def test_a_shift_is_signed(amount: Any, shift_ms: int) -> None:
    assert Shift(amount).by() == By(shift_ms)


@pytest.mark.parametrize(
    "amount", ["", "+", "--5m", "+-5m", "tomorrow", True, float("nan"), float("-inf"), None]
)
def test_a_shift_is_checked_when_it_is_made(amount: Any) -> None:
    with pytest.raises(WhenError, match="1h30m"):
        Shift(amount)


@pytest.mark.parametrize("wish", [Earlier, Later])
def test_a_wish_keeps_its_when_and_is_checked_when_it_is_made(wish: Any) -> None:
    assert wish("2h").when == "2h"
    assert wish("today 00:00 Pacific/Kiritimati").when == "today 00:00 Pacific/Kiritimati"

    with pytest.raises(WhenError):
        wish("someday")
    with pytest.raises(AttributeError):
        wish("2h").when = "3h"


def test_a_refusal_shows_all_that_is_accepted() -> None:
    with pytest.raises(WhenError) as refused:
        duration_ms("soon")

    assert str(refused.value) == (
        '\'soon\' is not a duration: "500ms", "30m", "1h30m", "7d", "PT30M", '
        "a number of seconds, a timedelta; never negative"
    )


def test_what_python_refuses_to_print_is_shown_by_its_type() -> None:
    assert shown(10**5000) == "this int"


def test_utc_needs_no_zone_database() -> None:
    assert zone_of("UTC") is UTC


def test_a_name_too_long_for_a_file_is_no_zone() -> None:
    with pytest.raises(WhenError, match="unknown time zone"):
        zone_of("A" * 300)
