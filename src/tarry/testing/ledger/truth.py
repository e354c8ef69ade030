"""Truth: no answer that the rest of the history contradicts."""

from collections.abc import Iterator

from tarry.testing.ledger.entries import Violation
from tarry.testing.ledger.history import ACCEPTED, MEDIUM, NEVER, History, Op, Run, Story

_NOTHING_RUNS = {"cancel": {"cancelled", "absent"}, "move": {"absent"}, "revive": {"revived"}}
"""Answers that are given only while no attempt of the ref is under way."""


def false_answer(story: Story, history: History) -> Iterator[Violation]:
    """Find answers that something else in the history contradicts."""
    yield from _nothing_there(story, history)
    yield from _of_revisions(story)
    yield from _of_waits(story)
    if story.purges:
        yield from _of_letters(story, history)


# ---- nothing runs, nothing waits


def _nothing_there(story: Story, history: History) -> Iterator[Violation]:
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


# ---- if_revision


def _of_revisions(story: Story) -> Iterator[Violation]:
    """Find answers to what was asked of one revision that it cannot have got."""
    for op in (*story.ops, *story.cancels):
        wanted = op.entry.if_revision
        if not wanted:
            continue
        newer = story.newest_before(op.asked)
        verb = op.entry.verb
        acted = op.status in (_ENDED if verb == "cancel" else ACCEPTED)
        if acted and newer > wanted and not _took_away(story, op):
            said = (
                f"{verb} of revision {wanted} was answered {op.status!r} though revision {newer} "
                "had been accepted"
            )
        elif op.status == "conflict" and (op.revision == wanted or _waits(story, op, wanted)):
            said = f"{verb} of revision {wanted} was answered 'conflict' though that one waited"
        else:
            continue
        yield Violation("false answer", story.ref, said, op.span())


def _took_away(story: Story, op: Op) -> bool:
    """Say whether a cancel before *op* may have left nothing but the attempt that runs."""
    return any(
        one is not op and one.asked < op.answered and one.status not in {"absent", "conflict"}
        for one in story.cancels
    )


_ENDED = frozenset({"cancelled", "running"})
"""Answers to a cancel that found the revision it was asked about."""


def _waits(story: Story, op: Op, revision: int) -> bool:
    """Say whether *revision* certainly waited or ran while *op* was under way."""
    made = story.known.get(revision)
    if made is None or made.answered > op.asked or story.series or op.entry.verb == "schedule":
        # What is claimed does not wait, which is all that a schedule asks about.
        return False
    others = (*story.ops, *story.cancels)
    return not (
        any(run.at < op.answered and run.start.revision >= revision for run in story.runs)
        or any(left.revision == revision for left in story.left)
        or any(
            one.asked < op.answered and one.answered > made.asked
            for one in others
            if one is not op and one is not made
        )
    )


# ---- max_wait


def _of_waits(story: Story) -> Iterator[Violation]:
    """Find schedules that put off what waited beyond its limit, or did not put it off at all."""
    for op in story.known.values():
        if not op.entry.max_wait_ms or op.status != "replaced":
            continue
        span = _may_be_due(story, op)
        if span is not None and op.answer is not None and op.answer.due not in span:
            said = (
                f"{op.entry.verb} put off revision {op.revision} to {op.answer.due}, not to "
                f"between {span[0]} and {span[-1]}"
            )
            yield Violation("false answer", story.ref, said, op.span())


def _may_be_due(story: Story, op: Op) -> range | None:
    """Return when *op*, which put off what waited, may be due; None: that is not known."""
    older = [story.known[revision] for revision in sorted(story.known) if revision < op.revision]
    if story.series or story.loose() or not older:
        return None
    last = older[-1]
    if last.answer is None or any(
        run.start.revision == last.revision and run.at < op.answered for run in story.runs
    ):
        # A retry has a due of its own.
        return None
    for one in reversed(older):
        if one.entry.verb == "schedule" and (one.status == "created" or one.entry.anew):
            assert one.answer is not None
            limit = one.answer.due - one.entry.delay_ms + op.entry.max_wait_ms
            return range(last.answer.due, max(last.answer.due, limit) + 1)
    return None


# ---- dead letters


def _of_letters(story: Story, history: History) -> Iterator[Violation]:
    """Find purges that found nothing where a dead letter was, or more than there were."""
    for purge in story.purges:
        run = _letter_of(story, history, purge) if purge.status == "absent" else None
        if run is not None:
            said = f"purge was answered 'absent' though revision {run.start.revision} was dead"
            yield Violation("false answer", story.ref, said, (run.start, *purge.span()))
    taken = [
        op
        for op in (*story.purges, *story.ops)
        if op.status == "purged" or (op.entry.verb == "revive" and op.status == "revived")
    ]
    dead = {run.start.revision for run in story.runs if run.outcome == "dead"}
    left = {left.revision for left in story.left if left.state == "dead"}
    if taken and not history.refused and len(taken) + len(left) > len(dead | left):
        said = (
            f"{len(dead | left)} revisions died and {len(left)} of them are left, but "
            f"{len(taken)} were said to be purged or revived"
        )
        yield Violation("false answer", story.ref, said, taken[-1].span())


def _letter_of(story: Story, history: History, purge: Op) -> Run | None:
    """Return an attempt whose dead letter was certainly there while *purge* was under way."""
    for run in story.letters:
        if run.settled > purge.asked or history.failed_between(MEDIUM, run.finished, NEVER):
            continue
        takers = (*(op for op in story.ops if op.entry.verb == "revive"), *story.purges)
        if not any(
            one.answered > run.finished and one.asked < purge.answered and one.status != "absent"
            for one in takers
            if one is not purge
        ):
            return run
    return None
