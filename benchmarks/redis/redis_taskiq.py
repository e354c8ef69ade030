"""taskiq's side of the comparison: taskiq-redis, with worker and scheduler on one loop.

Tuned in its favour: the schedule is read every second (its least; default 60), 100 tasks at once,
no results, uvloop; the source that keeps a key per task, although it is deprecated: with the one
that keeps lists, 4 of 1,000 due tasks had started after ten seconds.
"""

import asyncio
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import above  # noqa: F401 - for the next imports
import in_flight
import side
import uvloop  # type: ignore[import-not-found, unused-ignore]
from taskiq import TaskiqScheduler  # type: ignore[import-not-found]
from taskiq.api import (  # type: ignore[import-not-found]
    run_receiver_task,
    run_scheduler_task,
)
from taskiq_redis import (  # type: ignore[import-not-found]
    RedisScheduleSource,
    RedisStreamBroker,
)


class TaskiqSide:
    """A broker and a schedule on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        url = f"redis://127.0.0.1:{(folder / 'port').read_text()}"
        self._loop = uvloop.new_event_loop()
        self._broker = RedisStreamBroker(url)
        with warnings.catch_warnings(action="ignore"):
            self._source = RedisScheduleSource(url)

        async def bench(n: int) -> None:
            mark(n)

        self._task = self._broker.register_task(bench, task_name="bench")
        self._loop.run_until_complete(self._source.startup())

    async def aschedule(self, n: int, due: int) -> None:
        when = datetime.fromtimestamp(due / 1_000, UTC)
        await self._task.kicker().schedule_by_time(self._source, when, n)

    def schedule(self, n: int, due: int) -> None:
        self._loop.run_until_complete(self.aschedule(n, due))

    def place(self, dues: list[int]) -> None:
        self._loop.run_until_complete(in_flight.place_all(self, dues))

    def work(self) -> None:
        self._loop.run_until_complete(self._work())

    async def _work(self) -> None:
        scheduler = TaskiqScheduler(self._broker, [self._source])
        self._broker.is_worker_process = True
        await self._broker.startup()
        await asyncio.gather(
            run_receiver_task(self._broker, max_async_tasks=100),
            run_scheduler_task(scheduler, interval=timedelta(seconds=1)),
        )


if __name__ == "__main__":
    side.main(TaskiqSide)
