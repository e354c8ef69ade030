"""Settler: records outcomes in batches, fenced by their leases."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from tarry.answers import SettleResult
from tarry.errors import StoreError
from tarry.request import Settlement
from tarry.runtime import Runtime
from tarry.stores.store import CHUNK, Store

Settled = Callable[[Settlement, SettleResult], None]
_LONGEST_PAUSE = 2.0


class Settler:
    """Settles what ended while the last settlement was under way, all at once.

    A store that does not answer is asked again until it does: the outcome is kept, and a lease
    that ran out meanwhile fences the late settlement.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        settled: Settled,
        trouble: Callable[[StoreError, float], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._settled = settled
        self._trouble = trouble
        self._prefix = f"{runtime.unique(64):016x}" if store.capabilities.remembers_calls else ""
        self._numbers = itertools.count()
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
        call = f"{self._prefix}:{next(self._numbers)}" if self._prefix else ""
        while (answers := await self._ask(batch, call, pause)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        for settlement, answer in zip(batch, answers, strict=True):
            self._settled(settlement, answer)

    async def _ask(
        self, batch: list[Settlement], call: str, pause: float
    ) -> list[SettleResult] | None:
        """Return the store's answers, None if it gave none."""
        try:
            return await self._runtime.run_blocking(self._store.settle, batch, call=call)
        except StoreError as error:
            self._trouble(error, pause)
            return None
