"""APScheduler's side of the comparison on Redis: version 3, RedisJobStore.

Its scheduler lives in the producer's process, since it does not learn of other processes' jobs.
Tuned in its favour: paused while jobs are added, no misfire limit.
"""

from datetime import UTC, datetime
from pathlib import Path

import above  # noqa: F401 - for the next imports
import side
from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-not-found]
from apscheduler.jobstores.redis import RedisJobStore  # type: ignore[import-not-found]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-not-found]

MARKS: list[side.Mark] = []


def bench(n: int) -> None:
    """Mark task *n*; a job is stored by the name of its function."""
    MARKS[0](n)


class ApschedulerSide:
    """A background scheduler on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        MARKS.append(mark)
        port = int((folder / "port").read_text())
        self._scheduler = BackgroundScheduler(
            jobstores={"default": RedisJobStore(host="127.0.0.1", port=port)},
            executors={"default": ThreadPoolExecutor(10)},
            job_defaults={"misfire_grace_time": None, "coalesce": False},
            timezone=UTC,
        )
        self._scheduler.start(paused=True)

    def schedule(self, n: int, due: int) -> None:
        run_date = datetime.fromtimestamp(due / 1_000, UTC)
        self._scheduler.add_job(bench, "date", run_date=run_date, args=[n], id=str(n))

    def work(self) -> None:
        self._scheduler.resume()


if __name__ == "__main__":
    side.main(ApschedulerSide)
