"""Timers: the contract of every order by due in memory; read it first.

Instants are integers, nanoseconds of whatever clock the caller means. Nothing here reads a clock by
itself, sleeps or starts a thread: *now* comes in, and what is due comes out.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

V = TypeVar("V")

LAST = 2**63 - 1
"""The latest due: 292 years from the clock's beginning."""

OnError = Callable[[Any, Exception], object]
"""Is told what raised, and what it raised."""


class Timer(ABC, Generic[V]):
    """The handle of one armed value; made by `Timers.arm`."""

    __slots__ = ()

    @abstractmethod
    def disarm(self) -> bool:
        """Take the timer out: true exactly if it was armed, so that its value will not fire.

        The value is let go at once.
        """

    @abstractmethod
    def rearm(self, due: int, /) -> bool:
        """Give an armed timer another due: false, and nothing happens, if it is not armed."""

    @property
    @abstractmethod
    def due(self) -> int:
        """When it fires, or was to fire last."""

    @property
    @abstractmethod
    def armed(self) -> bool:
        """Whether it may still fire: it has neither fired nor been disarmed."""

    @property
    @abstractmethod
    def timers(self) -> "Timers[V] | None":
        """What it was armed in; None if that is gone."""


class Timers(ABC, Generic[V]):
    """Values in the order of their dues.

    Every method is one step, whatever thread calls it. Values fire in the order of their dues,
    equal dues in the order they were armed (or re-armed) in, never before their due; a timer fires
    once or is disarmed, never both.
    """

    __slots__ = ()

    @abstractmethod
    def arm(self, due: int, value: V, /) -> Timer[V]:
        """Let *value* fire at *due*; a due in the past fires at the next occasion."""

    @abstractmethod
    def arm_in(self, delay: int, value: V, /) -> Timer[V]:
        """Let *value* fire *delay* nanoseconds after what the clock says that was handed in."""

    @abstractmethod
    def arm_many(self, dues: Iterable[int], values: Iterable[V], /) -> list[Timer[V]]:
        """Arm each value at its due, in one call: all of them, or none if one cannot be."""

    @abstractmethod
    def disarm_many(self, timers: Iterable[Timer[V]], /) -> int:
        """Disarm timers, in one call; says how many of them were armed."""

    @abstractmethod
    def advance(self, now: int, limit: int | None = None, /) -> list[V]:
        """Take out and return what is due at *now*, earliest first, at most *limit* values.

        *now* may jump as far as it likes, and may step back.
        """

    @abstractmethod
    def fire(self, now: int, on_error: OnError | None = None, limit: int | None = None, /) -> int:
        """Take out and call what is due at *now*, one after the other; says how many.

        A value is called without arguments; a tuple is a callable and its arguments. Each is taken
        out just before its call: a call may disarm, re-arm or arm others, and they heed it. An
        `Exception` goes to *on_error* and the rest goes on; without it, and for other errors, it
        ends the call, and what has not been called stays armed. At most as many are called as were
        armed at the beginning.
        """

    @abstractmethod
    def clear(self) -> list[V]:
        """Disarm everything; returns the values, earliest first."""

    @abstractmethod
    def peek(self) -> V:
        """Return what fires next, and leave it armed; a `LookupError` if nothing is armed."""

    @property
    @abstractmethod
    def next_due(self) -> int | None:
        """The earliest due, exactly; None if nothing is armed."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many are armed."""

    def __bool__(self) -> bool:
        """Timers without an armed one are timers all the same."""
        return True
