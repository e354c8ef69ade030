"""Ends: what was accepted comes to an end, and every dead letter has its cause."""

from collections.abc import Container, Iterator

from tarry.testing.ledger.entries import Left, Violation
from tarry.testing.ledger.history import FINAL, MEDIUM, NEVER, NOT_KNOWN, History, Op, Run, Story

_EXCUSING = frozenset({"", "cancelled", "running", "accepted"})
_FAILING = frozenset({"dead", "retry"})


def lost(story: Story, history: History) -> Iterator[Violation]:
    """Find answers that promise an attempt which never came to an end."""
    for op, least in _owed(story):
        if not (_has_ended(story, least) or _is_excused(story, history, op)):
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


def _is_excused(story: Story, history: History, op: Op) -> bool:
    """Say whether a cancel or a purge may have taken effect after *op*."""
    for cancel in story.cancels:
        if cancel.answered > op.asked and cancel.status in _EXCUSING:
            return cancel is not _room_maker(story, history, op)
    return any(purge.answered > op.asked and purge.status != "absent" for purge in story.purges)


def _room_maker(story: Story, history: History, op: Op) -> Op | None:
    """Return the one cancel without which *op* could not have been answered `created`.

    What waited before was not claimed: then it would have begun, or been let go, or its worker
    failed. So the cancel took it away, and took effect before *op*, not after it.
    """
    if op.status != "created" or len(story.cancels) != 1 or story.loose() or story.left:
        return None
    older = max((revision for revision in story.known if revision < op.revision), default=0)
    if (
        not older
        or story.known[older].answered > op.asked
        or story.cancels[0].status != "cancelled"
    ):
        return None
    claimed = (
        any(run.start.revision < op.revision for run in story.runs)
        or history.unstarted
        or any(history.failed_between(by, NOT_KNOWN, NEVER) for by in (MEDIUM, *history.claimers))
    )
    return None if claimed or story.series or story.purges else story.cancels[0]


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
