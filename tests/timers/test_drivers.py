"""The drivers on the real clock: in time, early enough for whoever comes, and a clean stop."""

import asyncio
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.timers.kit import LIMIT

from tarry.clock import SYSTEM
from tarry.errors import TimersStoppedError
from tarry.testing.clock import ManualClock
from tarry.timers import CORE, AsyncTimers, DelayQueue, TimerThread


@pytest.fixture
def said() -> "queue.Queue[Any]":
    return queue.Queue()


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    with TimerThread() as timers:
        yield timers


class TestTimerThread:
    def test_calls_on_its_own_thread_and_never_early(
        self, timers: TimerThread, said: "queue.Queue[Any]"
    ) -> None:
        asked = SYSTEM.elapsed()
        timers.after(0.01, lambda: said.put((SYSTEM.elapsed(), threading.current_thread().name)))

        at, thread = said.get(timeout=LIMIT)
        assert at >= asked + 10_000_000
        assert thread == "tarry-timers"

    def test_wakes_for_something_earlier(
        self, timers: TimerThread, said: "queue.Queue[Any]"
    ) -> None:
        timers.after("1h", said.put, "late")
        moved = timers.after("2h", said.put, "moved")
        timers.after("5ms", said.put, "soon")

        assert said.get(timeout=LIMIT) == "soon"
        assert moved.again(0)
        assert said.get(timeout=LIMIT) == "moved"
        assert len(timers) == 1

    def test_many_threads_arm_at_once(self, timers: TimerThread, said: "queue.Queue[Any]") -> None:
        def arm(part: int) -> None:
            for n in range(200):
                timers.after(n % 20 / 1_000, said.put, (part, n))

        threads = [threading.Thread(target=arm, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()

        assert len({said.get(timeout=LIMIT) for _ in range(800)}) == 800
        for thread in threads:
            thread.join()

    def test_one_that_raises_does_not_stop_the_others(self, said: "queue.Queue[Any]") -> None:
        with TimerThread(on_error=lambda _, error: said.put(type(error))) as timers:
            timers.after(0, int, "x")
            assert said.get(timeout=LIMIT) is ValueError
            timers.after(0, said.put, "next")
            assert said.get(timeout=LIMIT) == "next"

    def test_a_slow_call_on_an_executor_holds_up_nobody(self, said: "queue.Queue[Any]") -> None:
        released = threading.Event()
        with ThreadPoolExecutor(2) as executor, TimerThread(executor=executor) as timers:
            timers.after(0, released.wait, LIMIT)
            timers.after("1ms", said.put, "beside")
            assert said.get(timeout=LIMIT) == "beside"
            released.set()

    def test_errors_on_an_executor_are_told(self, said: "queue.Queue[Any]") -> None:
        with (
            ThreadPoolExecutor(1) as executor,
            TimerThread(executor=executor, on_error=lambda _, e: said.put(type(e))) as timers,
        ):
            timers.after(0, int, "x")
            assert said.get(timeout=LIMIT) is ValueError

    def test_stop_says_what_was_still_armed(self, said: "queue.Queue[Any]") -> None:
        with TimerThread() as timers:
            timers.after("2h", said.put, "two")
            timers.after("1h", print)
            timers.every("3h", said.put, "three")

        assert timers.left == [(print, ()), (said.put, ("two",)), (said.put, ("three",))]
        assert timers.stop() == timers.left
        assert len(timers) == 0
        with pytest.raises(TimersStoppedError, match="nothing was armed"):
            timers.after("1s", print)
        assert len(timers) == 0

    def test_stop_in_a_callback(self, said: "queue.Queue[Any]") -> None:
        timers = TimerThread()
        timers.after("1h", print)
        timers.after(0, lambda: said.put(timers.stop()))

        assert said.get(timeout=LIMIT) == [(print, ())]

    def test_timers_that_were_never_armed_have_no_thread(self) -> None:
        before = threading.active_count()
        with TimerThread() as timers:
            assert threading.active_count() == before
            assert len(timers) == 0
        assert timers.left == []


class TestAsyncTimers:
    def test_calls_on_the_loop_in_order(self) -> None:
        async def main() -> list[str]:
            said, done = list[str](), asyncio.Event()
            async with AsyncTimers() as timers:
                timers.after("1h", print)
                timers.after(0.004, done.set)
                timers.after(0.002, said.append, "b")
                timers.after(0.001, said.append, "a")
                timers.after(0, said.append, "now")
                await asyncio.wait_for(done.wait(), LIMIT)
            assert timers.left == [(print, ())]
            return said

        assert asyncio.run(main()) == ["now", "a", "b"]

    def test_a_coroutine_function_becomes_a_task(self) -> None:
        async def main() -> str:
            done, told = asyncio.get_running_loop().create_future(), list[object]()

            async def work(word: str) -> None:
                await asyncio.sleep(0)
                done.set_result(word)

            async def fail() -> None:
                raise OSError

            async with AsyncTimers(on_error=lambda _, error: told.append(type(error))) as timers:
                timers.after(0, fail)
                timers.after(0.001, work, "done")
                word: str = await asyncio.wait_for(done, LIMIT)
            assert told == [OSError]
            return word

        assert asyncio.run(main()) == "done"

    def test_is_armed_from_another_thread(self) -> None:
        async def main() -> None:
            done = asyncio.Event()
            async with AsyncTimers() as timers:
                timers.after("1h", print)
                await asyncio.to_thread(timers.after, 0.001, done.set)
                await asyncio.wait_for(done.wait(), LIMIT)

        asyncio.run(main())

    def test_the_loop_has_its_turn_between_batches(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:
                stopped = False

                def endless() -> None:
                    if not stopped:
                        timers.after(0, endless)

                endless()
                for _ in range(10):
                    await asyncio.sleep(0)
                stopped = True

        asyncio.run(main())

    def test_sleep(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:
                before = SYSTEM.elapsed()
                await timers.sleep(0.003)
                assert SYSTEM.elapsed() - before >= 3_000_000
                sleeping = asyncio.ensure_future(timers.sleep("1h"))
                await asyncio.sleep(0)
                sleeping.cancel()
                await asyncio.wait([sleeping])
                assert len(timers) == 0

        asyncio.run(main())

    def test_closed_timers_refuse(self) -> None:
        async def main() -> None:
            timers = AsyncTimers()
            timers.after("1h", print)
            assert timers.close() == timers.close() == [(print, ())]
            with pytest.raises(TimersStoppedError):
                timers.after(0, print)

        asyncio.run(main())

    def test_works_without_a_timerfd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "other")
        self.test_calls_on_the_loop_in_order()


class TestTimeout:
    def test_ends_what_takes_too_long(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:
                with pytest.raises(TimeoutError):
                    async with timers.timeout(0.001) as limit:
                        await asyncio.sleep(LIMIT)
                assert limit.expired
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                assert not limit.again("1s")

        asyncio.run(main())

    def test_leaves_alone_what_is_done_in_time(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:
                async with timers.timeout("1h") as limit:
                    assert limit.again("2h")
                    await asyncio.sleep(0)
                assert not limit.expired
                assert len(timers) == 0
                with pytest.raises(ZeroDivisionError):
                    async with timers.timeout("1h"):
                        raise ZeroDivisionError
                with pytest.raises(RuntimeError, match="entered once"):
                    async with limit:
                        pass

        asyncio.run(main())

    def test_somebody_elses_cancel_stays_a_cancel(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:

                async def waits() -> None:
                    async with timers.timeout("1h"):
                        await asyncio.sleep(LIMIT)

                task = asyncio.ensure_future(waits())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()

        asyncio.run(main())

    def test_the_outer_of_two_ends_both(self) -> None:
        async def main() -> None:
            async with AsyncTimers() as timers:
                with pytest.raises(TimeoutError):
                    async with timers.timeout(0.001) as outer, timers.timeout("1h") as inner:
                        await asyncio.sleep(LIMIT)
                assert (outer.expired, inner.expired) == (True, False)

        asyncio.run(main())


class TestDelayQueue:
    def test_gives_what_is_due_on_virtual_time(self) -> None:
        clock = ManualClock()
        items = DelayQueue[str](clock=clock)
        items.put("b", "2s")
        items.put("a", "1s")
        items.put("now")

        assert items.poll() == "now"
        assert items.poll() is None
        assert items.take(timeout=0) is None
        assert items.peek() == "a"
        clock.advance(5_000)
        assert items.take() == "a"
        assert items.take(timeout="1s") == "b"
        assert (items.peek(), len(items), bool(items)) == (None, 0, False)

    def test_remove_takes_out_one_of_equal_items(self) -> None:
        clock = ManualClock()
        items = DelayQueue[Any](clock=clock)
        unhashable: list[int] = []
        for item in ("a", "a", unhashable):
            items.put(item, "1s")

        assert "a" in items
        assert items.remove("a")
        assert items.remove(unhashable)
        assert not items.remove(unhashable)
        assert not items.remove([])
        clock.advance(1_000)
        assert items.drain() == ["a"]
        assert not items.remove("a")
        assert "a" not in items

    def test_drain_takes_at_most_what_it_is_told(self) -> None:
        items = DelayQueue[int](clock=ManualClock())
        for n in range(5):
            items.put(n)

        assert items.drain(2) == [0, 1]
        assert items.drain() == [2, 3, 4]

    def test_none_cannot_be_put(self) -> None:
        with pytest.raises(TypeError, match="None means"):
            DelayQueue[Any]().put(None)

    def test_take_waits_for_what_is_put_later_but_due_earlier(self) -> None:
        items, got = DelayQueue[str](), queue.Queue[str]()
        items.put("late", "1h")
        taker = threading.Thread(target=lambda: got.put(items.take()))
        taker.start()
        items.put("soon", 0.002)

        assert got.get(timeout=LIMIT) == "soon"
        taker.join()

    def test_many_producers_and_consumers_lose_nothing(self) -> None:
        items, got, each = DelayQueue[int](), queue.Queue[int](), 150

        def produce(part: int) -> None:
            for n in range(each):
                items.put(part * each + n, n % 7 / 1_000)

        def consume() -> None:
            while (item := items.take()) >= 0:
                got.put(item)

        threads = [threading.Thread(target=consume) for _ in range(4)]
        threads += [threading.Thread(target=produce, args=(part,)) for part in range(3)]
        for thread in threads:
            thread.start()
        found = sorted(got.get(timeout=LIMIT) for _ in range(3 * each))
        for end in range(4):
            items.put(-1 - end)
        for thread in threads:
            thread.join()

        assert found == list(range(3 * each))


@pytest.mark.slow
@pytest.mark.skipif(CORE == "python", reason="it runs on the twin already")
def test_the_drivers_work_on_the_twin_too() -> None:
    here = Path(__file__).parent
    files = [here / "test_drivers.py", here / "test_callbacks.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files],
        env={**os.environ, "TARRY_TIMERS": "python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
