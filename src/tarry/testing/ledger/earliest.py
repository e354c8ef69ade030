"""Earliest: the instant before which nothing that a store was asked for may begin (pure)."""

from tarry.attempt import AnyOutcome, Retry, Snooze
from tarry.due import By, resolve
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Request

Asking = Request | Move | Cancellation | DeadRef
"""What callers ask a store for."""


def earliest(asked: Asking | AnyOutcome, now: int) -> int:
    """Return before when *asked*, if it is accepted, lets nothing begin; 0: that is not known.

    *now* is what the store's clock shows before it is asked: a delay counts from a later instant.
    """
    if isinstance(asked, Retry | Snooze):
        return resolve(asked.due, now)
    if not isinstance(asked, Request | Move) or isinstance(asked.due, By):
        return 0
    if isinstance(asked, Request) and _may_choose_another(asked):
        return 0
    return resolve(asked.due, now)


def _may_choose_another(request: Request) -> bool:
    """Say whether the due of what waits, or a limit, may win over the one that is asked for."""
    return request.on_conflict is OnConflict.EARLIEST or request.max_wait_ms is not None
