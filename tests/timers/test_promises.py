"""What every structure of timers promises, whatever it is asked."""

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from tests.timers.kit import LIMIT, Make

from tarry.timers import Timer, Timers


class Value:
    """Something whose end can be seen."""


class TestArming:
    def test_nothing_fires_before_its_due(self, timers: Timers[str]) -> None:
        timers.arm(100, "a")

        assert timers.advance(99) == []
        assert timers.advance(100) == ["a"]

    def test_a_due_in_the_past_fires_at_the_next_occasion(self, timers: Timers[str]) -> None:
        timers.advance(1_000_000_000)
        timers.arm(5, "late")

        assert timers.next_due == 5
        assert timers.advance(1_000_000_000) == ["late"]

    def test_delays_from_nothing_to_a_hundred_years(self, timers: Timers[int]) -> None:
        century = 100 * 366 * 86_400 * 10**9
        delays = [0, 1, 10**6, 10**9, 3_600 * 10**9, 86_400 * 10**9, century // 100, century]
        timers.arm_many(delays, delays)

        assert [timers.advance(delay) for delay in delays] == [[delay] for delay in delays]

    def test_all_of_a_batch_are_armed_or_none(self, timers: Timers[str]) -> None:
        with pytest.raises(TypeError, match="nanoseconds"):
            timers.arm_many([1, "2"], ["a", "b"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="2 dues, but 1 values"):
            timers.arm_many([1, 2], ["a"])

        assert len(timers) == 0
        assert timers.arm_many([], []) == []

    @pytest.mark.parametrize("due", [1.5, "5s", None])
    def test_an_instant_is_an_integer(self, timers: Timers[str], due: Any) -> None:
        timer = timers.arm(1, "a")

        for refused in (
            lambda: timers.arm(due, "b"),
            lambda: timer.rearm(due),
            lambda: timers.advance(due),
            lambda: timers.fire(due),
        ):
            with pytest.raises(TypeError, match="integer of nanoseconds"):
                refused()
        assert timers.advance(1) == ["a"]

    @pytest.mark.parametrize("due", [2**63, -(2**63) - 1, 2**200])
    def test_an_instant_too_far_is_refused(self, timers: Timers[str], due: int) -> None:
        with pytest.raises(OverflowError):
            timers.arm(due, "a")

        assert len(timers) == 0

    def test_the_ends_of_time_can_be_armed(self, timers: Timers[str]) -> None:
        timers.arm(2**63 - 1, "last")
        timers.arm(-(2**63), "first")

        assert timers.advance(0) == ["first"]
        assert timers.advance(2**63 - 1) == ["last"]

    def test_arm_in_counts_from_what_the_clock_says(self, make: Make) -> None:
        now = 10**15
        timers = make(now, clock=lambda: now)

        timer = timers.arm_in(5, "a")

        assert timer.due == now + 5
        with pytest.raises(OverflowError):
            timers.arm_in(2**63 - 1, "b")

    def test_arm_in_needs_a_clock_that_works(self, make: Make) -> None:
        def broken() -> int:
            raise OSError("no time")

        with pytest.raises(TypeError, match="without a clock"):
            make().arm_in(5, "a")
        with pytest.raises(OSError, match="no time"):
            make(clock=broken).arm_in(5, "a")

    def test_arm_in_after_a_long_rest(self, make: Make) -> None:
        hour, now = 3_600 * 10**9, 0
        timers = make(clock=lambda: now)
        timers.arm_in(50 * hour, "far")
        now = 10 * hour
        timers.arm_in(1, "near")
        now = 60 * hour
        timers.arm_in(0, "now")

        assert timers.next_due == 10 * hour + 1
        assert timers.advance(now) == ["near", "far", "now"]

    def test_a_timer_cannot_be_made_by_hand(self, timers: Timers[str]) -> None:
        kind: Any = type(timers.arm(1, "a"))
        if kind.__module__ == "tarry.timers._wheel":
            for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
                with pytest.raises(TypeError):
                    make()


class TestDisarming:
    def test_a_disarmed_timer_does_not_fire(self, timers: Timers[str]) -> None:
        timer = timers.arm(100, "a")

        assert timer.disarm()
        assert not timer.disarm()
        assert timers.advance(200) == []

    def test_a_fired_timer_cannot_be_disarmed_or_rearmed(self, timers: Timers[str]) -> None:
        timer = timers.arm(100, "a")
        timers.advance(100)

        assert not timer.disarm()
        assert not timer.rearm(200)
        assert (timer.armed, timer.due) == (False, 100)
        assert len(timers) == 0

    def test_rearming_moves_earlier_and_later(self, timers: Timers[str]) -> None:
        timer = timers.arm(10**9, "a")

        assert timer.rearm(10**6)
        assert timers.next_due == timer.due == 10**6
        assert timer.rearm(10**12)
        assert timers.advance(10**11) == []
        assert timers.advance(10**12) == ["a"]

    def test_many_are_disarmed_at_once(self, timers: Timers[int]) -> None:
        handles = timers.arm_many(range(1_000), range(1_000))
        handles[3].disarm()

        assert timers.disarm_many(handles[:500]) == 499
        assert timers.disarm_many(handle for handle in handles[:500]) == 0
        assert timers.advance(2_000) == list(range(500, 1_000))

    def test_strangers_are_not_disarmed(self, make: Make) -> None:
        timers, other = make(), make()
        mine, theirs = timers.arm(1, "mine"), other.arm(1, "theirs")

        for stranger in (theirs, object(), None):
            with pytest.raises(TypeError, match="those before it are disarmed"):
                timers.disarm_many([mine, stranger])  # type: ignore[list-item]
        assert (mine.armed, theirs.armed) == (False, True)
        with pytest.raises(TypeError):
            timers.disarm_many(5)  # type: ignore[arg-type]

    def test_a_value_is_let_go_at_once(self, timers: Timers[Value]) -> None:
        values = [Value() for _ in range(4)]
        ends = [weakref.ref(value) for value in values]
        kept = [timers.arm(10**9 * (n + 1), value) for n, value in enumerate(values)]
        del values

        kept[0].disarm()
        timers.disarm_many([kept[1]])
        timers.advance(3 * 10**9)
        assert [end() is None for end in ends] == [True, True, True, False]
        timers.clear()
        assert ends[3]() is None

    def test_holes_do_not_pile_up(self, timers: Timers[int]) -> None:
        keep = timers.arm(10**12, -1)
        for n in range(20_000):
            timers.arm(10**12 + n % 5, n).disarm()
            keep.rearm(10**12 + n % 3)

        assert len(timers) == 1
        assert timers.advance(10**13) == [-1]


class TestFiring:
    def test_calls_what_is_due_in_order(self, timers: Timers[Any]) -> None:
        said: list[object] = []
        timers.arm(2, (said.append, "b"))
        timers.arm(1, lambda: said.append("a"))
        timers.arm(3, (said.append, "c"))

        assert timers.fire(2) == 2
        assert said == ["a", "b"]

    def test_a_limit_is_kept(self, timers: Timers[Any]) -> None:
        said: list[int] = []
        for n in range(10):
            timers.arm(n, (said.append, n))

        assert timers.fire(100, None, 3) == 3
        assert timers.fire(100, None, 0) == 0
        assert said == [0, 1, 2]
        assert timers.advance(100, 0) == []
        for refused, error in ((-1, ValueError), ("1", TypeError)):
            with pytest.raises(error):
                timers.advance(100, refused)  # type: ignore[arg-type]
            with pytest.raises(error):
                timers.fire(100, None, refused)  # type: ignore[arg-type]

    def test_a_call_may_disarm_rearm_and_arm_others(self, timers: Timers[Any]) -> None:
        said: list[str] = []
        handles: dict[str, Timer[Any]] = {}

        def first() -> None:
            said.append("first")
            assert handles["cancelled"].disarm()
            assert handles["moved"].rearm(1_000)
            assert not handles["first"].disarm()
            assert not handles["first"].rearm(50)
            timers.arm(5, (said.append, "armed"))

        handles["first"] = timers.arm(10, first)
        for name in ("cancelled", "moved", "other"):
            handles[name] = timers.arm(10, (said.append, name))

        timers.fire(10)
        assert said == ["first", "armed", "other"]
        timers.fire(1_000)
        assert said[3:] == ["moved"]

    def test_what_arms_itself_for_now_does_not_fire_for_ever(self, timers: Timers[Any]) -> None:
        calls = 0

        def endless() -> None:
            nonlocal calls
            calls += 1
            timers.arm(0, endless)

        timers.arm(0, endless)

        assert timers.fire(100) == 1
        assert calls == len(timers) == 1

    def test_one_that_raises_does_not_stop_the_others(self, timers: Timers[Any]) -> None:
        said: list[object] = []
        timers.arm(1, (int, "no number"))
        timers.arm(2, (said.append, "b"))
        timers.arm(3, 5)
        timers.arm(4, ())

        assert timers.fire(10, lambda value, error: said.append((value, type(error)))) == 4
        assert said == [((int, "no number"), ValueError), "b", (5, TypeError), ((), TypeError)]

    def test_without_a_listener_an_error_ends_the_call(self, timers: Timers[Any]) -> None:
        timers.arm(1, (int, "no number"))
        timers.arm(2, list)

        with pytest.raises(ValueError, match="no number"):
            timers.fire(10)
        assert timers.fire(10) == 1

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_an_interrupt_is_nobodys_error(
        self, timers: Timers[Any], error: type[BaseException]
    ) -> None:
        def interrupted() -> None:
            raise error

        timers.arm(1, interrupted)
        timers.arm(2, list)
        told: list[object] = []

        with pytest.raises(error):
            timers.fire(10, lambda *what: told.append(what))
        assert (told, len(timers)) == ([], 1)

    def test_a_listener_that_raises_ends_the_call(self, timers: Timers[Any]) -> None:
        def listen(_value: object, _error: Exception) -> None:
            raise RuntimeError("the listener itself")

        timers.arm(1, (int, "no number"))
        timers.arm(2, list)

        with pytest.raises(RuntimeError, match="the listener itself"):
            timers.fire(10, listen)
        assert len(timers) == 1

    def test_a_call_may_advance_the_timers_itself(self, timers: Timers[Any]) -> None:
        said: list[object] = []
        timers.arm(1, lambda: said.extend(timers.advance(10)))
        timers.arm(2, "b")
        timers.arm(3, "c")

        assert timers.fire(10) == 1
        assert said == ["b", "c"]


class TestLooking:
    def test_empty_timers_are_timers(self, timers: Timers[str]) -> None:
        assert timers
        assert timers.next_due is None
        assert timers.advance(10**18) == timers.clear() == []
        with pytest.raises(LookupError, match="nothing is armed"):
            timers.peek()

    def test_isinstance_knows_every_structure(self, timers: Timers[str]) -> None:
        assert isinstance(timers, Timers)
        assert isinstance(timers.arm(1, "a"), Timer)

    def test_a_timer_tells_what_it_is(self, timers: Timers[str]) -> None:
        timer = timers.arm(7, "a")

        assert timer.timers is timers
        assert repr(timer) == "<timer armed, due at 7 ns>"
        timer.disarm()
        assert repr(timer) == "<timer not armed, last due at 7 ns>"


class TestEnding:
    def test_timers_end_with_what_is_armed(self, make: Make) -> None:
        timers, value = make(), Value()
        end = weakref.ref(value)
        for n in range(100):
            timers.arm(10**9 * n, value)
        timers.arm(-5, value)
        timers.advance(-10)
        del value, timers
        gc.collect()

        assert end() is None

    def test_a_timer_may_outlive_what_it_was_armed_in(self, make: Make) -> None:
        timers = make()
        timer = timers.arm(10**9, "a")
        native = type(timers).__module__ == "tarry.timers._wheel"
        del timers
        gc.collect()

        if native:
            assert timer.timers is None
            assert not timer.armed
            assert not timer.rearm(5)
            assert timer.due == 10**9

    def test_values_that_touch_the_timers_while_they_end(self, make: Make) -> None:
        timers, seen = make(), list[bool]()
        handles: list[Timer[Any]] = []

        class Meddler:
            def __del__(self) -> None:
                seen.extend([handle.disarm() for handle in handles])

        for n in range(5):
            handles.append(timers.arm(10**9 * n, Meddler()))  # noqa: PERF401 - they see each other
        del timers
        handles[0].disarm()
        handles.clear()
        gc.collect()

        assert seen.count(True) >= 1

    def test_a_cycle_through_a_callback_ends_when_it_fires(self, timers: Timers[Any]) -> None:
        class Connection:
            def __init__(self, due: int) -> None:
                self.timer = timers.arm(due, self.expire)

            def expire(self) -> None:
                pass

        gc.disable()
        try:
            ends = [weakref.ref(Connection(10)), weakref.ref(Connection(20))]
            timers.fire(10)
            [waiting] = [end() for end in ends if end() is not None]
            assert waiting is not None
            waiting.timer.disarm()
            del waiting
            assert [end() for end in ends] == [None, None]
        finally:
            gc.enable()


def test_threads_arm_disarm_and_fire_at_once(timers: Timers[int]) -> None:
    """What was armed has fired or was disarmed in the end, once."""
    each, count, fired, disarmed = 2_000, 3, list[int](), list[int]()
    going = threading.Event()

    def arm(part: int) -> None:
        going.wait(LIMIT)
        for n in range(part * each, (part + 1) * each):
            timer = timers.arm(n * 1_000_003 % 10**9, n)
            if n % 3 == 0:
                timer.rearm(n)
            if n % 2 == 0 and timer.disarm():
                disarmed.append(n)

    threads = [threading.Thread(target=arm, args=(part,)) for part in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        going.set()
        now = 0
        while any(thread.is_alive() for thread in threads):
            now += 10**5
            fired += timers.advance(now, 50)
    finally:
        sys.setswitchinterval(before)
    fired += timers.clear()

    assert sorted(fired + disarmed) == list(range(count * each))
