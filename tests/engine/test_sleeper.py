"""A sleeper wakes in time, or as soon as somebody wakes it."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable

import pytest

from tarry.engine.sleeper import Sleeper
from tarry.timers import kernel_timer

LONG = 3_600 * 1_000_000_000
LIMIT = 5


@pytest.fixture(params=["timerfd", "loop timer"])
def _timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "loop timer":
        monkeypatch.setattr(sys, "platform", "other")
    elif sys.platform != "linux":
        pytest.skip("no timerfd here")


def sleeping(act: Callable[[Sleeper], object], ns: int = LONG) -> None:
    """Sleep; *act* while that lasts."""

    async def main() -> None:
        sleeper = Sleeper(asyncio.get_running_loop())
        try:
            asyncio.get_running_loop().call_soon(act, sleeper)
            await asyncio.wait_for(sleeper.sleep(ns), LIMIT)
        finally:
            sleeper.close()

    asyncio.run(main())


@pytest.mark.usefixtures("_timer")
class TestSleeper:
    def test_sleeps_no_longer_than_it_was_told(self) -> None:
        sleeping(lambda _: None, ns=1_000_000)

    @pytest.mark.parametrize("ns", [0, -5])
    def test_no_time_is_no_sleep(self, ns: int) -> None:
        sleeping(lambda _: None, ns=ns)

    def test_is_woken_on_its_loop(self) -> None:
        sleeping(lambda sleeper: sleeper.wake())

    def test_is_woken_from_another_thread(self) -> None:
        sleeping(lambda sleeper: threading.Thread(target=sleeper.wake_threadsafe).start())

    def test_is_woken_twice_at_once(self) -> None:
        def twice(sleeper: Sleeper) -> None:
            sleeper.wake()
            sleeper.wake()

        sleeping(twice)

    def test_a_wake_up_before_the_sleep_is_kept(self) -> None:
        async def main() -> bool:
            sleeper = Sleeper(asyncio.get_running_loop())
            sleeper.wake()
            await asyncio.wait_for(sleeper.sleep(LONG), LIMIT)
            again = asyncio.ensure_future(sleeper.sleep(LONG))
            done, _ = await asyncio.wait([again], timeout=0.01)
            sleeper.wake()
            await asyncio.wait_for(again, LIMIT)
            sleeper.close()
            return bool(done)

        assert not asyncio.run(main()), "the wake-up was spent on the first sleep"

    def test_a_cancelled_sleep_can_be_followed_by_another(self) -> None:
        async def main() -> None:
            sleeper = Sleeper(asyncio.get_running_loop())
            first = asyncio.ensure_future(sleeper.sleep(LONG))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            await asyncio.wait_for(sleeper.sleep(1_000_000), LIMIT)
            sleeper.close()
            sleeper.close()

        asyncio.run(main())

    def test_waking_after_the_loop_ended_harms_nobody(self) -> None:
        kept: list[Sleeper] = []

        def keep(sleeper: Sleeper) -> None:
            kept.append(sleeper)
            sleeper.wake()

        sleeping(keep)

        kept[0].wake_threadsafe()


def test_without_a_timerfd_the_loop_keeps_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(kernel_timer, "Timerfd", none)

    sleeping(lambda _: None, ns=1_000_000)


@pytest.mark.skipif(sys.platform != "linux", reason="no timerfd here")
def test_a_loop_without_readers_costs_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(os, "close", closed.append)

    class Loop:
        def add_reader(self, *_: object) -> None:
            raise NotImplementedError

    with pytest.raises(NotImplementedError):
        kernel_timer.Timerfd(Loop(), print)  # type: ignore[arg-type]

    assert len(closed) == 1
    monkeypatch.undo()
    os.close(closed[0])
