"""History: run a plan to its end and judge it."""

import msgspec

from tarry.stores.store import Filter
from tarry.task import TaskRef, TaskState
from tarry.testing.ledger import Drained, Entry, Left, Violation, check
from tarry.testing.simulation.drawing import draw
from tarry.testing.simulation.handlers import playing
from tarry.testing.simulation.judge import judge
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.testing.simulation.plan import KINDS, SERIES, Plan, Step
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.stage import REAL, Bench, Stage
from tarry.testing.simulation.world import MS, Spinning

_DRAIN_MS = 60_000
_AFTER_MS = 300
_STOP_MS = 20_000
_AGAIN_SECONDS = 0.2
_STATES = (TaskState.SCHEDULED, TaskState.LEASED, TaskState.DEAD)


class History(msgspec.Struct):
    """What happened under a plan."""

    plan: Plan
    entries: list[Entry]
    times: list[int]
    """When each entry was made, in nanoseconds since the beginning."""
    violations: list[Violation]
    steps: int


def simulate(seed: int, bench: Bench = REAL) -> History:
    """Run the history of *seed*."""
    return run(draw(seed), bench)


def run(plan: Plan, bench: Bench = REAL) -> History:
    """Run *plan*, drain what is left, and judge what happened."""
    plan = plan.bare() if bench.bare else plan
    stage = Stage(plan, bench)
    playing(stage)
    found: list[Violation] = []
    try:
        stage.open()
        stage.world.run(plan.quiet * MS)
        _tidy(stage)
        limit = stage.world.now + _DRAIN_MS * MS
        stage.world.run(limit, done=lambda: _is_drained(stage))
        stage.world.run(stage.world.now + _AFTER_MS * MS)
        found += _stop(stage)
    except Spinning:
        found.append(Violation("spin", "", f"it spins at {stage.world.now / MS:.3f} ms"))
    stage.enter(Drained())
    _leave(stage)
    for process in (*stage.processes.values(), *stage.buried):
        found += [
            Violation("crashed", "", f"{process.label}: {type(error).__name__}: {error}")
            for error in process.loop.errors
        ]
    found += [Violation("derived", "", said) for said in stage.medium.store.check()]
    stage.end()
    found += check(stage.entries)
    found += judge(stage)
    return History(plan, stage.entries, stage.times, found, stage.world.steps)


def _tidy(stage: Stage) -> None:
    """Once nothing breaks any more: resume what is paused, end what would recur for ever."""
    process = stage.bring_up("operator")

    def tidy() -> None:
        while stage.asking.total() > 1 or stage.in_flight:
            process.nap(_AGAIN_SECONDS)
        for kind in (*KINDS, SERIES):
            stage.apps["operator"].resume(kind)
        stage.resumed = stage.world.now
        for ref in sorted(stage.series):
            _end_series(stage, process, ref.kind, ref.key)
        stage.over(process)

    stage.asking[process.label] += 1
    process.spawn(tidy, "tidy")


def _end_series(stage: Stage, process: Process, kind: str, key: str) -> None:
    step = Step(at=0, who="operator", verb="cancel", kind=kind, key=key)
    while stage.perform(step, process) not in {"cancelled", "absent"}:
        process.nap(_AGAIN_SECONDS)


def _is_drained(stage: Stage) -> bool:
    store = stage.medium.store
    resting = stage.declared
    if stage.in_flight or stage.asking.total():
        return False
    if isinstance(store, ForgetfulStore):
        empty = store.holds_only(resting)
    else:
        kinds = [kind for kind, count in store.counts().items() if count.scheduled or count.leased]
        empty = kinds in ([], [resting.kind if resting else ""])
    return empty and (resting is None or _rests(stage, resting))


def _rests(stage: Stage, ref: TaskRef) -> bool:
    """Say whether nothing is left of a declared series but the occurrence that comes next."""
    [task] = stage.medium.store.get([ref])
    if task is None or task.ended:
        return True
    waits = task.declared and task.state is TaskState.SCHEDULED
    return waits and task.due > stage.clock.now()


def _stop(stage: Stage) -> list[Violation]:
    """Stop the workers gracefully."""
    tasks = []
    for seat, (worker, task) in stage.workers.items():
        process = stage.processes[seat]
        if not process.dead:
            tasks.append(task)
            process.loop.call_soon(worker.stop)
    stopped = stage.world.run(
        stage.world.now + _STOP_MS * MS, done=lambda: all(task.done() for task in tasks)
    )
    failed = [task.exception() for task in tasks if task.done() and task.exception()]
    found = [Violation("crashed", "", f"a worker ended with {error!r}") for error in failed]
    return found if stopped else [*found, Violation("stuck", "", "a worker did not stop")]


def _leave(stage: Stage) -> None:
    """Enter what the store holds."""
    for state in _STATES:
        cursor = None
        while True:
            page = stage.medium.store.scan(Filter(state=state), cursor=cursor, limit=500)
            for task in page.tasks:
                stage.enter(
                    Left(
                        ref=str(task.ref),
                        state=state.value,
                        revision=task.revision,
                        attempt=task.attempt,
                        lost=task.lost,
                        reason=task.reason,
                        due=task.due,
                        ended=task.ended,
                        declared=task.declared,
                    )
                )
            cursor = page.cursor
            if cursor is None:
                break
