"""One slot per key: what waits and what runs under a key are the same record."""

import random
from collections.abc import Sequence

from tarry import life as lives
from tarry.answers import Scheduled
from tarry.life import Life
from tarry.request import Request
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, Plan, Step
from tarry.testing.simulation.medium import ForgetfulStore


class _Store(ForgetfulStore):
    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Write each request over the record of its key, and let it wait."""
        return self._each(
            requests,
            call,
            # The step in which it goes wrong: with the new due and payload the record becomes a
            # waiting one, and that the old revision is with a worker is known to nobody any more.
            lambda life, item, now: lives.schedule(_unleased(life), item, now, self._draw),
        )


def _unleased(life: Life) -> Life:
    return life if life.running is None else Life(life.running.task)


def _plan(seed: int) -> Plan:
    """Replace, then cancel, a task that waits in its worker for its turn."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    due = 100
    replaced = due + dice.randrange(15, 30)
    return Plan(
        seed=seed,
        concurrency=1,
        workers=("w1",),
        steps=(
            *(
                Step(at=0, who="p1", verb="schedule", key=key, delay=due, run=15)
                for key in ("1", "2", "3")
            ),
            Step(at=replaced, who="p1", verb="schedule", key="3", delay=500),
            Step(at=replaced + dice.randrange(3, 10), who="p1", verb="cancel", key="3"),
        ),
    )


ONE_SLOT_PER_KEY = Control(
    name="one-slot-per-key",
    title="leases and fencing as in the book, but one record per key for waiting and running",
    wrong=(
        "A replace that finds its key leased writes the new revision over it, and the record waits "
        "again. A cancel that comes then finds a waiting record, deletes it and says yes; but the "
        "old revision is still with its worker, which starts it a moment later. Nothing has to "
        "break for it. What waits and what runs need a slot each, so that a cancel sees both."
    ),
    rules=("after cancel",),
    bench=Bench(
        store=lambda clock, dice, able: _Store(clock=clock, rng=dice, capabilities=able),
    ),
    plan=_plan,
)
