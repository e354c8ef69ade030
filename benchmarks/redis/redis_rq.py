"""RQ's side of the comparison: SimpleWorker, which forks no process per job, scheduler each second.

Tuned in its favour: no results are kept.
"""

from datetime import UTC, datetime
from pathlib import Path

import above  # noqa: F401 - for the next imports
import side
from redis import Redis
from rq import Queue, SimpleWorker  # type: ignore[import-not-found]

MARKS: list[side.Mark] = []


def bench(n: int) -> None:
    """Mark task *n*; a job is stored by the name of its function."""
    MARKS[0](n)


class RqSide:
    """A queue on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        # The worker imports this module once more, by its name.
        import redis_rq  # noqa: PLC0415

        redis_rq.MARKS.append(mark)
        self._redis = Redis(port=int((folder / "port").read_text()))
        self._queue = Queue("bench", connection=self._redis)

    def schedule(self, n: int, due: int) -> None:
        when = datetime.fromtimestamp(due / 1_000, UTC)
        self._queue.enqueue_at(when, "redis_rq.bench", n, job_id=str(n), result_ttl=0)

    def work(self) -> None:
        worker = SimpleWorker([self._queue], connection=self._redis)
        worker.work(with_scheduler=True, logging_level="ERROR")


if __name__ == "__main__":
    side.main(RqSide)
