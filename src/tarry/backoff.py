"""Backoff: retry policies: fixed, growing (x, x², x³), ladder; jitter; limits."""

from collections.abc import Sequence
from math import isfinite, log
from typing import Self

import msgspec

from tarry.due import Duration, duration_ms, format_duration, shown
from tarry.errors import HandlerError, WhenError

LONGEST_DELAY_MS = 365 * 86_400_000
"""No policy waits longer than this between two attempts."""

_SHOWN = 8
_FAR_BEYOND = 60  # e**60 ms is far beyond the longest delay, and still cheap to compute


class Backoff(msgspec.Struct, frozen=True):
    """Says how long to wait after a failure, and when to give up.

    Made by `fixed`, `exponential`, `powers` or `ladder`. `times` is the number of retries (None:
    no limit), `max_age` the age of a task after which it is not retried, and `jitter` the share
    (0 to 1) by which a delay may be shorter or longer.

    The delays are *steps_ms*; after the last one each is *factor* times the one before it.
    """

    steps_ms: tuple[int, ...]
    factor: float = 1
    cap_ms: int = LONGEST_DELAY_MS
    times: int | None = None
    max_age_ms: int | None = None
    jitter: float = 0.0

    @classmethod
    def fixed(
        cls,
        delay: Duration,
        *,
        times: int | None = 5,
        max_age: Duration | None = None,
        jitter: float = 0.0,
    ) -> Self:
        """Wait the same *delay* after every failure."""
        return cls._made((_ms("delay", delay),), 1, None, times, max_age, jitter)

    @classmethod
    def exponential(
        cls,
        base: Duration,
        factor: float = 2,
        max: Duration | None = None,  # noqa: A002 - the word callers expect
        *,
        times: int | None = 5,
        max_age: Duration | None = None,
        jitter: float = 0.0,
    ) -> Self:
        """Wait *base*, then *factor* times as long after every further failure, at most *max*."""
        _number("factor", factor, least=1)
        return cls._made((_ms("base", base),), factor, max, times, max_age, jitter)

    @classmethod
    def powers(
        cls,
        x: float,
        unit: Duration = "1m",
        *,
        times: int | None = 5,
        max_age: Duration | None = None,
        jitter: float = 0.0,
    ) -> Self:
        """Wait x, x², x³ … times *unit*."""
        _number("x", x, least=1)
        first = round(min(_ms("unit", unit) * x, LONGEST_DELAY_MS))
        return cls._made((first,), x, None, times, max_age, jitter)

    @classmethod
    def ladder(
        cls,
        steps: Sequence[Duration],
        *,
        times: int | None = None,
        max_age: Duration | None = None,
        jitter: float = 0.0,
    ) -> Self:
        """Wait as each of *steps* says; where *times* goes beyond them, the last one repeats."""
        if isinstance(steps, str) or not isinstance(steps, Sequence) or not steps:
            message = f'steps: {shown(steps)} is not a list of durations such as ["1m", "5m"]'
            raise HandlerError(message)
        steps_ms = tuple(_ms("steps", step) for step in steps)
        times = len(steps_ms) if times is None else times
        return cls._made(steps_ms, 1, None, times, max_age, jitter)

    @classmethod
    def _made(
        cls,
        steps_ms: tuple[int, ...],
        factor: float,
        longest: Duration | None,
        times: int | None,
        max_age: Duration | None,
        jitter: float,
    ) -> Self:
        if times is not None:
            _number("times", times, least=0, whole=True)
        _number("jitter", jitter, least=0, most=1)
        cap_ms = LONGEST_DELAY_MS if longest is None else _ms("max", longest)
        max_age_ms = None if max_age is None else _ms("max_age", max_age)
        cap_ms = min(cap_ms, LONGEST_DELAY_MS)
        return cls(steps_ms, factor, cap_ms, times, max_age_ms, jitter)

    def delay_ms(self, failures: int, age_ms: int, chance: float) -> int | None:
        """Return the wait after the *failures*-th failure (from 1), or None to give up.

        Gives up after `times` retries, and when the retry would come after `max_age`. *chance*,
        from 0 up to but not including 1, picks the delay within the range that `jitter` spans.
        """
        if self.times is not None and failures > self.times:
            return None
        delay = self._plain_ms(failures)
        if self.jitter:
            spread = 1 + self.jitter * (2 * chance - 1)
            delay = min(round(delay * spread), self.cap_ms)
        if self.max_age_ms is not None and age_ms + delay > self.max_age_ms:
            return None
        return delay

    def _plain_ms(self, failures: int) -> int:
        if failures <= len(self.steps_ms):
            return min(self.steps_ms[max(failures, 1) - 1], self.cap_ms)
        last, more = self.steps_ms[-1], failures - len(self.steps_ms)
        if last == 0 or self.factor == 1:
            return min(last, self.cap_ms)
        if more * log(self.factor) > _FAR_BEYOND:
            return self.cap_ms
        return round(min(last * self.factor**more, self.cap_ms))

    def __str__(self) -> str:
        """Return the delays as text, such as "2m, 4m, 8m, 16m, 32m, then dead"."""
        count = _SHOWN if self.times is None else min(self.times, _SHOWN)
        parts = [format_duration(self._plain_ms(n)) for n in range(1, count + 1)]
        if self.times is None:
            parts.append("… without end")
        elif self.times > count:
            parts.append(f"… {self.times} times")
        text = ", ".join(parts) or "no retry"
        if self.jitter:
            text += f" (±{self.jitter:.0%})"
        if self.times is not None:
            text += ", then dead"
        if self.max_age_ms is not None:
            text += f"; dead when older than {format_duration(self.max_age_ms)}"
        return text


def _ms(name: str, value: Duration) -> int:
    try:
        return duration_ms(value)
    except WhenError as error:
        message = f"{name}: {error}"
        raise HandlerError(message) from error


def _number(
    name: str, value: float, *, least: int, most: int | None = None, whole: bool = False
) -> None:
    """Refuse what is not a finite number in the range; whole numbers may be of any size."""
    good = isinstance(value, int) or (not whole and isinstance(value, float) and isfinite(value))
    if isinstance(value, bool) or not good or value < least or (most is not None and value > most):
        kind = "a whole number" if whole else "a number"
        span = f"from {least} to {most}" if most is not None else f"of at least {least}"
        message = f"{name}: {shown(value)} is not {kind} {span}"
        raise HandlerError(message)


DEFAULT = Backoff.exponential("10s", 2, max="1h", times=5)
"""The policy of a kind that names none."""
