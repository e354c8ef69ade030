"""Ends: what was accepted comes to an end, and every dead letter has its cause."""

from collections.abc import Container, Iterator

from tarry.testing.ledger.entries import Left, Violation
from tarry.testing.ledger.history import FINAL, MEDIUM, NEVER, History, Op, Run, Story

_EXCUSING = frozenset({"", "cancelled", "running", "accepted"})
_FAILING = frozenset({"dead", "retry"})


def lost(story: Story) -> Iterator[Violation]:
    """Find answers that promise an attempt which never came to an end."""
    for op, least in _owed(story):
        if not (_has_ended(story, least) or _is_excused(story, op)):
            said = (
                f"{op.entry.verb} was answered {op.status!r} with revision {op.revision}, but no "
                f"attempt of revision {least} or a newer one came to an end, none is a dead "
                "letter, and no cancel excuses it"
            )
            yield Violation("lost", story.ref, said, op.span())


def _owed(story: Story) -> Iterator[tuple[Op, int]]:
    """Tell which answers promise an attempt, and of which revision at least."""
    last = max(story.known, default=0)
    if last:
        yield story.known[last], last
    for op in story.shown:
        if op.revision >= last:
            yield op, op.revision
    for op in story.loose():
        if op.status:
            # Newer than whatever there was when it was asked.
            yield op, story.newest_before(op.asked) + 1


def _has_ended(story: Story, least: int) -> bool:
    for run in story.runs:
        if run.start.revision >= least and run.outcome in FINAL:
            return True
    # What is still there is not lost; whether it may be there is for other rules to say.
    return any(left.revision >= least for left in story.left)


def _is_excused(story: Story, op: Op) -> bool:
    """Say whether a cancel or a purge may have taken effect after *op*."""
    for cancel in story.cancels:
        if cancel.answered > op.asked and cancel.status in _EXCUSING:
            if cancel.status and cancel is _used_up(story, op):
                continue
            return True
    return any(purge.answered > op.asked and purge.status != "absent" for purge in story.purges)


def _used_up(story: Story, op: Op) -> Op | None:
    """Return the one cancel without which *op* could not have been answered `created`.

    It made room for *op*: it took effect before it, and so not after it.
    """
    if op.status != "created" or story.loose() or story.purges or story.left:
        return None
    older = [known for revision, known in story.known.items() if revision < op.revision]
    if not older:
        return None
    there = max(older, key=lambda known: known.revision)
    if there.answered > op.asked or any(run.at < op.answered for run in story.runs):
        return None
    makers_of_room = [
        cancel
        for cancel in story.cancels
        if cancel.answered > there.asked and cancel.asked < op.answered
    ]
    return makers_of_room[0] if len(makers_of_room) == 1 else None


def dead_without_cause(
    story: Story, history: History, unasked: Container[int]
) -> Iterator[Violation]:
    """Find dead letters whose reason did not happen."""
    for left in story.left:
        if left.state == "dead" and left.revision not in unasked:
            lacking = _lacking(story, history, left)
            if lacking:
                said = f"revision {left.revision} is dead ({left.reason!r}), but {lacking}"
                yield Violation("dead without cause", story.ref, said, (left,))


def _lacking(story: Story, history: History, left: Left) -> str:
    """Return what the reason of a dead letter claims and the history does not show."""
    if left.reason.startswith("expired"):
        return ""
    runs = _lineage(story, left.revision)
    if not left.reason.startswith("lost too often"):
        failed = any(run.outcome in _FAILING for run in runs)
        return "" if failed else "none of its attempts failed"
    if not any(_was_cut_off(history, run) for run in runs):
        return "none of its attempts was cut off"
    if history.failures < left.lost:
        return f"it counts {left.lost} lost leases where only {history.failures} things failed"
    return ""


def _lineage(story: Story, revision: int) -> list[Run]:
    """Return the attempts that a revision counts as its own: a move keeps the older ones."""
    op = story.known.get(revision)
    moved = op is None or op.status == "moved"
    return [
        run
        for run in story.runs
        if run.start.revision == revision or (moved and run.start.revision < revision)
    ]


def _was_cut_off(history: History, run: Run) -> bool:
    """Say whether something failed before the outcome of *run* was safe in the store."""
    by_its_process = history.failed_between(run.start.by, run.at, run.settled)
    return by_its_process or history.failed_between(MEDIUM, run.at, NEVER)
