"""Callbacks: functions that are called later, cancelled and moved; what the drivers share."""

import logging
from collections.abc import Callable
from typing import Any, Literal, cast

from tarry.clock import SYSTEM, Clock
from tarry.due import Duration, When
from tarry.errors import TimersStoppedError
from tarry.timers.delays import delay_ns, until_ns
from tarry.timers.native import Callback, HierarchicalWheel, wheel_on
from tarry.timers.timers import LAST, OnError

Call = tuple[Callable[..., object], tuple[Any, ...]]
"""What was armed: a function and its arguments."""

BATCH = 1_000
"""After so many calls a driver looks at its clock, and lets others have a turn."""

_log = logging.getLogger("tarry.timers")


class DrivenWheel(HierarchicalWheel[Any]):
    """A wheel that knows who turns it."""

    __slots__ = ("driver",)

    driver: "CallbackTimers"

    def move(self, timer: Callback, delay: Duration) -> bool:
        """Let *timer* be called *delay* from now instead."""
        return self.driver._move(timer, delay_ns(delay))


class CallbackTimers:
    """Calls in the order of their dues; `run_due` makes those that are due.

    The drivers call `run_due` by themselves. Used as it is, with a clock that a test moves, time is
    virtual: nothing is called unless the test says so.
    """

    def __init__(self, *, clock: Clock = SYSTEM, on_error: OnError | None = None) -> None:
        self._clock = clock
        self._on_error = on_error or log_error
        self._wheel = wheel_on(clock, DrivenWheel, Callback)
        self._wheel.driver = self
        self._wakes_at = -LAST
        """Until when the driver sleeps; who arms something earlier wakes it. Awake: -LAST."""
        self._stopped = False
        self.left: list[Call] = []
        """What was still armed when it was stopped, earliest first."""

    def after(self, delay: Duration, fn: Callable[..., object], /, *args: Any) -> Callback:
        """Call ``fn(*args)`` *delay* from now: "5s", a number of seconds, a timedelta."""
        return self._arm_in(delay_ns(delay), fn, args)

    def at(self, when: When, fn: Callable[..., object], /, *args: Any) -> Callback:
        """Call ``fn(*args)`` at *when*: a datetime, or text such as "tomorrow 09:00 Asia/Tokyo".

        The wall clock is looked at now; if it is set afterwards, the call does not move with it.
        """
        return self._arm_in(until_ns(when, self._clock), fn, args)

    def every(
        self,
        period: Duration,
        fn: Callable[..., object],
        /,
        *args: Any,
        fixed: Literal["rate", "delay"] = "rate",
    ) -> "Repeat":
        """Call ``fn(*args)`` again and again, first one *period* from now, until it is cancelled.

        At a fixed rate, calls keep to the beat of the first one; beats that pass while a call takes
        too long are left out. With a fixed delay, a *period* passes between the end of a call and
        the next. A call that raises does not end the series.
        """
        if fixed not in {"rate", "delay"}:
            raise ValueError(f'fixed is "rate" or "delay", not {fixed!r:.80}')
        _check_callable(fn)
        period_ns = delay_ns(period)
        if period_ns <= 0:
            raise ValueError("a period is longer than nothing")
        return Repeat(self, period_ns, fn, args, fixed)

    def run_due(self, limit: int | None = None) -> int:
        """Make the calls that are due by the clock, at most *limit*; says how many."""
        return self._wheel.fire(self._clock.elapsed(), self._on_error, limit)

    @property
    def next_due(self) -> int | None:
        """When the next call is due, by the clock's elapsed nanoseconds."""
        return self._wheel.next_due

    def __len__(self) -> int:
        return len(self._wheel)

    def __bool__(self) -> bool:
        """Timers without an armed one are timers all the same."""
        return True

    def _arm_in(self, ns: int, fn: Callable[..., object], args: tuple[Any, ...]) -> Callback:
        _check_callable(fn)
        timer = cast("Callback", self._wheel.arm_in(ns, (fn, *args) if args else fn))
        self._look(timer)
        return timer

    def _arm_at(self, due: int, value: Callable[[], object]) -> Callback:
        timer = cast("Callback", self._wheel.arm(due, value))
        self._look(timer)
        return timer

    def _move(self, timer: Callback, ns: int) -> bool:
        moved = timer.rearm(self._clock.elapsed() + ns)
        if moved:
            self._look(timer)
        return moved

    def _look(self, timer: Callback) -> None:
        """See whether the driver has to know of what was just armed."""
        if self._stopped and timer.disarm():
            raise TimersStoppedError("the timers were stopped: nothing was armed")
        if timer.due < self._wakes_at:
            self._wake()

    def _wake(self) -> None:
        """End the driver's sleep, if it sleeps."""

    def _leave(self) -> list[Call]:
        """Disarm everything, note what it was and return it."""
        self._stopped = True
        self.left += [_call_of(value) for value in self._wheel.clear()]
        return self.left


class Repeat:
    """A series of calls; made by `every`."""

    __slots__ = ("_args", "_cancelled", "_fixed", "_fn", "_nominal", "_period", "_timer", "_timers")

    def __init__(
        self,
        timers: CallbackTimers,
        period_ns: int,
        fn: Callable[..., object],
        args: tuple[Any, ...],
        fixed: str,
    ) -> None:
        self._timers = timers
        self._period = period_ns
        self._fn = fn
        self._args = args
        self._fixed = fixed
        self._cancelled = False
        self._nominal = timers._clock.elapsed() + period_ns
        self._timer = timers._arm_at(self._nominal, self)

    def cancel(self) -> bool:
        """End the series; true if a call of it was still to come. One under way is not stopped."""
        ended = not self._cancelled
        self._cancelled = True
        self._timer.disarm()
        return ended

    @property
    def armed(self) -> bool:
        """Whether it goes on."""
        return not self._cancelled

    @property
    def due(self) -> int:
        """When the next call is due, by the clock's elapsed nanoseconds."""
        return self._timer.due

    def __call__(self) -> None:
        """Make one call and arm the next; drivers do this."""
        try:
            if not self._cancelled:
                self._fn(*self._args)
        finally:
            if not self._cancelled and not self._timers._stopped:
                self._next()

    def _next(self) -> None:
        now = self._timers._clock.elapsed()
        if self._fixed == "delay":
            self._nominal = now + self._period
        else:
            beats = max((now - self._nominal) // self._period + 1, 1)
            self._nominal += beats * self._period
        self._timer = self._timers._arm_at(self._nominal, self)
        if self._cancelled:
            self._timer.disarm()


def log_error(value: object, error: Exception) -> None:
    """Log that a call raised."""
    fn, _ = _call_of(value)
    name = getattr(fn, "__qualname__", repr(fn))
    _log.error("%s raised %s in a timer", name, type(error).__name__, exc_info=error)


def _call_of(value: Any) -> Call:
    if isinstance(value, Repeat):
        return value._fn, value._args
    if isinstance(value, tuple):
        return value[0], value[1:]
    return value, ()


def _check_callable(fn: object) -> None:
    if not callable(fn):
        raise TypeError(f"a function is expected, not {type(fn).__name__}")
