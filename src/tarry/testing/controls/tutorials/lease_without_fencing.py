"""A lease without fencing: whoever speaks of a task by its key is taken for its holder."""

import random
from collections.abc import Sequence

from msgspec.structs import replace

from tarry.answers import RenewResult, SettleResult
from tarry.lease import Lease
from tarry.request import Settlement
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, Fault, Plan, Step
from tarry.testing.simulation.medium import ForgetfulStore


class _Store(ForgetfulStore):
    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let the leases on these keys end later, whoever holds them."""
        return super().renew([self._of_key(lease) for lease in leases], lease_ms=lease_ms)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes of whatever runs under these keys."""
        by_key = [replace(one, lease=self._of_key(one.lease)) for one in settlements]
        return super().settle(by_key, call=call)

    def _of_key(self, lease: Lease) -> Lease:
        """Return the lease that is there; nobody looks whether it is the same."""
        # The step in which it goes wrong: the token of who asks is not compared.
        running = self.life_of(lease.ref).running
        return lease if running is None else replace(lease, token=running.token)


def _plan(seed: int) -> Plan:
    """Let a worker stall, and meanwhile another one fail at the next revision."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    return Plan(
        seed=seed,
        lease=300,
        steps=(
            Step(at=0, who="p1", verb="schedule", run=100),
            Step(at=150, who="p1", verb="schedule", script=("fail", "ok"), run=200),
        ),
        faults=(Fault(at=50, what="stall", who="w1", span=dice.randrange(200, 600)),),
    )


LEASE_WITHOUT_FENCING = Control(
    name="lease-without-fencing",
    title="leases expire, but settling and renewing go by the key alone",
    wrong=(
        "A worker that stalls outlives its lease, and another one takes the task over. When the "
        "first one goes on, it settles the task by its key: it ends the attempt of the other, "
        "which is still running, and whatever that comes to is refused. What the late one says "
        "may not even be about the same revision."
    ),
    rules=("lost", "double settlement", "double start"),
    bench=Bench(
        store=lambda clock, dice, able: _Store(clock=clock, rng=dice, capabilities=able),
    ),
    plan=_plan,
)
