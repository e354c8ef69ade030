"""Whatever text says about time, it is read or refused: nothing else, and in linear time."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.clock import MS_PER_YEAR_9999
from tarry.due import (
    At,
    By,
    Earlier,
    In,
    Later,
    Shift,
    _text_delay,
    duration_ms,
    parse_when,
    resolve,
    zone_of,
)
from tarry.errors import HandlerError, WhenError
from tarry.recurrence import Rule

INSTANTS = st.integers(0, MS_PER_YEAR_9999)
WORDS = [
    *("now", "NOW", "today ", "tomorrow ", "mon ", "SUN ", "monday "),
    *("12:00", "24:00", "23:59:60", "00:00:00", ":", " ", "\t", "\n", "\x00", "\x7f", "\ud800"),
    *("2025-02-29", "0000-00-00", "0001-01-01", "9999-12-31", "1970-01-01", "T", "Z", "+23:59"),
    *("UTC", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12", "..", "/", "posixrules"),
    *("P", "PT", "W", "D", "H", "M", "S", ".", ",", "w", "d", "h", "m", "s", "ms", "-", "+"),
    *("0", "1", "60", "9" * 100, "9" * 101, "٣", "Ⅷ", "²", "½", "\uff11", "inf", "nan", "1e9"),
]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.text(st.characters(categories=["Nd", "Cc", "Cs", "Zs"]), max_size=30),
)
CRONS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            [*"*/-,#LW ", "0", "1", "59", "60", "*/0", "*/61", "MON", "mon#5", "JAN", "9" * 99, "٣"]
        ),
        max_size=20,
    ).map("".join),
    st.lists(st.text("0123456789*/-,#LW", max_size=5), min_size=5, max_size=6).map(" ".join),
)
ZONES = st.one_of(st.sampled_from(["UTC", "Europe/Berlin"]), TEXTS)


@given(TEXTS, INSTANTS)
@settings(max_examples=500, deadline=None)  # reads zone files
def test_a_text_is_a_time_or_refused(text: str, now: int) -> None:
    try:
        due = parse_when(text, now)
    except WhenError as error:
        assert len(str(error)) < 1_000  # noqa: PT017 - short, whatever was said
        return
    assert isinstance(due, At | In)
    assert now <= resolve(due, now) <= MS_PER_YEAR_9999


@given(TEXTS)
@settings(max_examples=500, deadline=None)
def test_a_text_is_a_duration_or_refused(text: str) -> None:
    try:
        ms = duration_ms(text)
    except WhenError:
        return
    assert 0 <= ms <= MS_PER_YEAR_9999


@given(st.one_of(TEXTS, TEXTS.map("+{}".format), TEXTS.map("-{}".format)))
@settings(deadline=None)
def test_a_text_is_a_wish_or_refused(text: str) -> None:
    for wish in (Shift, Earlier, Later):
        try:
            made = wish(text)
        except WhenError:
            continue
        assert not isinstance(made, Shift) or isinstance(made.by(), By)


@given(st.one_of(st.integers(), st.floats(), st.timedeltas(), st.datetimes(), st.binary()))
@settings(deadline=None)
def test_any_other_value_is_a_time_or_refused(value: Any) -> None:
    try:
        due = parse_when(value, 0)
    except WhenError:
        return
    assert 0 <= resolve(due, 0) <= MS_PER_YEAR_9999


@given(TEXTS)
@settings(deadline=None)
def test_a_name_is_a_zone_or_refused(name: str) -> None:
    try:
        zone_of(name)
    except WhenError as error:
        assert "time zone" in str(error)  # noqa: PT017 - refused, and says what


@given(CRONS, ZONES, INSTANTS)
@settings(max_examples=300, deadline=None)
def test_a_cron_is_a_rule_or_refused(cron: str, tz: str, now: int) -> None:
    try:
        rule = Rule.make(cron=cron, tz=tz)
    except HandlerError:
        return
    assert Rule.parse(rule.text()) == rule
    following = rule.next(now, now)
    assert following is None or following > now


@given(
    st.one_of(
        TEXTS,
        st.fixed_dictionaries(
            {},
            optional={
                "cron": CRONS,
                "every_ms": st.one_of(st.integers(), st.floats(), st.text(max_size=5)),
                "tz": ZONES,
                "catch_up": st.one_of(st.sampled_from(["all", "none"]), st.text(max_size=5)),
            },
        ).map(lambda found: str(found).replace("'", '"')),
    ),
    INSTANTS,
)
@settings(max_examples=300, deadline=None)
def test_a_text_is_a_rule_or_refused(text: str, now: int) -> None:
    try:
        rule = Rule.parse(text)
    except HandlerError:
        return
    following = rule.next(now, now)
    assert following is None or now < following <= MS_PER_YEAR_9999


LONG = 1_000_000
LONG_TEXTS = {
    "digits": "9" * LONG + "m",
    "units": "1w" * (LONG // 2),
    "iso": "PT" + "1H" * (LONG // 2),
    "fraction": "PT0." + "9" * LONG + "S",
    "iso fraction": "2025-01-01T00:00:00." + "0" * LONG + "X",
    "days": "mon " * (LONG // 4),
    "zone": "12:00 " + "A" * LONG,
    "zone of folders": "12:00 " + "A/" * (LONG // 2),
    "blanks": " " * LONG,
    "nulls": "\x00" * LONG,
    "other digits": "٣" * LONG + "m",
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
@pytest.mark.timeout(20)
def test_a_million_characters_are_refused_as_fast_as_they_are_read(text: str) -> None:
    with pytest.raises(WhenError):
        duration_ms(text)
    with pytest.raises(WhenError):
        parse_when(text, 0)
    with pytest.raises(HandlerError):
        Rule.make(cron=text)


def test_what_is_too_long_to_be_a_duration_is_not_remembered() -> None:
    before = _text_delay.cache_info().currsize

    for n in range(10):
        with pytest.raises(WhenError):
            duration_ms("x" * 2_000 + str(n))

    assert _text_delay.cache_info().currsize == before


def test_the_longest_duration_is_not_too_long() -> None:
    number = "1" * 100

    plain = "".join(f"{number}{unit}" for unit in ("w", "d", "h", "m", "s", "ms"))
    iso = f"P{number}W{number}DT{number}H{number}M{number}.{number}S"

    assert duration_ms(plain) == duration_ms(iso) == MS_PER_YEAR_9999
