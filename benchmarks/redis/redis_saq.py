"""SAQ's side of the comparison.

Tuned in its favour: 20 jobs at once, scheduler every second (its least), uvloop. Its instants are
whole seconds; rounded up, so that nothing is early.
"""

from pathlib import Path
from typing import Any

import above  # noqa: F401 - for the next imports
import in_flight
import side
import uvloop  # type: ignore[import-not-found, unused-ignore]
from saq import Queue, Worker  # type: ignore[import-not-found]


class SaqSide:
    """A queue on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        self._loop = uvloop.new_event_loop()
        self._url = f"redis://127.0.0.1:{(folder / 'port').read_text()}"
        self._queue = Queue.from_url(self._url)
        self._loop.run_until_complete(self._queue.connect())
        self._mark = mark

    async def aschedule(self, n: int, due: int) -> None:
        # No result is kept.
        await self._queue.enqueue("bench", n=n, scheduled=-(-due // 1_000), key=str(n), ttl=-1)

    def schedule(self, n: int, due: int) -> None:
        self._loop.run_until_complete(self.aschedule(n, due))

    def place(self, dues: list[int]) -> None:
        self._loop.run_until_complete(in_flight.place_all(self, dues))

    def work(self) -> None:
        uvloop.install()

        async def bench(context: dict[str, Any], *, n: int) -> None:
            del context
            self._mark(n)

        async def run() -> None:
            queue = Queue.from_url(self._url)
            await Worker(queue, [("bench", bench)], concurrency=20).start()

        uvloop.run(run())


if __name__ == "__main__":
    side.main(SaqSide)
