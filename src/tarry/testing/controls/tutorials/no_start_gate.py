"""No start gate: a worker starts what it has claimed, however long ago that was."""

import random

from tarry.attempt import AnyOutcome
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, Fault, Plan, Step
from tarry.worker.run import Attempt
from tarry.worker.worker import Worker


class _Worker(Worker):
    def _gate(self, attempt: Attempt, now: int) -> AnyOutcome | None:
        """Let every attempt start that was not given up for other reasons."""
        # The step in which it goes wrong: whether the lease still has time, or was cancelled or
        # lost meanwhile, is not looked at.
        due = attempt.lease.task.due
        refused = attempt.refuse((self._contact.now_us(now) - due * 1_000) / 1_000)
        if refused is None:
            attempt.started = True
            attempt.began = now
        return refused


def _plan(seed: int) -> Plan:
    """Let a worker stall between its claim and the start, and cancel the task meanwhile."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    due = 100
    return Plan(
        seed=seed,
        lease=300,
        latency_us=3_000,
        workers=("w1",),
        steps=(
            Step(at=0, who="p1", verb="schedule", delay=due),
            Step(at=due + 400 + dice.randrange(100), who="p1", verb="cancel"),
        ),
        faults=(Fault(at=due + dice.randrange(2, 8), what="stall", who="w1", span=800),),
    )


NO_START_GATE = Control(
    name="no-start-gate",
    title="a worker starts the handler of what it claimed without looking at its lease again",
    wrong=(
        "Between the claim and the start of the handler a worker may stall: a garbage collection, "
        "a suspended machine, a full queue. Its lease runs out, the task is cancelled with a yes "
        "or run to its end by another worker, and then the first one wakes up and starts it. "
        "Fencing refuses its outcome, but the handler has run."
    ),
    rules=("after cancel", "double start"),
    bench=Bench(worker=_Worker),
    plan=_plan,
)
