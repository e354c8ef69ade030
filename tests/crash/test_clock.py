"""The clock steps under a running worker: nothing starts before its due, nothing gets stuck."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.conftest import Ground, Until, lacking

from tarry import Context, Tarry
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.request import Request
from tarry.task import TaskRef
from tarry.testing.ledger import Failed, Started

HOUR = 3_600_000


class SteppingClock:
    """The machine's clock, set wrong by some milliseconds; elapsed time goes on as ever."""

    def __init__(self) -> None:
        self.wrong_ms = 0

    def now_us(self) -> int:
        return SYSTEM.now_us() + self.wrong_ms * 1_000

    def now(self) -> int:
        return SYSTEM.now() + self.wrong_ms

    def elapsed(self) -> int:
        return SYSTEM.elapsed()

    def step(self, ms: int) -> None:
        self.wrong_ms += ms


class Starts:
    """What the handler saw: key, due, the store's now, how often it was lost."""

    def __init__(self, clock: SteppingClock) -> None:
        self._clock = clock
        self.seen: list[tuple[str, int, int, int]] = []
        self.hold = threading.Event()
        self.hold.set()

    def note(self, ctx: Context) -> None:
        self.seen.append((ctx.ref.key, ctx.due, self._clock.now(), ctx.lost))

    def names(self) -> list[str]:
        return [key for key, *_ in self.seen]


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def starts(clock: SteppingClock) -> Starts:
    return Starts(clock)


@pytest.fixture
def app(tmp_path: Path, clock: SteppingClock, starts: Starts) -> Iterator[Tarry]:
    with Tarry(f"sqlite:///{tmp_path}/tarry.db?sync=normal", clock=clock) as app:

        @app.task("quick")
        async def quick(ctx: Context) -> None:
            starts.note(ctx)

        @app.task("slow")
        def slow(ctx: Context) -> None:
            starts.note(ctx)
            starts.hold.wait(30)

        yield app


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_what_is_scheduled_after_a_step_runs_in_time(
    app: Tarry, clock: SteppingClock, starts: Starts, until: Until, step: int
) -> None:
    with app.worker(lease="1s"):
        app.schedule("quick", "now", key="before")
        until(lambda: "before" in starts.names(), "the first start")
        # A step forward would end the lease of what is still running.
        until(lambda: app.store.counts() == {}, "the end of the first task")

        clock.step(step)
        began = SYSTEM.elapsed()
        app.schedule("quick", "100ms", key="after")
        until(lambda: "after" in starts.names(), "a start after the step")
        took_ms = (SYSTEM.elapsed() - began) / 1e6

    assert 90 <= took_ms < 5_000
    assert all(now >= due for _, due, now, _ in starts.seen)
    assert sorted(starts.names()) == ["after", "before"]


def test_a_step_forward_makes_due_what_it_jumps_over(
    app: Tarry, clock: SteppingClock, starts: Starts, until: Until
) -> None:
    with app.worker(lease="1s"):
        for n in range(20):
            app.schedule("quick", "30m", key=str(n))
        app.schedule("quick", "2h", key="far")

        clock.step(HOUR)
        until(lambda: len(starts.seen) == 20, "the starts")
        clock.step(HOUR)
        until(lambda: "far" in starts.names(), "the last start")

    assert sorted(starts.names()) == sorted([*map(str, range(20)), "far"])
    assert all(now >= due for _, due, now, _ in starts.seen)


def test_a_step_back_delays_and_loses_nothing(
    app: Tarry, clock: SteppingClock, starts: Starts, until: Until
) -> None:
    with app.worker(lease="1s"):
        for n in range(20):
            app.schedule("quick", "300ms", key=str(n))

        clock.step(-HOUR)
        app.schedule("quick", "600ms", key="probe")
        until(lambda: "probe" in starts.names(), "a start on the new time")
        early = starts.names()
        clock.step(HOUR)
        until(lambda: len(starts.seen) == 21, "the starts on the old time")

    assert early == ["probe"]
    assert all(now >= due for _, due, now, _ in starts.seen)
    assert len(set(starts.names())) == 21


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_an_attempt_that_runs_while_the_clock_steps_ends_once(
    app: Tarry, clock: SteppingClock, starts: Starts, until: Until, step: int
) -> None:
    starts.hold.clear()
    with app.worker(lease="1s"):
        app.schedule("slow", "now", key="running")
        until(lambda: starts.seen, "the start")

        clock.step(step)
        app.schedule("quick", "1500ms", key="meanwhile")
        until(lambda: "meanwhile" in starts.names(), "a start after the step")
        starts.hold.set()
        until(lambda: app.store.counts() == {}, "the end of all")

    # A lease is kept by the store's clock: one that a step has ended is a lost lease, and counted.
    runs = [lost for key, _, _, lost in starts.seen if key == "running"]
    assert runs == list(range(len(runs)))
    assert len(runs) <= (2 if step > 0 else 1)


def test_a_lease_from_before_a_step_back_ends_when_its_worker_goes_on(
    app: Tarry, clock: SteppingClock, starts: Starts, until: Until
) -> None:
    starts.hold.clear()
    with app.worker(lease="600ms"):
        app.schedule("slow", "now", key="running")
        until(lambda: starts.seen, "the start")
        clock.step(-HOUR)
        # The heartbeat sets the lease's end by the new time.
        until(renewed_within(app, clock, 1_000), "a renewal")
        starts.hold.set()
        until(lambda: app.store.counts() == {}, "the end")

    assert starts.names() == ["running"]


def renewed_within(app: Tarry, clock: SteppingClock, ms: int) -> Callable[[], bool]:
    def look() -> bool:
        with app.store._connections.reading() as db:  # type: ignore[attr-defined]
            row = db.execute("SELECT max(expires) FROM task").fetchone()
        return row[0] is not None and row[0] <= clock.now() + ms

    return look


# ---- in processes of their own, whose wall clock really steps


class SteppedGround(Ground):
    """Workers that share one wall clock, which can be set; the test's own clock follows it."""

    def __init__(self, folder: Path, wall: Path) -> None:
        self.clock = SteppingClock()
        self._wall = wall
        super().__init__(folder, book=folder / "ledger", clock=self.clock)

    def step(self, ms: int) -> None:
        """Step the clock."""
        # What is leased now may end with such a step: the medium's own clock is at fault.
        self.book.write(Failed(by="clock", how="its clock steps"))
        self.clock.step(ms)
        self._wall.write_text(f"{self.clock.wrong_ms / 1_000:+.3f}")

    def place(self, kind: str, key: str, delay_ms: int) -> str:
        """Schedule a task; returns its ref."""
        ref = TaskRef(kind, key)
        self.witness.schedule([Request(ref, In(delay_ms))])
        return str(ref)

    def is_idle(self) -> bool:
        """Say whether nothing runs: a step forward would end its lease."""
        return not any(count.leased for count in self.store.counts().values())

    def started(self) -> Counter[str]:
        """Count the starts of each ref."""
        return Counter(start.ref for start in self.of(Started))


# libfaketime moves the end of an absolute sleep on the monotonic clock, too, which it must not.
SLEEP_BY_SELECT = """
import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds)
"""


@pytest.fixture
def stepped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedGround]:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        lacking("libfaketime is not installed")
    wall = tmp_path / "wall"
    wall.write_text("+0")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLEEP_BY_SELECT)
    with monkeypatch.context() as around:
        around.setenv("LD_PRELOAD", str(found[0]))
        around.setenv("FAKETIME_TIMESTAMP_FILE", str(wall))
        around.setenv("FAKETIME_NO_CACHE", "1")
        around.setenv("DONT_FAKE_MONOTONIC", "1")
        around.setenv("PYTHONPATH", str(site))
        ground = SteppedGround(tmp_path, wall)
    with closing(ground):
        yield ground


@pytest.mark.parametrize("kind", ["async.work", "plain.work"])
def test_worker_processes_follow_a_clock_that_steps_back_and_forth(
    stepped: SteppedGround, until: Until, kind: str
) -> None:
    workers = [stepped.worker(lease="5s") for _ in range(2)]
    before = stepped.place(kind, "before", 0)
    until(lambda: before in stepped.started(), "a start on the right time")
    until(stepped.is_idle, "its end")

    ahead = stepped.place(kind, "ahead", 1_000)
    stepped.step(-HOUR)
    probe = stepped.place(kind, "probe", 1_500)
    far = stepped.place(kind, "far", HOUR + HOUR // 2)
    until(lambda: probe in stepped.started(), "a start after the step back")
    until(stepped.is_idle, "its end")
    early = set(stepped.started())
    stepped.step(2 * HOUR)
    until(lambda: {ahead, far} <= set(stepped.started()), "the starts after the step forward")
    until(stepped.is_drained, "the end of all")
    for worker in workers:
        assert stepped.nursery.stop(worker)

    assert early == {before, probe}
    assert stepped.started() == Counter([before, probe, ahead, far])
    assert stepped.judged() == []
