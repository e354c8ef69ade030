"""Pop, then run: the task is taken off the list before anything is done about it."""

from collections.abc import Sequence

from tarry.answers import RenewResult, SettleResult
from tarry.lease import Lease
from tarry.life import Life
from tarry.request import Settlement
from tarry.stores.store import Claimed
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench
from tarry.testing.simulation.medium import ForgetfulStore


class _Store(ForgetfulStore):
    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Take due tasks, for good."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        for lease in claimed.leases:
            # The step in which it goes wrong: from here on only the worker knows of the task.
            self.put_life(lease.ref, Life(self.life_of(lease.ref).waiting))
        return claimed

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Renew nothing: what was popped belongs to whoever popped it."""
        del lease_ms
        return [RenewResult.RENEWED] * len(leases)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Let what failed wait again: the worker brings it back."""
        if not call or call not in self._calls:
            for settlement in settlements:
                ref = settlement.lease.ref
                self.put_life(ref, Life(self.life_of(ref).waiting, settlement.lease))
        return super().settle(settlements, call=call)


POP_THEN_RUN = Control(
    name="pop-then-run",
    title="a worker pops a task off the list, then runs it",
    wrong=(
        "Between the pop and the end of the run the task exists nowhere but in the memory of one "
        "worker. If that dies, or only the reply to its pop gets lost, the task is gone, and "
        "nobody knows that there was one."
    ),
    rules=("lost",),
    bench=Bench(
        store=lambda clock, dice, able: _Store(clock=clock, rng=dice, capabilities=able),
    ),
)
