"""tarry's side of the comparison: SQLite, default durability (every call waits for the disk)."""

from datetime import UTC, datetime
from pathlib import Path

import side

from tarry import Tarry


class AppSide:
    """An app on any store; its sides on servers begin with it, too."""

    def __init__(self, url: str, mark: side.Mark) -> None:
        self._app = Tarry(url)

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


class TarrySide(AppSide):
    """An app on a file."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        super().__init__(f"sqlite:///{folder / 'tarry.db'}", mark)

    def cancel(self, n: int) -> None:
        self._task.cancel(n)


if __name__ == "__main__":
    side.main(TarrySide)
