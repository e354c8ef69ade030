"""Slots: long-lived coroutines that attempt what is queued, one after the other."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tarry.clock import Clock
from tarry.worker.run import Attempt
from tarry.worker.turns import Turns

_TURN_NS = 5_000_000
"""A slot whose handlers never wait lets the loop breathe this often."""

Begin = Callable[[Attempt], Coroutine[Any, Any, None] | None]
"""Begins an attempt; the answer, if there is one, is what is left to wait for."""


class Slots:
    """As many coroutines as attempts may wait at a time, on one event loop."""

    def __init__(
        self,
        begin: Begin,
        queue: Turns[Attempt],
        *,
        held_up: Callable[[], bool],
        failed: Callable[[Attempt, Exception], None],
        clock: Clock,
    ) -> None:
        self.queue = queue
        self._begin = begin
        self._held_up = held_up
        self._failed = failed
        self._clock = clock
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, count: int) -> None:
        """Start *count* slots on the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="tarry-slot") for _ in range(count)]

    async def close(self) -> None:
        """End the slots, with whatever they are at."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        """Attempt what is queued, sleep when nothing is."""
        loop = asyncio.get_running_loop()
        turn_ends = 0
        while True:
            attempt = None if self._held_up() else self.queue.take()
            if attempt is None:
                waiting = loop.create_future()
                self._idle.append(waiting)
                await waiting
                self._waking = False
                turn_ends = self._clock.elapsed() + _TURN_NS
                continue
            if self.queue and not self._waking:
                self.wake()
            try:
                going_on = self._begin(attempt)
                if going_on is not None:
                    await going_on
            except Exception as error:  # noqa: BLE001 - a slot outlives what it cannot explain
                self._failed(attempt, error)
            if attempt.began > turn_ends:
                await asyncio.sleep(0)
                turn_ends = self._clock.elapsed() + _TURN_NS

    def wake(self) -> None:
        """Wake one slot; it wakes the next before it starts, so that none wakes for nothing."""
        if self._waking:
            return
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                self._waking = True
                waiting.set_result(None)
                return
