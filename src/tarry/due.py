"""Due: from what callers say ("30m", timedelta, datetime) to a due."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from math import isfinite
from zoneinfo import ZoneInfo

import msgspec

from tarry.clock import MS_PER_YEAR_9999
from tarry.errors import WhenError

Duration = str | int | float | timedelta
When = Duration | datetime

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PLAIN = re.compile("".join(f"(?:(?P<{unit}>[0-9]{{1,100}}){unit})?" for unit in _UNITS_MS))
_ISO = re.compile(
    r"P(?:(?P<w>[0-9]{1,100})W)?(?:(?P<d>[0-9]{1,100})D)?"
    r"(?:T(?=[0-9])(?:(?P<h>[0-9]{1,100})H)?(?:(?P<m>[0-9]{1,100})M)?"
    r"(?:(?P<s>[0-9]{1,100})(?:[.,](?P<fraction>[0-9]{1,100}))?S)?)?"
)
_LONGEST_DELAY = 1_000  # characters; six numbers of 100 digits with their units are shorter
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LOCAL = re.compile(
    rf"(?:(?P<day>today|tomorrow|{'|'.join(_WEEKDAYS)}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}) )?"
    r"(?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?) (?P<zone>[A-Za-z][A-Za-z0-9_+/-]*)",
    re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SOME_DAY = 1_000_000_000_000  # whether a `when` can be read does not depend on today's date
_DELAYS = '"500ms", "30m", "1h30m", "7d", "PT30M", a number of seconds, a timedelta'
_DURATION = f"a duration: {_DELAYS}; never negative"
_TIME = (
    f'a time from 1970 to 9999: "now", {_DELAYS}, an aware datetime, "2030-01-31T09:00:00Z", '
    '"[today|tomorrow|mon…sun|YYYY-MM-DD] HH:MM[:SS] Zone/City"; never negative'
)


class At(msgspec.Struct, frozen=True, gc=False):
    """A due at a fixed instant."""

    instant: int


class In(msgspec.Struct, frozen=True, gc=False):
    """A due that counts from the moment the store accepts it."""

    delay_ms: int


class By(msgspec.Struct, frozen=True, gc=False):
    """A move relative to the present due; negative is earlier."""

    shift_ms: int


Due = At | In


class Shift(msgspec.Struct, frozen=True):
    """The wish to move a task relative to its present due: ``Shift("+15m")``, ``Shift("-5m")``."""

    amount: Duration

    def __post_init__(self) -> None:
        self.by()

    def by(self) -> By:
        """Return the signed move."""
        amount = self.amount
        if isinstance(amount, str) and amount[:1] in {"+", "-"}:
            return By(duration_ms(amount[1:]) * (-1 if amount[0] == "-" else 1))
        if isinstance(amount, timedelta) and amount < timedelta():
            return By(-duration_ms(-amount))
        if isinstance(amount, int | float) and amount < 0:
            return By(-duration_ms(-amount))
        return By(duration_ms(amount))


class Earlier(msgspec.Struct, frozen=True):
    """The wish to move a task only if that makes it due earlier."""

    when: When

    def __post_init__(self) -> None:
        parse_when(self.when, _SOME_DAY)


class Later(msgspec.Struct, frozen=True):
    """The wish to move a task only if that makes it due later."""

    when: When

    def __post_init__(self) -> None:
        parse_when(self.when, _SOME_DAY)


def resolve(due: Due, now: int) -> int:
    """Return the instant of *due*: never before *now*, never after the year 9999."""
    instant = now + due.delay_ms if isinstance(due, In) else due.instant
    if instant < now:
        return now
    if instant > MS_PER_YEAR_9999:
        return MS_PER_YEAR_9999
    return instant


def duration_ms(value: Duration) -> int:
    """Return *value* in milliseconds, rounded up, and at most as far as the year 9999 is from 1970.

    Text is "1h30m" (w d h m s ms, each at most once, largest first) or ISO 8601 without years and
    months; a number counts seconds.
    """
    delay = _delay(value)
    if delay is None:
        raise _refused(value, _DURATION)
    return delay.delay_ms


def parse_when(value: When, now: int) -> Due:
    """Return the due that *value* names; *now* tells which day "today" is.

    A duration stays a delay. A local time without a day, or with a weekday, is the first such time
    after *now*. A local time that exists twice is the first of the two; one that the clocks skip is
    moved forward by as much as they skip (02:30 becomes 03:30).
    """
    delay = _delay(value)
    if delay is not None:
        return delay
    try:
        if isinstance(value, str):
            if value.lower() == "now":
                return In(0)
            return At(_instant(_read_text(value, now)))
        if isinstance(value, datetime):
            return At(_instant(value))
    except WhenError:
        raise
    except (ValueError, OverflowError) as error:
        raise _refused(value, _TIME) from error
    raise _refused(value, _TIME)


def zone_of(name: str) -> tzinfo:
    """Return the time zone called *name*, such as "Europe/Berlin" or "UTC"."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        message = f'unknown time zone {shown(name)}: a name such as "Europe/Berlin" or "UTC"'
        raise WhenError(message) from error


def format_duration(ms: int) -> str:
    """Return *ms* as text that `duration_ms` reads back exactly, such as "1h30m"."""
    text, rest = "", abs(ms)
    for unit, size in _UNITS_MS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return ("-" if ms < 0 else "") + (text or "0s")


def format_instant(ms: int) -> str:
    """Return the instant as ISO 8601 in UTC, such as "1970-01-01T00:00:00.000Z"."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def shown(value: object) -> str:
    """Return *value* as an error message shows it: short, whatever it is."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return f"this {type(value).__name__}"


def _delay(value: object) -> In | None:
    """Return the delay that *value* names, or None if it is not a duration or is negative."""
    if isinstance(value, str):
        # Longer text is no duration, and must not stay in the memory of those that were read.
        return _text_delay(value) if len(value) <= _LONGEST_DELAY else None
    if isinstance(value, timedelta):
        return _delay_of_us(value // _MICROSECOND)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _delay_of_us(value * 1_000_000)
    # Rounded to a microsecond first: 16.1 s is 16100 ms, though 16.1 * 1000 is a little more.
    if isinstance(value, float) and isfinite(value) and value >= 0:
        return _delay_of_us(round(min(value, MS_PER_YEAR_9999) * 1_000_000))
    return None


def _delay_of_us(us: int) -> In | None:
    return In(min(-(-us // 1_000), MS_PER_YEAR_9999)) if us >= 0 else None


@lru_cache(maxsize=1024)
def _text_delay(text: str) -> In | None:
    match = _PLAIN.fullmatch(text) or _ISO.fullmatch(text)
    parts = {unit: n for unit, n in match.groupdict().items() if n} if match else {}
    if not parts:
        return None
    fraction_us = int(parts.pop("fraction", "0")[:6].ljust(6, "0"))
    return _delay_of_us(fraction_us + sum(int(n) * _UNITS_MS[u] * 1_000 for u, n in parts.items()))


def _read_text(text: str, now: int) -> datetime:
    match = _LOCAL.fullmatch(text)
    if match is None:
        return datetime.fromisoformat(text)
    zone = zone_of(match["zone"])
    at = time.fromisoformat(match["time"]).replace(tzinfo=zone)
    instant = _EPOCH + timedelta(milliseconds=now)
    present = instant.astimezone(zone)
    day = (match["day"] or "").lower()
    if day in {"today", "tomorrow"}:
        return datetime.combine(present.date() + timedelta(days=day == "tomorrow"), at)
    if day and day not in _WEEKDAYS:
        return datetime.combine(date.fromisoformat(day), at)
    ahead = (_WEEKDAYS.index(day) - present.weekday()) % 7 if day else 0
    moment = datetime.combine(present.date() + timedelta(days=ahead), at)
    if moment > instant:
        return moment
    return moment + timedelta(days=7 if day else 1)


def _instant(moment: datetime) -> int:
    """Return the instant of an aware *moment*, rounded up: a task never runs early."""
    if moment.utcoffset() is None:
        message = f"{moment.isoformat()} is naive, it names no time zone; accepted is {_TIME}"
        raise WhenError(message)
    us = (moment - _EPOCH) // _MICROSECOND
    if not 0 <= us // 1_000 <= MS_PER_YEAR_9999:
        message = f"{moment.isoformat()} is not {_TIME}"
        raise WhenError(message)
    return min(-(-us // 1_000), MS_PER_YEAR_9999)


def _refused(value: object, accepted: str) -> WhenError:
    return WhenError(f"{shown(value)} is not {accepted}")
