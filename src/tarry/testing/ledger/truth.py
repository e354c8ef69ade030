"""Truth: no answer that the rest of the history contradicts."""

from collections.abc import Iterator

from tarry.testing.ledger.entries import Violation
from tarry.testing.ledger.history import History, Op, Run, Story

_NOTHING_RUNS = {"cancel": {"cancelled", "absent"}, "move": {"absent"}, "revive": {"revived"}}
"""Answers that are given only while no attempt of the ref is under way."""


def false_answer(story: Story, history: History) -> Iterator[Violation]:
    """Find answers that say nothing runs or waits although something certainly did."""
    for op in (*story.ops, *story.cancels):
        verb = op.entry.verb
        if op.status not in _NOTHING_RUNS.get(verb, ()):
            continue
        if story.declared and op.status == "cancelled":
            # An occurrence was skipped; the one before it may still run.
            continue
        run = _in_flight(story, history, op)
        if run is not None:
            said = (
                f"{verb} was answered {op.status!r} while token {run.start.token} was running "
                f"revision {run.start.revision}"
            )
            yield Violation("false answer", story.ref, said, (run.start, *op.span()))
        elif op.status == "absent" and verb != "revive":
            waiting = _certainly_there(story, op)
            if waiting is not None:
                said = f"{verb} was answered 'absent' though revision {waiting.revision} was there"
                yield Violation("false answer", story.ref, said, (*waiting.span(), *op.span()))


def _in_flight(story: Story, history: History, op: Op) -> Run | None:
    """Return an attempt that had begun before *op* was asked and ended after its answer."""
    for run in story.runs:
        around = run.at < op.asked and run.finished > op.answered
        if around and not history.cut_off(run, op.answered):
            return run
    return None


def _certainly_there(story: Story, op: Op) -> Op | None:
    """Return the operation whose task *op* should have found: accepted, and untouched since."""
    before = [known for known in story.known.values() if known.answered < op.asked]
    if not before:
        return None
    newest = max(before, key=lambda known: known.revision)
    touched = (
        any(run.at < op.answered and run.start.revision >= newest.revision for run in story.runs)
        or any(
            cancel is not op and cancel.answered > newest.asked and cancel.asked < op.answered
            for cancel in story.cancels
        )
        or any(left.revision >= newest.revision for left in story.left)
        or any(other.entry.verb == "revive" for other in story.ops)
        or story.purges
    )
    return None if touched else newest
