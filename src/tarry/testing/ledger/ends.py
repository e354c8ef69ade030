"""Ends: what was accepted comes to an end, and every dead letter has its cause."""

from collections.abc import Container, Iterator

from tarry.testing.ledger.entries import Left, Violation
from tarry.testing.ledger.history import (
    CLOCK,
    MEDIUM,
    NEVER,
    NOT_KNOWN,
    History,
    Op,
    Run,
    Story,
)

_EXCUSING = frozenset({"", "cancelled", "running", "accepted"})
_FAILING = frozenset({"dead", "retry"})
_WELL = frozenset({"done", "skip"})


def lost(story: Story, history: History) -> Iterator[Violation]:
    """Find answers that promise an attempt which never came to an end, and dropped letters."""
    if story.declared:
        yield from _ended_series(story)
    newest = 0
    for run in story.letters:
        if _is_dropped(story, history, run):
            newest = max(newest, run.start.revision)
            yield _dropped(story, run)
    for op, least in _owed(story):
        if newest >= least or _has_ended(story, least):
            continue
        if not _is_excused(story, history, op):
            said = (
                f"{op.entry.verb} was answered {op.status!r} with revision {op.revision}, but no "
                f"attempt of revision {least} or a newer one came to an end, none is a dead "
                "letter, and no cancel excuses it"
            )
            yield Violation("lost", story.ref, said, op.span())


def _ended_series(story: Story) -> Iterator[Violation]:
    """Find a series that was placed by its declaration and does not wait for its next occurrence.

    Nothing ends it: a cancel skips one occurrence, and a schedule takes its rule over.
    """
    placed = [op for op in story.known.values() if op.entry.declared]
    if placed and not any(left.declared and left.state != "dead" for left in story.left):
        said = "the series that its handler declares was placed, and nothing waits to go on with it"
        yield Violation("lost", story.ref, said, placed[0].span())


def _is_dropped(story: Story, history: History, run: Run) -> bool:
    """Say whether the store holds no dead letter of *run*, though it took one."""
    revision = run.start.revision
    kept = any(left.state == "dead" and left.revision == revision for left in story.left)
    forgotten = history.failed_between(MEDIUM, run.finished, NEVER)
    return not (kept or forgotten or _may_be_gone(story, run))


def _dropped(story: Story, run: Run) -> Violation:
    start, taken = run.start, run.taken
    assert taken is not None
    said = (
        f"the store took token {start.token} of revision {start.revision} as a dead letter, but "
        "does not hold it, and nobody revived or purged it"
    )
    return Violation("lost", story.ref, said, (start, taken))


def _may_be_gone(story: Story, run: Run) -> bool:
    """Say whether the dead letter that *run* ended as may have been revived or purged."""
    return any(op.may_have_revived(run.finished) for op in story.ops) or any(
        purge.answered > run.finished and purge.status != "absent" for purge in story.purges
    )


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
        if run.start.revision < least:
            continue
        if run.outcome in _WELL or (run.outcome == "dead" and _may_be_gone(story, run)):
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
    broken = (MEDIUM, CLOCK, *history.claimers)
    claimed = (
        any(run.start.revision < op.revision for run in story.runs)
        or history.unstarted
        or any(history.failed_between(by, NOT_KNOWN, NEVER) for by in broken)
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
    runs = _lineage(story, left.revision)
    if left.reason.startswith("expired"):
        # Or these are the words of its handler.
        if any(run.outcome == "dead" for run in runs):
            return ""
        allowed = story.drop_after()
        late = left.ended - left.due
        stepped = history.failed_between(CLOCK, NOT_KNOWN, NEVER)
        if allowed and left.ended and late < allowed and not stepped:
            return f"it was only {late} ms late, and {allowed} are allowed"
        return "" if allowed else "it cannot expire"
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
    return (
        history.failed_between(run.start.by, run.at, run.settled)
        or history.failed_between(CLOCK, run.claimed, run.settled)
        or history.failed_between(MEDIUM, run.at, NEVER)
    )
