"""Settler: records outcomes in batches, fenced by their leases."""

import asyncio
from collections import deque
from collections.abc import Callable

from tarry.answers import SettleResult
from tarry.errors import StoreFullError, StoreUnavailableError
from tarry.request import Settlement
from tarry.runtime import Runtime
from tarry.stores.store import CHUNK, Store

Settled = Callable[[Settlement, SettleResult], None]
GaveUp = Callable[[Settlement], None]
_LONGEST_PAUSE = 2.0


class Settler:
    """Settles what ended while the last settlement was under way, all at once.

    A store that does not answer, or has no room, is asked again until it does: the outcome is kept,
    and a lease that ran out meanwhile fences the late settlement. What fails in any other way would
    fail again: it is tried once more by itself, so that it harms no other, and then given up. Its
    lease runs out, and the task is attempted again.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        settled: Settled,
        gave_up: GaveUp,
        trouble: Callable[[Exception, float], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._settled = settled
        self._gave_up = gave_up
        self._trouble = trouble
        self._queue: deque[Settlement] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, settlement: Settlement) -> None:
        """Have *settlement* recorded soon; to be called on the loop."""
        self._queue.append(settlement)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._flush(), name="tarry-settle")

    @property
    def waiting(self) -> int:
        """How many outcomes have not been recorded yet."""
        return len(self._queue)

    async def drain(self) -> None:
        """Return when everything was recorded."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _flush(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), CHUNK))]
                await self._settle(batch)
        finally:
            self._task = None

    async def _settle(self, batch: list[Settlement]) -> None:
        pause = 0.05
        call = self._call()
        while True:
            try:
                answers = await self._runtime.run_blocking(self._store.settle, batch, call=call)
            except (StoreUnavailableError, StoreFullError) as error:
                self._trouble(error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - whatever it is, the leases must not live on
                self._trouble(error, 0)
                await self._settle_apart(batch)
                return
            else:
                for settlement, answer in zip(batch, answers, strict=True):
                    self._settled(settlement, answer)
                return

    def _call(self) -> str:
        """Return an id under which a settlement can be repeated, where that is remembered."""
        remembered = self._store.capabilities.remembers_calls
        return f"{self._runtime.unique(96):024x}" if remembered else ""

    async def _settle_apart(self, batch: list[Settlement]) -> None:
        """Settle one by one what failed together; give up what fails alone."""
        if len(batch) == 1:
            self._gave_up(batch[0])
            return
        for settlement in batch:
            await self._settle([settlement])
