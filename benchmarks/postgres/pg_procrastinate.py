"""Procrastinate's side of the comparison.

Async tasks, 30 at once as in its guide to concurrency, finished jobs deleted, uvloop, no logs; it
fetches and finishes jobs one at a time. Single calls and batches (of 500) by its blocking
connector. Tuned in its favour: it looks for due jobs every 10 ms (default 5 s), since nothing tells
a worker that a scheduled one is due.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import above_postgres  # noqa: F401 - for the next imports
import side
import uvloop  # type: ignore[import-not-found, unused-ignore]
from procrastinate import (  # type: ignore[import-not-found, unused-ignore]
    App,
    PsycopgConnector,
)

_BATCH = 500


class ProcrastinateSide:
    """An app on the database whose URL stands in the folder; the first process installs it."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        # Used by blocking calls before it is opened, it opens a blocking connector.
        self._app = App(connector=PsycopgConnector(conninfo=(folder / "url").read_text()))
        self._app.open()
        if not self._app.check_connection():
            self._app.schema_manager.apply_schema()

        async def bench(n: int) -> None:
            mark(n)

        self._task = self._app.task(name="bench")(bench)

    def schedule(self, n: int, due: int) -> None:
        self._task.configure(schedule_at=_instant(due)).defer(n=n)

    def fill(self, numbers: range, due: int) -> None:
        jobs = self._task.configure(schedule_at=_instant(due))
        for part in _parts(numbers):
            jobs.batch_defer(*({"n": n} for n in part))

    def place(self, dues: list[int]) -> None:
        # A batch_defer has one instant for all: this is what it calls, with one for each.
        for part in _parts(range(len(dues))):
            jobs = [
                self._task.configure(schedule_at=_instant(dues[n])).make_new_job(n=n) for n in part
            ]
            self._app.job_manager.batch_defer_jobs(jobs)

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        async with self._app.open_async():
            await self._app.run_worker_async(
                concurrency=30, delete_jobs="always", fetch_job_polling_interval=0.01
            )


def _instant(due: int) -> datetime:
    return datetime.fromtimestamp(due / 1_000, UTC)


def _parts(numbers: range) -> Iterator[range]:
    for start in range(0, len(numbers), _BATCH):
        yield numbers[start : start + _BATCH]


if __name__ == "__main__":
    side.main(ProcrastinateSide)
