"""Celery's side of the comparison on Redis.

Tuned in its favour: a pool of 4 threads (no process to hand tasks to), a prefetch of 256, no
results, no gossip, and a visibility time-out no waiting task outlives.
"""

import warnings
from datetime import UTC, datetime
from pathlib import Path

import above  # noqa: F401 - for the next imports
import side
from celery import Celery  # type: ignore[import-not-found]


class CelerySide:
    """An app on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        port = (folder / "port").read_text()
        self._app = Celery("bench", broker=f"redis://127.0.0.1:{port}/0")
        self._app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=64,
            broker_transport_options={"visibility_timeout": 86_400},
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
        )

        @self._app.task(name="bench")  # type: ignore[untyped-decorator]
        def bench(n: int) -> None:
            mark(n)

        self._task = bench

    def schedule(self, n: int, due: int) -> None:
        eta = datetime.fromtimestamp(due / 1_000, UTC)
        self._task.apply_async((n,), eta=eta, task_id=str(n))

    def work(self) -> None:
        warnings.simplefilter("ignore")
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        self._app.worker_main(
            ["--quiet", "worker", "-P", "threads", "-c", "4", "-l", "ERROR", *quiet]
        )


if __name__ == "__main__":
    side.main(CelerySide)
