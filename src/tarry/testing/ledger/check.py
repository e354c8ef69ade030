"""Check: judge a history by all the rules (pure).

A rule speaks only when no legal order of the history explains it: what may have happened counts as
having happened wherever that excuses something.
"""

from collections.abc import Iterator, Sequence

from tarry.testing.ledger.ends import dead_without_cause, lost
from tarry.testing.ledger.entries import Entry, Violation
from tarry.testing.ledger.history import History
from tarry.testing.ledger.leave import after_cancel, after_expiry, early, stale_revision, unasked
from tarry.testing.ledger.once import (
    double_settlement,
    double_start,
    token_reused,
    unstarted_settled_twice,
)
from tarry.testing.ledger.payload import stale_payload
from tarry.testing.ledger.truth import false_answer

RULES = (
    "lost",
    "early",
    "after cancel",
    "after expiry",
    "double start",
    "double settlement",
    "stale revision",
    "token reused",
    "dead without cause",
    "undrained",
    "unasked",
    "false answer",
)


def check(entries: Sequence[Entry]) -> list[Violation]:
    """Return every promise that the history breaks, an empty list if it keeps them all."""
    history = History(entries)
    found = [*_undrained(history), *token_reused(history), *unstarted_settled_twice(history)]
    for story in history.stories.values():
        if history.drained:
            found += lost(story, history)
        found += false_answer(story, history)
        if story.runs:
            found += early(story, history)
            found += after_expiry(story, history)
            found += double_start(story, history)
            found += double_settlement(story, history)
            found += stale_revision(story, history)
            found += stale_payload(story)
        if story.runs or story.left:
            forbidden = after_cancel(story, history)
            invented = unasked(story, forbidden)
            found += forbidden.values()
            found += invented.values()
            found += dead_without_cause(story, history, invented)
    return found


def _undrained(history: History) -> Iterator[Violation]:
    if not history.drained:
        yield Violation("undrained", "", "the history was not drained to its end")
    for entry in history.after_drain:
        said = f"there is an entry after the drain: {type(entry).__name__}"
        yield Violation("undrained", getattr(entry, "ref", ""), said, (entry,))
    for story in history.stories.values():
        for left in story.left:
            if left.state != "dead" and not (left.declared and left.state == "scheduled"):
                said = f"revision {left.revision} is still {left.state} after the drain"
                yield Violation("undrained", story.ref, said, (left,))
