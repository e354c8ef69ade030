"""Calls on virtual time: after, at, every, cancel, again."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.errors import WhenError
from tarry.testing.clock import ManualClock
from tarry.timers import Callback, CallbackTimers
from tarry.timers.delays import delay_ns

SECOND = 1_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timers(clock: ManualClock) -> CallbackTimers:
    return CallbackTimers(clock=clock)


class Passing:
    """Lets virtual time pass, and notes what is called when."""

    def __init__(self, clock: ManualClock, timers: CallbackTimers) -> None:
        self._clock, self._timers = clock, timers
        self.said: list[tuple[float, Any]] = []

    def say(self, what: object = None) -> None:
        self.said.append((self._clock.elapsed() / 1e9, what))

    def until(self, seconds: float, step_ms: int = 100) -> None:
        while self._clock.elapsed() / 1e9 < seconds:
            self._clock.advance(step_ms)
            self._timers.run_due()


@pytest.fixture
def passing(clock: ManualClock, timers: CallbackTimers) -> Passing:
    return Passing(clock, timers)


class TestAfter:
    def test_calls_when_the_delay_is_over(self, timers: CallbackTimers, passing: Passing) -> None:
        timers.after("1s", passing.say, "text")
        timers.after(2, passing.say, "number")
        timers.after(timedelta(seconds=3), passing.say, "timedelta")
        timers.after("PT4S", passing.say)

        passing.until(10)
        assert passing.said == [(1, "text"), (2, "number"), (3, "timedelta"), (4, None)]

    def test_cancel_says_whether_it_will_not_be_called(
        self, timers: CallbackTimers, passing: Passing
    ) -> None:
        kept, cancelled = timers.after("1s", passing.say), timers.after("1s", passing.say)

        assert cancelled.cancel()
        assert not cancelled.cancel()
        passing.until(2)
        assert not kept.cancel()
        assert len(passing.said) == 1
        assert not kept.armed

    def test_again_counts_from_now(self, timers: CallbackTimers, passing: Passing) -> None:
        timer = timers.after("5s", passing.say)
        passing.until(4)

        assert timer.again("5s")
        passing.until(20)
        assert passing.said == [(9, None)]
        assert not timer.again("1s")

    def test_after_inside_a_callback(self, timers: CallbackTimers, passing: Passing) -> None:
        def first() -> None:
            passing.say("first")
            timers.after("2s", passing.say, "second")

        timers.after("1s", first)
        passing.until(5)
        assert passing.said == [(1, "first"), (3, "second")]

    def test_a_callback_cancels_what_is_due_with_it(
        self, timers: CallbackTimers, passing: Passing
    ) -> None:
        later: list[Callback] = []
        timers.after("1s", lambda: passing.say(later[0].cancel()))
        later.append(timers.after("1s", passing.say, "late"))

        passing.until(2)
        assert passing.said == [(1, True)]

    @pytest.mark.parametrize("delay", [-1, "soon", None, True, float("nan"), timedelta(-1)])
    def test_what_is_no_delay_is_refused(self, timers: CallbackTimers, delay: Any) -> None:
        with pytest.raises(WhenError):
            timers.after(delay, print)
        with pytest.raises(TypeError, match="a function is expected"):
            timers.after("1s", "print")  # type: ignore[arg-type]
        assert len(timers) == 0

    def test_delays_are_not_rounded_to_milliseconds(self) -> None:
        assert [delay_ns(0.000_001), delay_ns(1e-10), delay_ns(0), delay_ns("1ms")] == [
            *(1_000, 1, 0, 1_000_000),
        ]
        assert delay_ns(timedelta(microseconds=7)) == 7_000
        assert delay_ns("9999w") == delay_ns(10**30) == (2**63 - 1) // 2


class TestAt:
    def test_calls_at_an_instant(
        self, timers: CallbackTimers, passing: Passing, clock: ManualClock
    ) -> None:
        soon = datetime.fromtimestamp(clock.now() / 1_000, UTC) + timedelta(seconds=3)
        timers.at(soon, passing.say, "datetime")
        timers.at(soon.isoformat(), passing.say, "text")
        timers.at("2s", passing.say, "delay")
        timers.at(1, passing.say, "number")
        timers.at("2001-01-01T00:00:00Z", passing.say, "past")

        passing.until(5)
        assert passing.said == [
            (0.1, "past"),
            (1, "number"),
            (2, "delay"),
            (3, "datetime"),
            (3, "text"),
        ]

    def test_a_clock_that_is_set_moves_nothing(
        self, timers: CallbackTimers, passing: Passing, clock: ManualClock
    ) -> None:
        timers.at(datetime.fromtimestamp(clock.now() / 1_000 + 3, UTC), passing.say)
        clock.step(3_600_000)

        passing.until(5)
        assert passing.said == [(3, None)]


class TestEvery:
    def test_a_fixed_rate_keeps_the_beat(
        self, timers: CallbackTimers, passing: Passing, clock: ManualClock
    ) -> None:
        def slow() -> None:
            passing.say()
            if len(passing.said) == 2:
                clock.advance(2_500)

        series = timers.every("1s", slow)

        passing.until(7)
        assert [at for at, _ in passing.said] == [1, 2, 5, 6, 7]
        assert series.due == 8_000_000_000
        assert series.armed

    def test_a_fixed_delay_counts_from_the_end(
        self, timers: CallbackTimers, passing: Passing, clock: ManualClock
    ) -> None:
        def slow() -> None:
            passing.say()
            clock.advance(500)

        timers.every("1s", slow, fixed="delay")

        passing.until(5)
        assert [at for at, _ in passing.said] == [1, 2.5, 4]

    def test_ends_when_it_is_cancelled(self, timers: CallbackTimers, passing: Passing) -> None:
        series = timers.every("1s", passing.say)
        passing.until(2)

        assert series.cancel()
        assert not series.cancel()
        assert not series.armed
        passing.until(5)
        assert len(passing.said) == 2
        assert len(timers) == 0

    def test_is_cancelled_in_its_own_call(self, timers: CallbackTimers, passing: Passing) -> None:
        series = timers.every("1s", lambda: passing.say(series.cancel()))

        passing.until(5)
        assert passing.said == [(1, True)]
        assert len(timers) == 0

    def test_goes_on_after_an_error(self, clock: ManualClock) -> None:
        told: list[object] = []
        timers = CallbackTimers(clock=clock, on_error=lambda _, error: told.append(str(error)))
        timers.every("1s", int, "x")

        Passing(clock, timers).until(3)
        assert len(told) == 3

    def test_odd_series_are_refused(self, timers: CallbackTimers) -> None:
        with pytest.raises(ValueError, match="longer than nothing"):
            timers.every(0, print)
        with pytest.raises(ValueError, match='"rate" or "delay"'):
            timers.every(1, print, fixed="beat")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            timers.every(1, None)  # type: ignore[arg-type]


def test_an_error_is_logged_by_default(
    timers: CallbackTimers, passing: Passing, caplog: pytest.LogCaptureFixture
) -> None:
    timers.after("1s", int, "x")
    timers.after("1s", passing.say)

    with caplog.at_level(logging.ERROR, logger="tarry.timers"):
        passing.until(2)

    [record] = caplog.records
    assert record.getMessage() == "int raised ValueError in a timer"
    assert len(passing.said) == 1
