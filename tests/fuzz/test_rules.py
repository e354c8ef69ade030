"""The edges of rules: what is no rule says so, and a series ends where it must."""

import pytest

from tarry.clock import MS_PER_YEAR_9999
from tarry.errors import HandlerError
from tarry.recurrence import Rule

HOUR = 3_600_000


@pytest.mark.parametrize(
    "text", ['{"tz":"\ud800"}', "\ud800", '{"a":' * 100_000, "[" * 1_000_000, '{"every_ms":1e999}']
)
def test_what_the_decoder_itself_chokes_on_is_no_rule(text: str) -> None:
    with pytest.raises(HandlerError, match="is not a rule"):
        Rule.parse(text)


def test_a_rule_is_either_a_cron_or_an_interval() -> None:
    with pytest.raises(HandlerError, match="either a cron or an interval"):
        Rule.parse('{"cron":"0 3 * * *","every_ms":1}')


def test_an_interval_goes_on_by_itself() -> None:
    assert Rule.make(every="1h").upcoming(5, 3) == [5 + HOUR, 5 + 2 * HOUR, 5 + 3 * HOUR]


def test_an_interval_stops_at_the_last_millisecond() -> None:
    assert Rule.make(every="1ms").upcoming(MS_PER_YEAR_9999 - 2, 5) == [
        MS_PER_YEAR_9999 - 1,
        MS_PER_YEAR_9999,
    ]
