"""The runs of `tarry bench`: each takes one measure, and leaves nothing waiting."""

import asyncio
import statistics
import threading
from collections.abc import Callable, Iterable
from typing import Self

from tarry.app import Tarry
from tarry.cli.output import progress
from tarry.cli.scratch import sweep
from tarry.clock import SYSTEM
from tarry.due import At
from tarry.errors import WorkerError
from tarry.events import AttemptEnded, Event
from tarry.request import Request
from tarry.task import TaskRef

BATCH = 500
CALLERS = 100
RATE = 250
KIND = "bench"
_LATER = "1d"
_HEAD_START_MS = 1_000
_PATIENCE = 60.0
_TICK_NS = 100_000_000


Step = Callable[[int], None]


class Runs:
    """Measures the store of *app*, which belongs to nobody else."""

    def __init__(self, app: Tarry) -> None:
        self._app = app
        self._arrived: list[float] = []
        self._wanted = 0
        self._all_here = threading.Event()
        self._last = 0

        @app.task(KIND, key="{n}")
        async def nothing(n: int) -> None:
            del n

        self._task = nothing
        app.listen(self._count)

    def single(self, seconds: float) -> float:
        """Return how many tasks per second one caller schedules one by one."""
        with _Watch("schedule", seconds) as watch:
            while watch.goes_on():
                self._task.schedule(_LATER, watch.count)
                watch.step(1)
        return self._clean(watch)

    def batch(self, seconds: float) -> float:
        """Return how many tasks per second one caller schedules in batches."""
        with _Watch("schedule_many", seconds) as watch:
            while watch.goes_on():
                first = watch.count
                self._app.schedule_many(
                    self._task.build(_LATER, n) for n in range(first, first + BATCH)
                )
                watch.step(BATCH)
        return self._clean(watch)

    def callers(self, seconds: float) -> float:
        """Return how many tasks per second a hundred coroutines schedule together."""

        async def caller(watch: _Watch) -> None:
            while watch.goes_on():
                number = watch.count
                watch.step(1)
                await self._task.aschedule(_LATER, number)

        async def everybody(watch: _Watch) -> None:
            await asyncio.gather(*(caller(watch) for _ in range(CALLERS)))

        with _Watch("aschedule", seconds) as watch:
            asyncio.run(everybody(watch))
        return self._clean(watch)

    def burst(self, count: int) -> float:
        """Return how many tasks per second one worker runs when all are due at once."""
        with progress(count, "burst: scheduling") as step:
            for first in range(0, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                self._app.schedule_many(self._task.build("now", n) for n in numbers)
                step(len(numbers))
        began = SYSTEM.elapsed()
        self._expect(count)
        with progress(count, "burst: running") as step, self._app.worker():
            self._await_all(step)
        return count / ((self._last - began) / 1e9)

    def lateness(self, seconds: float) -> tuple[float, float]:
        """Return the median and the 99th percentile of lateness, in ms, at a steady rate."""
        count = max(2, int(RATE * seconds))
        self._expect(count)
        with self._app.worker():
            first = SYSTEM.now() + _HEAD_START_MS
            self._app.schedule_many(_spread(count, first))
            with progress(count, "lateness") as step:
                self._await_all(step)
        found = statistics.quantiles(self._arrived, n=100, method="inclusive")
        return found[49], found[98]

    def _clean(self, watch: "_Watch") -> float:
        sweep(self._app)
        return watch.rate

    def _expect(self, count: int) -> None:
        self._arrived = []
        self._wanted = count
        self._all_here.clear()

    def _count(self, event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.outcome == "done":
            self._arrived.append(event.lateness_ms)
            if len(self._arrived) == self._wanted:
                self._last = SYSTEM.elapsed()
                self._all_here.set()

    def _await_all(self, step: Step) -> None:
        """Wait until everything ran; gives up when nothing moves for a minute."""
        seen, moved = 0, SYSTEM.elapsed()
        while not self._all_here.wait(_TICK_NS / 1e9):
            now = len(self._arrived)
            if now > seen:
                step(now - seen)
                seen, moved = now, SYSTEM.elapsed()
            elif SYSTEM.elapsed() - moved > _PATIENCE * 1e9:
                message = f"only {now:,} of {self._wanted:,} tasks were attempted"
                raise WorkerError(message)
        step(self._wanted - seen)


def _spread(count: int, first: int) -> Iterable[Request]:
    for n in range(count):
        ref = TaskRef(KIND, str(n))
        yield Request(ref, At(first + n * 1_000 // RATE), b'{"n":%d}' % n)


class _Watch:
    """Counts what is done while some seconds last, and shows how far they are."""

    def __init__(self, label: str, seconds: float) -> None:
        self._limit = int(seconds * 1e9)
        self._bar = progress(max(1, self._limit // _TICK_NS), label)
        self._shown = 0
        self.count = 0

    def __enter__(self) -> Self:
        self._show = self._bar.__enter__()
        self._began = SYSTEM.elapsed()
        return self

    def __exit__(self, *error: object) -> None:
        took = SYSTEM.elapsed() - self._began
        self.rate = self.count / (took / 1e9)
        self._bar.__exit__(None, None, None)

    def goes_on(self) -> bool:
        """Say whether there is time left."""
        return SYSTEM.elapsed() - self._began < self._limit

    def step(self, done: int) -> None:
        """Count *done* more."""
        self.count += done
        ticks = (SYSTEM.elapsed() - self._began) // _TICK_NS
        if ticks > self._shown:
            self._show(ticks - self._shown)
            self._shown = ticks
