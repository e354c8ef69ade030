"""Settle an attempt inside its handler's own transaction: its writes and its end are one commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tarry.answers import SettleResult
from tarry.attempt import AnyOutcome, Done, Skip
from tarry.errors import LeaseLostError
from tarry.outcome import decide
from tarry.request import Settlement
from tarry.stores.store import Store
from tarry.transactions.joining import Joined
from tarry.worker.contact import Contact

if TYPE_CHECKING:
    from tarry.worker.run import Attempt


class JoinedSettler:
    """What stands behind `ctx.settle(tx=…)`.

    Whether the handler commits is not for the worker to know: it settles the attempt as always when
    the handler has ended. Where the transaction was committed the lease is gone, and the store
    says so; where it was rolled back that settlement is the one that counts.
    """

    def __init__(self, store: Store, contact: Contact) -> None:
        self._store = store
        self._contact = contact

    def settle(self, attempt: "Attempt", outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* when the handler commits; raises LeaseLostError if the lease is lost."""
        joined = Joined(self._store, tx)
        settlement = self._settlement(attempt, outcome)
        with _unless_it_fails(attempt):
            [answer] = joined.run(lambda store: store.join_settle([settlement]))
        return _joined(attempt, settlement, answer, joined)

    async def asettle(self, attempt: "Attempt", outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* when the handler commits; for coroutines."""
        joined = Joined(self._store, tx)
        settlement = self._settlement(attempt, outcome)
        with _unless_it_fails(attempt):
            [answer] = await joined.arun(lambda store: store.join_settle([settlement]))
        return _joined(attempt, settlement, answer, joined)

    def _settlement(self, attempt: "Attempt", outcome: AnyOutcome) -> Settlement:
        now = self._contact.now()
        wish = decide.of_result(outcome, now)
        judged = decide.within_limits(wish, attempt.lease.task, attempt.handler, now)
        # From the first statement on the record is locked: a renewal would wait for the handler.
        attempt.joined = judged
        return attempt.settlement(judged, now)


@contextmanager
def _unless_it_fails(attempt: "Attempt") -> Iterator[None]:
    """Take an attempt for settled by its handler, unless nothing was written."""
    try:
        yield
    except BaseException:
        attempt.joined = None
        raise


def _joined(
    attempt: "Attempt", settlement: Settlement, answer: SettleResult, joined: Joined
) -> SettleResult:
    if answer is SettleResult.LEASE_LOST:
        attempt.joined = None
        ref = attempt.lease.ref
        raise LeaseLostError(ref.kind, ref.key, token=attempt.lease.token)
    ends = isinstance(settlement.outcome, Done | Skip) and settlement.successor is None
    if answer is SettleResult.SUPERSEDED or not ends:
        joined.wake(0)
    return answer
