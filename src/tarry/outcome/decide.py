"""From a handler's result or exception to an outcome (pure)."""

from typing import Protocol

from tarry.attempt import DONE, AnyOutcome, Dead, Done, Release, Retry, Skip, Snooze
from tarry.backoff import Backoff
from tarry.due import At, In, parse_when
from tarry.errors import HandlerError, WhenError
from tarry.recurrence import Rule
from tarry.request import Successor
from tarry.task import Task

LOST_LIMIT = 5
"""A task whose lease was lost more often than this becomes a dead letter."""


_WORDS = {kind: kind.__name__.lower() for kind in (Done, Skip, Dead, Retry, Snooze, Release)}


class Limits(Protocol):
    """What of a handler the decision needs."""

    @property
    def retry(self) -> Backoff: ...  # noqa: D102 - see Handler
    @property
    def drop_after_ms(self) -> int | None: ...  # noqa: D102 - see Handler


def before(task: Task, limits: Limits, lateness_ms: float) -> Dead | None:
    """Return why *task* must not be attempted at all, None if it may."""
    if task.lost > LOST_LIMIT:
        return Dead(f"lost too often: {task.lost} workers died or stalled while attempting it")
    if limits.drop_after_ms is not None and lateness_ms > limits.drop_after_ms:
        return Dead(f"expired: {lateness_ms / 1_000:.3f} s late")
    if task.rule:
        try:
            Rule.parse(task.rule)
        except HandlerError as error:
            return Dead(f"its rule cannot be read: {error}")
    return None


def runs_alone(task: Task) -> bool:
    """Say whether *task* may be what kills its workers: nothing unstarted should die with it."""
    return task.lost >= LOST_LIMIT


def of_result(result: object, now: int) -> AnyOutcome:
    """Return the outcome a handler's return value stands for; a plain value is simply done."""
    if isinstance(result, Done | Skip | Dead | Retry | Snooze):
        return _read(result, now)
    return DONE


def of_error(
    error: BaseException, task: Task, limits: Limits, now: int, chance: float
) -> AnyOutcome:
    """Return the outcome an exception stands for: a wish, or a failure the policy answers."""
    if isinstance(error, Done | Skip | Dead | Retry | Snooze):
        try:
            return _read(error, now)
        except WhenError as wrong:
            error = wrong
    return failed(describe(error), task, limits, now, chance)


def failed(reason: str, task: Task, limits: Limits, now: int, chance: float) -> AnyOutcome:
    """Return what the kind's policy makes of a failed attempt at *task*."""
    failures = task.failures + 1
    delay = limits.retry.delay_ms(failures, max(0, now - task.created), chance)
    if delay is None:
        return Dead(f"failed too often ({failures}): {reason}")
    return Retry(In(delay), reason)


def within_limits(outcome: AnyOutcome, task: Task, limits: Limits, now: int) -> AnyOutcome:
    """Return what becomes of a handler's own wish: a `Retry` counts as a failure as any other."""
    if not isinstance(outcome, Retry):
        return outcome
    judged = failed(outcome.reason or "it asked to be retried", task, limits, now, 0.5)
    return judged if isinstance(judged, Dead) else outcome


def describe(error: BaseException) -> str:
    """Return an exception as one line an operator can read."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - an error that cannot even say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def successor(task: Task, now: int) -> Successor | None:
    """Return the occurrence that follows *task*'s, None where it does not recur or has ended.

    A rule that cannot be read has no next occurrence: its task is dead (see `before`).
    """
    if not task.rule:
        return None
    try:
        following = Rule.parse(task.rule).next(task.nominal, now)
    except HandlerError:
        return None
    return None if following is None else Successor(following, following)


def name(outcome: AnyOutcome) -> str:
    """Return the outcome's word, as events and metrics use it."""
    return _WORDS[type(outcome)]


def _read(outcome: AnyOutcome, now: int) -> AnyOutcome:
    """Return *outcome* with its time read; a subclass as what it is a kind of."""
    if isinstance(outcome, Retry | Snooze):
        when = outcome.when
        wish = Retry if isinstance(outcome, Retry) else Snooze
        return wish(when if isinstance(when, At | In) else parse_when(when, now), outcome.reason)
    [plain] = [one for one in (Done, Skip, Dead, Release) if isinstance(outcome, one)]
    return outcome if type(outcome) is plain else plain(outcome.reason)
