"""Payload: a handler is given what the schedule that made its revision carried."""

from collections.abc import Iterator

from tarry.testing.ledger.entries import Violation
from tarry.testing.ledger.history import NOT_KNOWN, Op, Run, Story

_SETTING = frozenset({"created", "replaced"})
"""Answers to schedules: their payload is the one that waits from then on."""


def stale_payload(story: Story) -> Iterator[Violation]:
    """Find attempts that were given the payload of another schedule than their own."""
    for run in story.runs:
        start = run.start
        made = story.known.get(start.revision)
        if not start.op or (made is not None and made.entry.op == start.op):
            continue
        if not _may_have_come_down(story, run, made):
            said = (
                f"token {start.token} of revision {start.revision} was given the payload of "
                f"operation {start.op}, which is not the one that revision was to have"
            )
            yield Violation("stale revision", story.ref, said, (start,))


def _may_have_come_down(story: Story, run: Run, made: Op | None) -> bool:
    """Say whether the revision of *run*, made by *made* if that is known, may have its payload.

    A move and the next occurrence of a series keep the payload of the last schedule before them;
    of a declared series not of one that was cancelled behind the attempt whose end places it.
    """
    if made is not None and made.status in _SETTING and made.asked < run.at:
        return False
    source = next((op for op in story.ops if op.entry.op == run.start.op), None)
    if source is None or not source.may_have_acted():
        return False
    if not source.revision:
        return True
    if source.revision > run.start.revision:
        return False
    return source.revision >= _last_set_before(story, run) or _is_revived(story, run)


def _last_set_before(story: Story, run: Run) -> int:
    revision = run.start.revision
    set_before = (
        r
        for r, op in story.known.items()
        if r < revision and op.status in _SETTING and not _may_be_gone(story, op, run)
    )
    return max(set_before, default=0)


def _may_be_gone(story: Story, scheduled: Op, run: Run) -> bool:
    """Say whether what was *scheduled* behind an attempt may have been cancelled with it."""
    return story.declared and any(
        cancel.answered > scheduled.asked
        and cancel.asked < run.at
        and cancel.status in {"", "running"}
        for cancel in story.cancels
    )


def _is_revived(story: Story, run: Run) -> bool:
    """Say whether it may be an old dead letter, with the payload it had."""
    return any(op.may_have_revived(NOT_KNOWN) and op.asked < run.at for op in story.ops)
