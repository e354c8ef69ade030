"""PgQueuer's side of the comparison.

By its guide to performance: asyncpg on one connection, which its queue manager is told to have for
itself; its autovacuum settings; durability "balanced" (tasks are logged, only its log and its
statistics are not); uvloop, as in its own benchmark. Batches of 1,000, to enqueue and to dequeue:
in small samples those of 10 and 100 were slower, larger ones, a pool or several managers not
clearly faster. No dedupe key, no limit of concurrency.

Its delays count from the server's NOW(): a due is later than asked for by the way of the call.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import above_postgres  # noqa: F401 - for the next imports
import asyncpg  # type: ignore[import-not-found, unused-ignore]
import side
import uvloop  # type: ignore[import-not-found, unused-ignore]
from pgqueuer import PgQueuer  # type: ignore[import-not-found, unused-ignore]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found, unused-ignore]
from pgqueuer.models import Job  # type: ignore[import-not-found, unused-ignore]
from pgqueuer.queries import Queries  # type: ignore[import-not-found, unused-ignore]

_BATCH = 1_000


class PgQueuerSide:
    """A queue in the database whose URL stands in the folder; the first process installs it."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        os.environ["PGQUEUER_DURABILITY"] = "balanced"
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._mark = mark
        self._loop.run_until_complete(self._open((folder / "url").read_text()))

    async def _open(self, url: str) -> None:
        self._driver = AsyncpgDriver(await asyncpg.connect(url))
        self._queries = Queries(self._driver)
        if not await self._queries.schema_is_installed():
            await self._queries.install()
            await self._queries.optimize_autovacuum()

    def schedule(self, n: int, due: int) -> None:
        enqueue = self._queries.enqueue("bench", b"%d" % n, 0, _until(due))
        self._loop.run_until_complete(enqueue)

    def fill(self, numbers: range, due: int) -> None:
        self._loop.run_until_complete(self._enqueue(numbers, [due] * len(numbers)))

    def place(self, dues: list[int]) -> None:
        self._loop.run_until_complete(self._enqueue(range(len(dues)), dues))

    async def _enqueue(self, numbers: range, dues: Sequence[int]) -> None:
        for start in range(0, len(numbers), _BATCH):
            payloads = [b"%d" % n for n in numbers[start : start + _BATCH]]
            delays = [_until(due) for due in dues[start : start + _BATCH]]
            size = len(payloads)
            await self._queries.enqueue(["bench"] * size, payloads, [0] * size, delays)

    def work(self) -> None:
        queuer = PgQueuer(self._driver)

        @queuer.entrypoint("bench")  # type: ignore[untyped-decorator, unused-ignore]
        async def bench(job: Job) -> None:
            self._mark(int(job.payload))

        self._loop.run_until_complete(queuer.run(batch_size=_BATCH))


def _until(due: int) -> timedelta:
    return timedelta(seconds=due / 1_000 - time.time())


if __name__ == "__main__":
    side.main(PgQueuerSide)
