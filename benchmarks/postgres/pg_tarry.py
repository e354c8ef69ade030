"""tarry's side of the comparison on PostgreSQL, as it comes.

Schedules and claims are synced like everything of the peers; settlements turn `synchronous_commit`
off for their own transaction, which is tarry's design and not a setting. Its batches are counted
with the building of their requests.
"""

from datetime import UTC, datetime
from pathlib import Path

import above_postgres  # noqa: F401 - for the next imports
import side
from side_tarry import AppSide


class TarrySide(AppSide):
    """An app on the database whose URL stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        super().__init__((folder / "url").read_text(), mark)

    def fill(self, numbers: range, due: int) -> None:
        when = datetime.fromtimestamp(due / 1_000, UTC)
        self._app.schedule_many(self._task.build(when, n) for n in numbers)


if __name__ == "__main__":
    side.main(TarrySide)
