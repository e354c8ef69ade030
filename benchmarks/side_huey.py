"""Huey's side of the comparison: SqliteHuey in WAL mode with fsync.

Tuned in its favour: scheduler every second (its least), no results, no periodic tasks, idle
workers look again within 50 ms. A cancel only notes that the task is not wanted.
"""

from datetime import UTC, datetime
from pathlib import Path

import side
from huey import SqliteHuey  # type: ignore[import-not-found]


class HueySide:
    """A queue on a file; the consumer is another process."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        self._huey = SqliteHuey(filename=str(folder / "huey.db"), fsync=True, results=False)
        self._task = self._huey.task(name="bench")(mark)

    def schedule(self, n: int, due: int) -> None:
        eta = datetime.fromtimestamp(due / 1_000, UTC)
        self._task.schedule((n,), eta=eta, id=str(n))

    def cancel(self, n: int) -> None:
        self._huey.revoke_by_id(str(n), revoke_once=True)

    def work(self) -> None:
        consumer = self._huey.create_consumer(
            workers=4,
            periodic=False,
            initial_delay=0.01,
            max_delay=0.05,
            scheduler_interval=1,
            check_worker_health=False,
        )
        consumer.run()


if __name__ == "__main__":
    side.main(HueySide)
