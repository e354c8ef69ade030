"""Leases: one at a time for a key, and a claim that can be repeated."""

from collections.abc import Sequence

from tarry import life as lives
from tarry.life import Life
from tarry.stores.store import Claimed
from tarry.testing.controls.broken_rules.setting import calm, on
from tarry.testing.controls.control import Control
from tarry.testing.simulation import situations
from tarry.testing.simulation.medium import ForgetfulStore


class TwoLeases(ForgetfulStore):
    """Leases a revision although an attempt of its ref is under way."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim what is free, then what is not."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        for ref, life in self.lives():
            waiting = life.waiting
            free = len(claimed.leases) < limit and ref.kind in kinds
            if free and life.running and waiting and waiting.due <= claimed.now:
                token = self._random.getrandbits(62)
                expires = claimed.now + lease_ms
                lease = lives.claim(waiting, token=token, holder=holder, expires=expires)
                self.put_life(ref, Life(None, lease))
                claimed.leases.append(lease)
        return claimed


class ForgottenClaims(ForgetfulStore):
    """Takes a repeated claim for a new one."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim without a number."""
        del call
        return super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder)


LEASES: tuple[Control, ...] = (
    Control(
        "two-live-leases",
        "A newer revision is leased while an attempt of the same key is still under way.",
        "Two attempts of one key run side by side, and the older one is robbed of its record: "
        "whatever it comes to is refused. A key has one running slot; what is scheduled meanwhile "
        "waits behind it.",
        ("double start",),
        on(TwoLeases),
        calm,
    ),
    Control(
        "claim-not-repeatable",
        "A claim whose reply was lost is simply made again.",
        "What the lost claim took is leased to nobody: it waits for the lease to end, is counted "
        "as lost each time, and may end as a dead letter without ever having been started. A "
        "claim has a number, and a repeat of it returns the same leases.",
        ("dead without cause",),
        on(ForgottenClaims),
        situations.unheard_claims,
    ),
)
