"""A rescue without a state check: what looked stuck is put back, whatever it is by now."""

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tarry.lease import Lease
from tarry.life import Life
from tarry.task import TaskState
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, Fault, Plan, Step
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.testing.simulation.wire import Wire


class _Store(ForgetfulStore):
    def stuck(self) -> list[Lease]:
        """SELECT … WHERE state = 'leased' AND expires <= now."""
        now = self._clock.now()
        leases = [life.running for _, life in self.lives()]
        return [lease for lease in leases if lease is not None and lease.expires <= now]

    def put_back(self, leases: Sequence[Lease]) -> None:
        """UPDATE … SET state = 'waiting' WHERE key IN (…)."""
        for lease in leases:
            # The step in which it goes wrong: it does not look whether the lease is still there.
            task = replace(lease.task, lost=lease.task.lost + 1, state=TaskState.SCHEDULED)
            self.put_life(lease.ref, Life(self.life_of(lease.ref).waiting or task))

    def _reclaim(self, kinds: list[str], now: int) -> None:
        """Leave it to the rescuer."""


class _Wire(Wire):
    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Exchange; a worker that claims looks first whether there is something to rescue."""
        if verb == "claim":
            leases = super().ask("stuck")
            if leases:
                super().ask("put_back", leases)
        return super().ask(verb, *args, **kwargs)


def _plan(seed: int) -> Plan:
    """Let a worker stall, and go on about when its task is rescued."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    return Plan(
        seed=seed,
        lease=300,
        latency_us=3_000,
        steps=(Step(at=0, who="p1", verb="schedule", run=20),),
        faults=(Fault(at=10, what="stall", who="w1", span=dice.randrange(290, 310)),),
    )


RESCUE_WITHOUT_STATE_CHECK = Control(
    name="rescue-without-state-check",
    title="a rescuer lists expired leases, then puts their tasks back to waiting",
    wrong=(
        "Between the list and the update the slow worker may wake up and settle its task, or a "
        "caller may cancel it. The rescuer does not ask again whether the task is still in the "
        "state it was listed in: it puts back what has ended, and it runs once more, though its "
        "first run was acknowledged as the last."
    ),
    rules=("double settlement", "double start", "after cancel"),
    bench=Bench(
        store=lambda clock, dice, able: _Store(clock=clock, rng=dice, capabilities=able),
        wire=_Wire,
    ),
    plan=_plan,
)
