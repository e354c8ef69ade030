"""Batcher: what many coroutines ask for in one moment is one call of the store."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from tarry.errors import StoreError
from tarry.runtime import Runtime
from tarry.stores.store import CHUNK

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Merges what queued while a call was under way into the next one; never waits for more.

    Belongs to one event loop. An error of the store is the answer to everybody in that batch whom
    it does not carry an answer for: a batch that is too large for one call may be written in part.
    """

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Answer]], runtime: Runtime
    ) -> None:
        self._write = write
        self._runtime = runtime
        self._queue: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._flushing: asyncio.Task[None] | None = None

    async def ask(self, item: Item) -> Answer:
        """Return the store's answer to *item*."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((item, answer))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush(), name="tarry-batch")
        return await answer

    async def _flush(self) -> None:
        try:
            while self._queue:
                size = min(len(self._queue), CHUNK)
                batch = [self._queue.popleft() for _ in range(size)]
                await self._call(batch)
        finally:
            self._flushing = None

    async def _call(self, batch: list[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers = await self._runtime.run_blocking(self._write, [item for item, _ in batch])
        except BaseException as error:
            written = error.answers if isinstance(error, StoreError) else []
            for (_, future), answer in zip(batch, written, strict=False):
                if not future.done():
                    future.set_result(cast("Answer", answer))
            for _, future in batch[len(written) :]:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
