"""tarry's side of the comparison on Redis, as it comes."""

from datetime import UTC, datetime
from pathlib import Path

import above  # noqa: F401 - for the next imports
import side

from tarry import Tarry


class TarrySide:
    """An app on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        self._app = Tarry(f"redis://127.0.0.1:{(folder / 'port').read_text()}")

        @self._app.task("bench", key="{n}")
        async def bench(n: int) -> None:
            mark(n)

        self._task = bench

    def schedule(self, n: int, due: int) -> None:
        self._task.schedule(datetime.fromtimestamp(due / 1_000, UTC), n)

    def place(self, dues: list[int]) -> None:
        whens = (datetime.fromtimestamp(due / 1_000, UTC) for due in dues)
        self._app.schedule_many(self._task.build(when, n) for n, when in enumerate(whens))

    def work(self) -> None:
        self._app.run_worker()


if __name__ == "__main__":
    side.main(TarrySide)
