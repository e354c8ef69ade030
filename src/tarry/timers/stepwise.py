"""Stepwise: what structures in Python share: a lock, and the verbs made from a few steps."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, cast

from tarry.due import Duration
from tarry.timers.timers import LAST, OnError, Timer, Timers, V

FIRST = -LAST - 1


class StepwiseTimer(Timer[V]):
    """A timer of a structure in Python."""

    __slots__ = ("_due", "_home", "_order", "_timers", "_value")

    def __init__(self, timers: "StepwiseTimers[V]", due: int, value: V, order: int) -> None:
        self._timers = timers
        self._due = due
        self._order = order
        self._value: V | None = value
        self._home: Any = None
        """Whatever the structure notes about where the timer is; None: it is not armed."""

    def __repr__(self) -> str:
        state = "armed, due" if self.armed else "not armed, last due"
        return f"<timer {state} at {self._due} ns>"

    def disarm(self) -> bool:
        """Take the timer out."""
        timers = self._timers
        with timers._lock:
            if self._home is None:
                return False
            timers._take_out(self)
            # Let go after the lock: the end of a value may run code that arms and disarms.
            value = timers._release(self)
        del value
        return True

    def rearm(self, due: int, /) -> bool:
        """Give an armed timer another due."""
        check(due)
        timers = self._timers
        with timers._lock:
            if self._home is None:
                return False
            timers._take_out(self)
            self._due = due
            self._order = timers._orders = timers._orders + 1
            timers._put(self)
            return True

    @property
    def due(self) -> int:
        """When it fires, or was to fire last."""
        return self._due

    @property
    def armed(self) -> bool:
        """Whether it may still fire."""
        return self._home is not None

    @property
    def timers(self) -> "StepwiseTimers[V]":
        """What it was armed in."""
        return self._timers


class StepwiseCallback(StepwiseTimer[Any]):
    """One call to come: the timer itself, and nothing else is kept for it."""

    __slots__ = ()

    def cancel(self) -> bool:
        """Do not call: true exactly if it was still to come, and now will not."""
        return self.disarm()

    def again(self, delay: Duration, /) -> bool:
        """Call *delay* from now instead; false if it has been called or cancelled."""
        wheel: Any = self.timers
        return bool(wheel.move(self, delay))


class StepwiseTimers(Timers[V]):
    """The verbs, made from what a structure has to know: put, take out, pop, which is first."""

    __slots__ = ("_armed", "_clock", "_lock", "_orders", "_type")

    def __init__(
        self,
        *,
        clock: Callable[[], int] | None = None,
        timer: type[StepwiseTimer[V]] = StepwiseTimer,
    ) -> None:
        self._lock = Lock()
        self._clock = clock
        self._type = timer
        self._armed = 0
        self._orders = 0

    @abstractmethod
    def _put(self, timer: StepwiseTimer[V]) -> None:
        """Take a timer in, and set its home."""

    @abstractmethod
    def _take_out(self, timer: StepwiseTimer[V]) -> None:
        """Forget an armed timer."""

    @abstractmethod
    def _pop(self, now: int) -> StepwiseTimer[V] | None:
        """Forget and return the first timer that is due at *now*."""

    @abstractmethod
    def _first(self) -> StepwiseTimer[V]:
        """Return the timer that fires first; there is one."""

    def arm(self, due: int, value: V, /) -> StepwiseTimer[V]:
        """Let *value* fire at *due*."""
        check(due)
        with self._lock:
            self._orders += 1
            timer = self._type(self, due, value, self._orders)
            self._put(timer)
            self._armed += 1
        return timer

    def arm_in(self, delay: int, value: V, /) -> StepwiseTimer[V]:
        """Let *value* fire *delay* after what the clock says."""
        if self._clock is None:
            raise TypeError("these timers were made without a clock: arm(due, value) them")
        check(delay)
        return self.arm(self._clock() + delay, value)

    def arm_many(self, dues: Iterable[int], values: Iterable[V], /) -> list[Timer[V]]:
        """Arm each value at its due."""
        dues, values = tuple(dues), tuple(values)
        if len(dues) != len(values):
            raise ValueError(f"{len(dues)} dues, but {len(values)} values")
        for due in dues:
            check(due)
        return [self.arm(due, value) for due, value in zip(dues, values, strict=True)]

    def disarm_many(self, timers: Iterable[Timer[V]], /) -> int:
        """Disarm timers."""
        count = 0
        for timer in timers:
            if not isinstance(timer, StepwiseTimer) or timer.timers is not self:
                kind = type(timer).__name__
                raise TypeError(
                    f"a timer of these timers is expected, not {kind}; those before it are disarmed"
                )
            count += timer.disarm()
        return count

    def advance(self, now: int, limit: int | None = None, /) -> list[V]:
        """Take out what is due."""
        check(now)
        most = _most(limit)
        values: list[V] = []
        with self._lock:
            while len(values) < most and self._armed and (timer := self._pop(now)) is not None:
                values.append(self._release(timer))
        return values

    def fire(self, now: int, on_error: OnError | None = None, limit: int | None = None, /) -> int:
        """Take out and call what is due."""
        check(now)
        fired, most = 0, min(_most(limit), self._armed)
        while fired < most:
            with self._lock:
                timer = self._pop(now) if self._armed else None
                if timer is None:
                    break
                value: Any = self._release(timer)
            fired += 1
            try:
                if type(value) is tuple and value:
                    value[0](*value[1:])
                else:
                    value()
            except Exception as error:
                if on_error is None:
                    raise
                on_error(value, error)
        return fired

    def clear(self) -> list[V]:
        """Disarm everything."""
        return self.advance(LAST)

    @property
    def next_due(self) -> int | None:
        """The earliest due."""
        with self._lock:
            return self._first()._due if self._armed else None

    def peek(self) -> V:
        """Return what fires next."""
        with self._lock:
            if not self._armed:
                raise LookupError("nothing is armed")
            return cast("V", self._first()._value)

    def __len__(self) -> int:
        return self._armed

    def _release(self, timer: StepwiseTimer[V]) -> V:
        value = cast("V", timer._value)
        timer._home = timer._value = None
        self._armed -= 1
        return value


def turn_of(timer: StepwiseTimer[Any]) -> tuple[int, int]:
    """Return what timers are ordered by: the due, then the order they were armed in."""
    return timer._due, timer._order


def check(ns: int) -> None:
    """Refuse what is no instant."""
    if not isinstance(ns, int):
        raise TypeError(f"an instant is an integer of nanoseconds, not {type(ns).__name__}")
    if not FIRST <= ns <= LAST:
        raise OverflowError("an instant is from -2**63 to 2**63 - 1")


def _most(limit: int | None) -> int:
    if limit is None:
        return LAST
    if not isinstance(limit, int):
        raise TypeError(f"a limit is an integer or None, not {type(limit).__name__}")
    if limit < 0:
        raise ValueError("a limit is not negative")
    return limit
