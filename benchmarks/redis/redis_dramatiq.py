"""Dramatiq's side of the comparison: RedisBroker, 8 threads, no results, no retries."""

import signal
import time
from pathlib import Path

import above  # noqa: F401 - for the next imports
import dramatiq  # type: ignore[import-not-found]
import side
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]


class DramatiqSide:
    """A broker on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        port = int((folder / "port").read_text())
        self._broker = RedisBroker(host="127.0.0.1", port=port)
        dramatiq.set_broker(self._broker)
        self._actor = dramatiq.actor(mark, actor_name="bench", max_retries=0)

    def schedule(self, n: int, due: int) -> None:
        delay = max(0, due - time.time_ns() // 1_000_000)
        self._actor.send_with_options(args=(n,), delay=delay)

    def work(self) -> None:
        dramatiq.Worker(self._broker, worker_threads=8).start()
        signal.pause()


if __name__ == "__main__":
    side.main(DramatiqSide)
