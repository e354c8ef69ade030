"""Context: what a handler is told about its attempt."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tarry.answers import SettleResult
from tarry.attempt import DONE, AnyOutcome
from tarry.payload import decode_headers
from tarry.task import Task, TaskRef


def _never() -> bool:
    return False


class Settles(Protocol):
    """What a context hands a settlement on to: the attempt."""

    def settle(self, outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* in the transaction."""
        ...

    async def asettle(self, outcome: AnyOutcome, tx: object) -> SettleResult:
        """Record *outcome* in the transaction; for coroutines."""
        ...


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt a handler runs in. Its first parameter, if annotated so, gets one.

    `token` is unique to this attempt: hand it to whatever must refuse an older attempt's writes.
    `lateness` is in seconds, by the store's clock.
    """

    ref: TaskRef
    due: int = 0
    attempt: int = 1
    snoozes: int = 0
    lost: int = 0
    created: int = 0
    revision: int = 0
    token: int = 0
    headers: dict[str, str] = {}
    lateness: float = 0.0
    asked_to_stop: Callable[[], bool] = _never
    settles: Settles | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled, or its lease lost, since the attempt began."""
        return self.asked_to_stop()

    def settle(self, outcome: AnyOutcome = DONE, *, tx: object) -> SettleResult:
        """End the attempt in your own transaction: its writes and this outcome are one commit.

        What the handler returns counts only if that transaction is not committed. Raises
        LeaseLostError if the lease is lost: let it roll the transaction back. In a plain call of
        the handler, without a worker, nothing is written.
        """
        return SettleResult.SETTLED if self.settles is None else self.settles.settle(outcome, tx)

    async def asettle(self, outcome: AnyOutcome = DONE, *, tx: object) -> SettleResult:
        """End the attempt in your own transaction; for coroutines."""
        if self.settles is None:
            return SettleResult.SETTLED
        return await self.settles.asettle(outcome, tx)

    @classmethod
    def of(
        cls,
        task: Task,
        *,
        token: int,
        lateness_ms: float,
        asked_to_stop: Callable[[], bool],
        settles: Settles | None = None,
    ) -> "Context":
        """Return the context of an attempt at *task*."""
        return cls(
            ref=task.ref,
            due=task.due,
            attempt=task.attempt,
            snoozes=task.snoozes,
            lost=task.lost,
            created=task.created,
            revision=task.revision,
            token=token,
            headers=decode_headers(task.headers),
            lateness=lateness_ms / 1_000,
            asked_to_stop=asked_to_stop,
            settles=settles,
        )
