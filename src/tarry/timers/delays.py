"""Delays: from what callers say ("5s", seconds, timedelta) to nanoseconds (pure)."""

from datetime import datetime, timedelta
from functools import lru_cache

from tarry.clock import Clock
from tarry.due import At, Duration, When, duration_ms, parse_when
from tarry.timers.timers import LAST

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_MOST_NS = LAST // 2
"""146 years: an instant plus a delay stays an instant."""


def delay_ns(delay: Duration) -> int:
    """Return *delay* in nanoseconds; a number of seconds is not rounded to milliseconds."""
    if type(delay) is str:
        return _text_ns(delay)
    if (type(delay) is int or type(delay) is float) and 0 <= delay < _MOST_NS // _NS_PER_S:
        return -int(-delay * _NS_PER_S // 1)
    if isinstance(delay, timedelta) and delay >= timedelta():
        return min((delay // timedelta(microseconds=1)) * 1_000, _MOST_NS)
    # Refuses what is no duration, with the words of all of tarry.
    return min(duration_ms(delay) * _NS_PER_MS, _MOST_NS)


def until_ns(when: When, clock: Clock) -> int:
    """Return how many nanoseconds it is until *when*; 0 if that has passed."""
    if not isinstance(when, str | datetime):
        return delay_ns(when)
    due = parse_when(when, clock.now())
    if isinstance(due, At):
        return min(max(due.instant * _NS_PER_MS - clock.now_us() * 1_000, 0), _MOST_NS)
    return min(due.delay_ms * _NS_PER_MS, _MOST_NS)


@lru_cache(maxsize=1024)
def _text_ns(text: str) -> int:
    return min(duration_ms(text) * _NS_PER_MS, _MOST_NS)
