"""arq's side of the comparison.

Tuned in its favour: looks every 0.1 s (default 0.5), 100 jobs at once, no results, uvloop.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import above  # noqa: F401 - for the next imports
import in_flight
import side
import uvloop  # type: ignore[import-not-found, unused-ignore]
from arq import create_pool  # type: ignore[import-not-found]
from arq.connections import RedisSettings  # type: ignore[import-not-found]
from arq.worker import Worker, func  # type: ignore[import-not-found]


class ArqSide:
    """A pool on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        self._settings = RedisSettings(port=int((folder / "port").read_text()))
        self._loop = uvloop.new_event_loop()
        self._pool: Any = self._loop.run_until_complete(create_pool(self._settings))
        self._mark = mark

    async def aschedule(self, n: int, due: int) -> None:
        when = datetime.fromtimestamp(due / 1_000, UTC)
        await self._pool.enqueue_job("bench", n, _defer_until=when, _job_id=str(n))

    def schedule(self, n: int, due: int) -> None:
        self._loop.run_until_complete(self.aschedule(n, due))

    def place(self, dues: list[int]) -> None:
        self._loop.run_until_complete(in_flight.place_all(self, dues))

    def work(self) -> None:
        uvloop.install()

        async def bench(context: dict[str, Any], n: int) -> None:
            del context
            self._mark(n)

        Worker(
            functions=[func(bench, name="bench", keep_result=0)],
            redis_settings=self._settings,
            poll_delay=0.1,
            max_jobs=100,
            log_results=False,
        ).run()


if __name__ == "__main__":
    side.main(ArqSide)
