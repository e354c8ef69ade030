"""Notes: what one worker enters: its claims, what it starts under them, what they come to."""

from collections.abc import Callable, Sequence

from tarry.answers import SettleResult
from tarry.attempt import AnyOutcome
from tarry.context import Context
from tarry.outcome.decide import name
from tarry.request import Settlement
from tarry.stores.store import Claimed
from tarry.testing.ledger.entries import Answered, Entry, Finished, Settled, Started


class Notes:
    """Writes the entries of the worker called *by*; remembers under which claim it holds what."""

    def __init__(self, write: Callable[[Entry], object], *, by: str) -> None:
        self._write = write
        self._by = by
        self._claims: dict[int, int] = {}
        self._now = 0

    def claimed(self, op: int, claimed: Claimed) -> None:
        """Enter the answer to the claim *op*."""
        self._write(Answered(op=op, status="claimed"))
        self._now = claimed.now
        self._claims.update((lease.token, op) for lease in claimed.leases)

    def started(self, ctx: Context, op: int = 0) -> None:
        """Enter that a handler begins; *op*: the schedule that its payload names."""
        self._write(
            Started(
                ref=str(ctx.ref),
                revision=ctx.revision,
                token=ctx.token,
                attempt=ctx.attempt,
                lost=ctx.lost,
                due=ctx.due,
                now=self._now,
                by=self._by,
                claim=self._claims.pop(ctx.token, 0),
                op=op,
            )
        )

    def finished(
        self, settlements: Sequence[Settlement], earliest: Callable[[AnyOutcome], int]
    ) -> None:
        """Enter what was decided, before the store is told."""
        for each in settlements:
            outcome = each.outcome
            self._write(
                Finished(token=each.lease.token, outcome=name(outcome), earliest=earliest(outcome))
            )

    def settled(self, settlements: Sequence[Settlement], answers: Sequence[SettleResult]) -> None:
        """Enter whether the store took it."""
        for each, answer in zip(settlements, answers, strict=True):
            outcome = name(each.outcome)
            self._write(Settled(token=each.lease.token, outcome=outcome, answer=answer.value))
