"""The core in C: it leaks nothing, is unknown to the garbage collector, and survives misuse."""

import copy
import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from tests.timers.kit import native

from tarry.timers import CORE


@pytest.fixture
def wheel() -> Any:
    return native().HierarchicalWheel()


def churn(kind: Any) -> None:
    """Do everything that a wheel can do."""
    wheel, value = kind(), object()
    handles = [wheel.arm(n * 7_919_000_003 % 10**13, value) for n in range(2_000)]
    many = wheel.arm_many(range(0, 10**12, 10**9), [value] * 1_000)
    for handle in handles[::3]:
        handle.disarm()
    for handle in handles[1::3]:
        handle.rearm(handle.due // 2)
    wheel.disarm_many(many[::2])
    wheel.peek()
    wheel.advance(10**12, 500)
    wheel.advance(10**12)
    wheel.arm(10**12 + 1, (int, "5"))
    wheel.arm(10**12 + 2, (int, "x"))
    wheel.fire(10**12 + 2, lambda *_: None)
    with pytest.raises(TypeError):
        wheel.arm_many([1, None], [value, value])
    with pytest.raises(TypeError):
        wheel.disarm_many([handles[0], None])


def test_nothing_is_leaked() -> None:
    kind = native().HierarchicalWheel
    value_type = type(kind().arm(1, None))
    churn(kind)
    gc.collect()
    before = (sys.getrefcount(value_type), sys.getrefcount(kind), sys.getallocatedblocks())

    for _ in range(20):
        churn(kind)
    gc.collect()
    after = (sys.getrefcount(value_type), sys.getrefcount(kind), sys.getallocatedblocks())

    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 50


def test_a_value_is_held_once(wheel: Any) -> None:
    value = object()
    before = sys.getrefcount(value)
    handles = [wheel.arm(n, value) for n in range(10)]
    handles += wheel.arm_many(range(10), [value] * 10)

    assert sys.getrefcount(value) == before + 20
    handles[0].disarm()
    wheel.disarm_many(handles[:5])
    assert sys.getrefcount(value) == before + 15
    wheel.advance(100)
    assert sys.getrefcount(value) == before


def test_a_handle_is_held_once_while_it_is_armed(wheel: Any) -> None:
    handle = wheel.arm(10**12, "a")

    assert sys.getrefcount(handle) == 3
    handle.rearm(5)
    assert sys.getrefcount(handle) == 3
    handle.disarm()
    assert sys.getrefcount(handle) == 2


def test_the_garbage_collector_knows_no_timer(wheel: Any) -> None:
    own = native().HierarchicalWheel(timer=native().Callback)

    assert not gc.is_tracked(wheel.arm(1, "a"))
    assert type(own.arm(1, "a")) is native().Callback
    assert not gc.is_tracked(own.arm(1, "a"))


def test_a_subclass_with_attributes_works_too() -> None:
    class Noted(native().Timer):  # type: ignore[misc]
        pass

    wheel = native().HierarchicalWheel(timer=Noted)
    timer = wheel.arm(5, "a")
    timer.note = timer

    assert wheel.advance(5) == ["a"]
    del timer
    gc.collect()


def test_odd_arguments_are_refused(wheel: Any) -> None:
    kind = native().HierarchicalWheel
    for refused in (
        lambda: kind("now"),
        lambda: kind(timer=int),
        lambda: kind(timer=5),
        lambda: kind(clock=5, tick=1),
        lambda: kind(0, None),
        lambda: wheel.arm(1),
        lambda: wheel.arm(1, 2, 3),
        lambda: wheel.arm_in(1),
        lambda: wheel.arm_many([1]),
        lambda: wheel.arm_many(1, 2),
        wheel.advance,
        wheel.fire,
        lambda: wheel.fire(1, None, None, None),
        lambda: kind(clock=lambda: 1.5).arm_in(1, "a"),
        lambda: copy.copy(wheel.arm(1, "a")),
    ):
        with pytest.raises(TypeError):
            refused()
    with pytest.raises(ValueError, match="not negative"):
        kind(clock=-1)
    with pytest.raises(OverflowError):
        kind(clock=2**80)
    with pytest.raises(OSError, match="Invalid argument"):
        kind(clock=12_345).arm_in(1, "a")


def test_the_clock_of_the_system_is_read(wheel: Any) -> None:
    from tarry.clock import ELAPSED_ID, SYSTEM

    timers = native().HierarchicalWheel(SYSTEM.elapsed(), clock=ELAPSED_ID)
    before = SYSTEM.elapsed()

    due = timers.arm_in(0, "a").due

    assert before <= due <= SYSTEM.elapsed()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_ten_million_timers() -> None:
    """In a process of its own: a gigabyte that is given back."""
    native()
    script = """
        from tarry.timers._wheel import HierarchicalWheel
        wheel, count = HierarchicalWheel(), 10_000_000
        arm = wheel.arm
        for n in range(count):
            arm(n * 1_000_003 % 3_600_000_000_000, None)
        assert len(wheel) == count
        assert len(wheel.advance(1_800_000_000_000)) + len(wheel) == count
    """
    run(script, PYTHONDEVMODE="")


@pytest.mark.parametrize("core", ["native", "python"])
def test_a_program_ends_with_timers_armed(core: str) -> None:
    """Armed in wheels that nobody drops, in threads that run, with callbacks that arm again."""
    if core == "native":
        native()
    script = """
        import sys
        from tarry.timers import AsyncTimers, DelayQueue, HierarchicalWheel, TimerThread
        class Late:
            def __del__(self):
                timers.after(1, print)
        wheel = HierarchicalWheel()
        kept = [wheel.arm(n, (wheel.arm, n)) for n in range(1000)]
        timers = TimerThread()
        timers.after("1h", print, Late())
        def again():
            timers.after(0, again)
        again()
        timers.every(0.001, len, "")
        queue = DelayQueue()
        queue.put("item", "1h")
    """
    run(script, TARRY_TIMERS=core)


def test_a_meddling_release_finds_the_wheel_whole(wheel: Any) -> None:
    """Values whose end arms, disarms and advances, in the middle of every verb."""

    class Meddler:
        def __del__(self) -> None:
            wheel.arm(7, None)
            wheel.advance(3)
            if others:
                others.pop().disarm()

    others = [wheel.arm(n * 10**9, Meddler()) for n in range(50)]
    wheel.disarm_many(list(others[:10]))
    wheel.advance(20 * 10**9)
    while others:
        others.pop().disarm()
    wheel.clear()

    assert len(wheel) == wheel.advance(7).count(None)


def test_the_twin_is_taken_when_asked_for() -> None:
    run("from tarry.timers import CORE; assert CORE == 'python'", TARRY_TIMERS="python")
    run(f"from tarry.timers import CORE; assert CORE == {CORE!r}", TARRY_TIMERS=CORE)
    with pytest.raises(AssertionError, match="may be native or python"):
        run("import tarry.timers", TARRY_TIMERS="rust")


def run(script: str, **environ: str) -> None:
    """Run *script* in another interpreter: it ends well, and says nothing."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONDEVMODE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
