"""Leave: what begins was asked for, is due, was not cancelled, and is the last revision."""

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise

from tarry.testing.ledger.entries import Entry, Violation
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


def early(story: Story, history: History) -> Iterator[Violation]:
    """Find attempts that began before their due."""
    for run in story.runs:
        start = run.start
        before = run.before
        due = _asked_due(story, history, run) if before is None else _wished(history, before, run)
        due = max(due, start.due)
        if start.now < due:
            said = (
                f"token {start.token} of revision {start.revision} began at {start.now}, "
                f"{due - start.now} ms before its due {due}"
            )
            yield Violation("early", story.ref, said, (start,))


def _asked_due(story: Story, history: History, run: Run) -> int:
    """Return the due that the first attempt of a revision was asked and acknowledged to have."""
    op = story.known.get(run.start.revision)
    if op is None or op.answer is None or op.asked > run.at:
        return 0
    # A delay counts from when the store accepts it: by a clock that stepped it may end earlier.
    stepped = history.failed_between(CLOCK, op.asked, op.answered)
    return op.answer.due if stepped else max(op.answer.due, op.entry.earliest)


def _wished(history: History, first: Run, second: Run) -> int:
    """Return the due that a retry or snooze was to have, 0 if it may not have come to that."""
    finish, taken = first.finish, first.taken
    if finish is None or not finish.earliest or taken is None or taken.answer != "settled":
        return 0
    forgotten = history.failed_between(MEDIUM, first.finished, second.at)
    stepped = history.failed_between(CLOCK, first.finished, first.settled)
    return 0 if forgotten or stepped else finish.earliest


# ---- expired

_WAY_MS = 100
"""A worker may take the store's time for so much earlier than it is: the way of an answer."""


def after_expiry(story: Story, history: History) -> Iterator[Violation]:
    """Find attempts that began although they were too late to be made at all."""
    allowed = story.drop_after()
    if not allowed:
        return
    for run in story.runs:
        start = run.start
        late = start.now - start.due
        # Who got an answer late thinks that it is earlier.
        excused = any(history.failed_between(by, NOT_KNOWN, run.at) for by in (start.by, CLOCK))
        if late > allowed + _WAY_MS and not excused:
            said = (
                f"token {start.token} of revision {start.revision} began {late} ms late, and "
                f"what is {allowed} ms late is to be dropped"
            )
            yield Violation("after expiry", story.ref, said, (start,))


# ---- cancelled


def after_cancel(story: Story, history: History) -> dict[int, Violation]:
    """Find attempts that a cancel forbids, by the places where they began."""
    if not story.cancels or not story.runs:
        return {}
    gone = _Cancels(story, "cancelled")
    marked = _Cancels(story, "running")
    found = {}
    previous = None
    for run in story.runs:
        cancel = (
            _unless_new(story, run, gone.before(run.at))
            or _unless_new(story, run, marked.before(run.claimed))
            or _unless_first(story, history, previous, run, marked.before(run.at))
        )
        if cancel is not None:
            start = run.start
            said = (
                f"token {start.token} of revision {start.revision} began after a cancel had been "
                f"answered {cancel.status!r}, and nothing new explains it"
            )
            found[run.at] = Violation("after cancel", story.ref, said, (*cancel.span(), start))
        previous = run
    return found


class _Cancels:
    """Cancels with one answer, by its place; of those before a place the last asked binds most."""

    def __init__(self, story: Story, status: str) -> None:
        self._places: list[int] = []
        self._binding: list[Op] = []
        chosen = [op for op in story.cancels if op.status == status]
        for op in sorted(chosen, key=lambda op: op.answered):
            last = self._binding[-1] if self._binding else op
            self._places.append(op.answered)
            self._binding.append(op if op.asked > last.asked else last)

    def before(self, place: int) -> Op | None:
        """Return the most binding of the cancels that were answered before *place*."""
        index = bisect_left(self._places, place)
        return self._binding[index - 1] if index else None


def _unless_new(story: Story, run: Run, cancel: Op | None) -> Op | None:
    """Return *cancel* if it forbids *run*: what ran cannot have been accepted after it.

    A cancel leaves nothing to move or replace: something must have been made anew since.
    """
    if cancel is None:
        return None
    revision = run.start.revision
    floor = story.newest_before(cancel.asked)
    if revision <= floor:
        return cancel
    if story.declared:
        # It skips one occurrence: the next ones come of themselves.
        return None
    since = [
        op
        for op in story.ops
        if op.answered > cancel.asked and op.asked < run.at and op.may_have_acted()
    ]
    fits = any(_fits(op, revision) for op in since)
    anew = any(_makes_anew(op, floor, revision) for op in since)
    return None if fits and (anew or story.series) else cancel


def _fits(op: Op, revision: int) -> bool:
    return op.revision in {0, revision} or (op.entry.series and op.revision < revision)


def _makes_anew(op: Op, floor: int, revision: int) -> bool:
    if op.entry.verb == "move" or op.status == "replaced":
        return False
    return not op.revision or floor < op.revision <= revision


def _unless_first(
    story: Story, history: History, previous: Run | None, run: Run, cancel: Op | None
) -> Op | None:
    """Return *cancel*, answered `running`, if *run* is not the one attempt it had to let be."""
    if cancel is None or previous is None or previous.start.token == run.start.token:
        return None
    if previous.finished < cancel.answered:
        return None
    if not (_unless_new(story, run, cancel) and _unless_new(story, previous, cancel)):
        return None
    if previous.at < cancel.answered and history.cut_off(previous, run.at):
        # The lease it had may have ended, and a second one been granted, before the cancel.
        return None
    return cancel


# ---- replaced


def stale_revision(story: Story, history: History) -> Iterator[Violation]:
    """Find attempts of a revision whose place another had taken."""
    replaced = _replaced(story)
    taken = _taken_away(story)
    ran = 0
    for run in story.runs:
        revision = run.start.revision
        newer = story.newest_before(run.claimed)
        forgotten = history.failed_between(MEDIUM, NOT_KNOWN, run.at)
        stepped = history.failed_between(CLOCK, run.claimed, run.at)
        if not (forgotten or stepped):
            # A crash may undo what had begun: the occurrence that a forgotten settlement placed.
            # A step of the clock may end a lease just before its attempt begins.
            newer = max(newer, ran)
        by = replaced.get(revision) or (None if stepped else taken.get(revision))
        if by is not None and by.answered < run.at:
            said = f"revision {revision} began after {by.revision} had {by.status} it"
            yield Violation("stale revision", story.ref, said, (*by.span(), run.start))
        elif newer > revision:
            said = f"revision {revision} was claimed and began though {newer} had been accepted"
            yield Violation("stale revision", story.ref, said, (run.start,))
        ran = max(ran, revision)


def _replaced(story: Story) -> dict[int, Op]:
    """Return the revisions that certainly waited when another took their place, and by what."""
    if story.series or len(story.known) == 1:
        return {}
    doubt = min((op.asked for op in story.loose()), default=NEVER)
    found = {}
    for older, newer in pairwise(sorted(story.known)):
        op = story.known[newer]
        if op.status in {"replaced", "moved"} and op.answered < doubt:
            found[older] = op
    return found


def _taken_away(story: Story) -> dict[int, Op]:
    """Return the revisions that waited when an operation that named them took their place."""
    return {
        op.entry.if_revision: op
        for op in story.known.values()
        if op.entry.if_revision and op.status in {"replaced", "moved"}
    }


# ---- unasked


def unasked(story: Story, forbidden: Container[int]) -> dict[int, Violation]:
    """Find revisions that no operation can have made, leaving out the starts in *forbidden*.

    An operation whose revision is not known explains one revision, and no more.
    """
    loose: Sequence[Op] | None = None
    explained: set[int] = set()
    found: dict[int, Violation] = {}
    for revision, place, entry in _seen(story, forbidden):
        op = story.known.get(revision)
        if op is not None and op.asked < place:
            continue
        if revision in explained or _may_be_a_successor(story, revision, place):
            continue
        if op is None:
            loose = story.loose() if loose is None else loose
            if len(explained) < sum(op.asked < place for op in loose):
                explained.add(revision)
                continue
        said = f"revision {revision} began or is a dead letter, and nobody had asked for it"
        found.setdefault(revision, Violation("unasked", story.ref, said, (entry,)))
    return found


def _seen(story: Story, forbidden: Container[int]) -> Iterator[tuple[int, int, Entry]]:
    """Tell each revision that was seen, where, and in which entry."""
    for run in story.runs:
        if run.before is None and run.at not in forbidden:
            yield run.start.revision, run.at, run.start
    for left in story.left:
        if left.state == "dead":
            yield left.revision, NEVER, left


def _may_be_a_successor(story: Story, revision: int, place: int) -> bool:
    return story.series and any(
        op.entry.series and op.may_have_acted() and op.revision < revision and op.asked < place
        for op in story.ops
    )
