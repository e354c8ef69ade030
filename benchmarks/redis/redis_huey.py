"""Huey's side of the comparison on Redis.

Tuned in its favour: scheduler every second (its least), no results, no periodic tasks; its workers
wait in a blocking pop.
"""

from datetime import UTC, datetime
from pathlib import Path

import above  # noqa: F401 - for the next imports
import side
from huey import RedisHuey  # type: ignore[import-not-found]


class HueySide:
    """A queue on the server whose port stands in the folder; the consumer is another process."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        port = int((folder / "port").read_text())
        self._huey = RedisHuey("bench", host="127.0.0.1", port=port, results=False)
        self._task = self._huey.task(name="bench")(mark)

    def schedule(self, n: int, due: int) -> None:
        eta = datetime.fromtimestamp(due / 1_000, UTC)
        self._task.schedule((n,), eta=eta, id=str(n))

    def work(self) -> None:
        consumer = self._huey.create_consumer(
            workers=4, periodic=False, scheduler_interval=1, check_worker_health=False
        )
        consumer.run()


if __name__ == "__main__":
    side.main(HueySide)
