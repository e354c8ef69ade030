"""Recurrence: the rule of a recurring task, and which occurrence comes next."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, Self, get_args

import msgspec
from cronsim import CronSim, CronSimError

from tarry.clock import MS_PER_YEAR_9999
from tarry.due import Duration, duration_ms, shown, zone_of
from tarry.errors import HandlerError, WhenError

CatchUp = Literal["latest", "all", "none"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SOME_DAY = 946_684_800_000  # 2000: cronsim looks 50 years ahead, and no pattern takes longer

_LAST_DAY = MS_PER_YEAR_9999 - 86_400_000


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recurring task's rule: either `cron` in the time zone `tz`, or every `every_ms`.

    Occurrences are *nominal*: they follow from the rule and the occurrence before, whatever became
    of the task in between. `every` keeps its phase exactly.

    Clock changes are handled as cronsim does it. A five-field cron with fixed hours and minutes
    ("30 2 * * *") fires once in both nights: a time that exists twice fires at the first of the
    two, a time that the clocks skip fires when they have been moved (03:00). Patterns that start
    with a star ("*/5 * * * *"), and six fields, the first of them seconds, follow elapsed time.
    """

    cron: str = ""
    every_ms: int = 0
    tz: str = "UTC"
    catch_up: CatchUp = "latest"

    @classmethod
    def make(
        cls,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
    ) -> Self:
        """Return the rule, or raise `HandlerError` if it cannot work."""
        if (cron is None) == (every is None):
            message = "a recurring task needs either cron= or every=, and not both"
            raise HandlerError(message)
        every_ms = 0
        if every is not None:
            try:
                every_ms = duration_ms(every)
            except WhenError as error:
                message = f"every: {error}"
                raise HandlerError(message) from error
        if cron is not None and not (isinstance(cron, str) and cron.strip()):
            message = f'cron: {shown(cron)} is not text such as "30 2 * * *"'
            raise HandlerError(message)
        rule = cls(" ".join((cron or "").split()), every_ms, "UTC" if tz is None else tz, catch_up)
        rule._check(has_tz=tz is not None)
        return rule

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rule that `text` was made from."""
        try:
            rule: Self = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            message = f"{shown(text)} is not a rule: {error}"
            raise HandlerError(message) from error
        rule._check(has_tz=rule.tz != "UTC")
        return rule

    def text(self) -> str:
        """Return the rule as compact JSON, for the record in the store."""
        return msgspec.json.encode(self).decode()

    def first(self, now: int) -> int:
        """Return the first nominal occurrence after *now*."""
        found = self._after(now)
        if found is None:
            message = f"{self.text()} has no occurrence before the year 10000"
            raise HandlerError(message)
        return found

    def next(self, nominal: int, now: int) -> int | None:
        """Return the nominal occurrence that follows *nominal*, or None when the rule ends.

        What lies between *nominal* and *now* has been missed. `catch_up` says what becomes of it:
        "all" takes the oldest one, "latest" only the newest, "none" goes on after *now*. However
        long the gap, the answer takes a bounded number of steps.
        """
        if self.catch_up == "none":
            nominal = self._last(nominal, max(nominal, now)) if self.every_ms else max(nominal, now)
        following = self._after(nominal)
        if self.catch_up != "latest" or following is None or following > now:
            return following
        return self._last(following, now)

    def upcoming(self, nominal: int, count: int) -> list[int]:
        """Return the next *count* nominal occurrences after *nominal*; fewer when the rule ends."""
        return list(islice(self._occurrences(nominal), max(count, 0)))

    def _check(self, *, has_tz: bool) -> None:
        if self.catch_up not in get_args(CatchUp):
            message = f"catch_up: {shown(self.catch_up)} is not one of latest, all, none"
            raise HandlerError(message)
        if not self.cron:
            self._check_every(has_tz=has_tz)
            return
        if self.every_ms:
            message = "a rule has either a cron or an interval, not both"
            raise HandlerError(message)
        try:
            zone_of(self.tz)
            found = self._after(_SOME_DAY)
        except WhenError as error:
            message = f"tz: {error}"
            raise HandlerError(message) from error
        except (CronSimError, ValueError) as error:
            message = (
                f"cron: {shown(self.cron)} cannot be read ({error}); "
                '"minute hour day month weekday", optionally with seconds in front'
            )
            raise HandlerError(message) from error
        if found is None:
            message = f"cron: {shown(self.cron)} never fires"
            raise HandlerError(message)

    def _check_every(self, *, has_tz: bool) -> None:
        if self.every_ms < 1:
            message = "every: the interval is shorter than 1 ms"
            raise HandlerError(message)
        if has_tz:
            message = "tz: only a cron has a time zone; an interval is the same in all of them"
            raise HandlerError(message)

    def _after(self, instant: int) -> int | None:
        return next(self._occurrences(instant), None)

    def _last(self, known: int, now: int) -> int:
        """Return the last occurrence that is not after *now*, *known* being an earlier one."""
        if self.every_ms:
            return known + (now - known) // self.every_ms * self.every_ms
        # One millisecond more: cronsim then counts the present second as past.
        backwards = CronSim(self.cron, self._local(now + 1), reverse=True)
        near = max(known, _instant(next(backwards, _EPOCH)) - 1)
        # Backwards, cronsim may leave out an hour around a clock change; forwards it does not.
        last = known
        for occurrence in self._occurrences(near):
            if occurrence > now:
                break
            last = occurrence
        return last

    def _occurrences(self, after: int) -> Iterator[int]:
        """Yield the occurrences after *after*, in order, up to the year 9999."""
        if self.every_ms:
            yield from range(after + self.every_ms, MS_PER_YEAR_9999 + 1, self.every_ms)
            return
        simulation = CronSim(self.cron, self._local(after))
        while True:
            try:
                occurrence = _instant(next(simulation))
            except (StopIteration, OverflowError, ValueError):
                return
            # In the hour that exists twice, cronsim may name the first one, which is over.
            if occurrence > after:
                after = occurrence
                yield occurrence

    def _local(self, instant: int) -> datetime:
        instant = min(instant, _LAST_DAY)  # local time must not leave the year 9999
        return (_EPOCH + timedelta(milliseconds=instant)).astimezone(zone_of(self.tz))


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
