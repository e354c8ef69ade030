"""Once: no second attempt and no second settlement, unless something broke."""

from collections.abc import Iterator
from itertools import pairwise

from tarry.testing.ledger.entries import Violation
from tarry.testing.ledger.history import CLOCK, FINAL, MEDIUM, NOT_KNOWN, History, Run, Story

_AGAIN = frozenset({"retry", "snooze", "release"})


def double_start(story: Story, history: History) -> Iterator[Violation]:
    """Find second attempts of a revision, and second attempts at a time, without a cause."""
    for run in story.runs:
        if run.before is not None:
            lacking = _lacking(history, run.before, run)
            if lacking:
                one, other = run.before.start, run.start
                said = (
                    f"revision {one.revision} began with token {one.token} and again with token "
                    f"{other.token}, though {lacking}"
                )
                yield Violation("double start", story.ref, said, (one, other))
    for first, second in pairwise(story.runs):
        one, other = first.start, second.start
        overlap = one.revision != other.revision and first.finished > second.at
        if overlap and not history.cut_off(first, second.at):
            said = (
                f"revision {other.revision} began with token {other.token} while token "
                f"{one.token} was still running revision {one.revision}"
            )
            yield Violation("double start", story.ref, said, (one, other))


def _lacking(history: History, first: Run, second: Run) -> str:
    """Return what a second attempt of the same revision would need and the history lacks."""
    one, other = first.start, second.start
    if one.token == other.token or (first.outcome in _AGAIN and first.finished < second.at):
        return ""
    if history.failed_between(MEDIUM, first.claimed, second.at):
        return ""
    older, newer, excuses = first, second, {one.by, CLOCK}
    if other.lost < one.lost and NOT_KNOWN < second.claimed < first.at:
        # Leased before and begun after: its holder counts the lease itself, and only a clock that
        # stepped ends one earlier than that.
        older, newer, excuses = second, first, {CLOCK}
    if not any(history.failed_between(by, older.claimed, second.at) for by in excuses):
        return "nothing had failed"
    was, now = older.start.lost, newer.start.lost
    if now <= was:
        return f"the lost lease was not counted (lost was {was} and is {now})"
    return ""


def double_settlement(story: Story, history: History) -> Iterator[Violation]:
    """Find outcomes that the store took twice."""
    for run in story.runs:
        if run.taken is not None and run.again is not None:
            said = f"the store took the outcome of token {run.start.token} twice"
            yield Violation("double settlement", story.ref, said, (run.taken, run.again))
        first = _ended_before(run)
        if first is None or first.taken is None or run.taken is None:
            continue
        if not history.failed_between(MEDIUM, first.at, max(first.settled, run.settled)):
            said = (
                f"revision {run.start.revision} was ended by token {first.start.token} and by "
                f"token {run.start.token}"
            )
            yield Violation("double settlement", story.ref, said, (first.taken, run.taken))


def _ended_before(run: Run) -> Run | None:
    """Return the attempt that had ended the revision before *run* ended it, if one had."""
    first = run.before
    if first is None or not _is_end(run):
        return None
    while first is not None and not _is_end(first):
        first = first.before
    return first


def _is_end(run: Run) -> bool:
    """Say whether the store took an outcome after which the revision is over."""
    taken = run.taken
    return taken is not None and (taken.outcome in FINAL or taken.answer == "superseded")


def unstarted_settled_twice(history: History) -> Iterator[Violation]:
    """Find outcomes of leases that never began and that the store took twice."""
    for token, settled in history.unstarted.items():
        if len(settled) > 1:
            said = f"the store took the outcome of token {token} twice"
            yield Violation("double settlement", "", said, tuple(settled))


def token_reused(history: History) -> Iterator[Violation]:
    """Find tokens that two attempts began with."""
    for first, second in history.reused:
        said = f"token {first.start.token} began twice"
        yield Violation("token reused", second.start.ref, said, (first.start, second.start))
