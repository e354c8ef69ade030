"""History: the entries of a ledger sorted out, ref by ref, in one pass.

A *place* is an entry's index in the ledger: the only time the checker knows.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tarry.testing.ledger.entries import (
    Answered,
    Asked,
    Drained,
    Entry,
    Failed,
    Finished,
    Left,
    Settled,
    Started,
)

NEVER = sys.maxsize
"""The place of what did not happen: after everything."""
NOT_KNOWN = -1
"""The place of what is not known: before everything."""
ACCEPTING = frozenset({"schedule", "move", "revive"})
ACCEPTED = frozenset({"created", "replaced", "moved", "revived"})
_SHOWING = frozenset({"kept", "unchanged", "conflict"})
"""Answers that change nothing, but say which revision waits."""
TAKEN = frozenset({"settled", "superseded"})
FINAL = frozenset({"done", "skip", "dead"})
MEDIUM = ""
"""Who failed when it was the medium itself."""
CLOCK = "clock"
"""Who failed when the store's clock stepped."""


class Op(msgspec.Struct, gc=False):
    """An operation, with the places of its question and its answer."""

    entry: Asked
    asked: int
    answer: Answered | None = None
    answered: int = NEVER
    status: str = ""
    """Empty while the answer is not known."""
    revision: int = 0

    def may_have_acted(self) -> bool:
        """Say whether an accepting operation was accepted, or nobody knows."""
        return not self.status or self.status in ACCEPTED

    def may_have_revived(self, since: int) -> bool:
        """Say whether it may have taken up a dead letter after *since*."""
        return self.entry.verb == "revive" and self.answered > since and self.may_have_acted()

    def span(self) -> tuple[Entry, ...]:
        """Return its entries."""
        return (self.entry,) if self.answer is None else (self.entry, self.answer)


class Run(msgspec.Struct, gc=False):
    """An attempt that began: where, after which others, and what became of it."""

    start: Started
    at: int
    claimed: int
    """Where its claim was asked."""
    before: "Run | None"
    """The attempt of the same revision that began before it."""
    finish: Finished | None = None
    finished: int = NEVER
    taken: Settled | None = None
    """The store's word that it took the outcome."""
    settled: int = NEVER
    again: Settled | None = None
    """A second such word."""

    @property
    def outcome(self) -> str:
        """What the worker decided; empty if it did not come to that."""
        return self.finish.outcome if self.finish else ""


class Story:
    """All that the ledger says of one ref."""

    __slots__ = (
        "cancels",
        "declared",
        "known",
        "last",
        "left",
        "letters",
        "newest",
        "ops",
        "places",
        "purges",
        "ref",
        "runs",
        "series",
        "shown",
    )

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.ops: list[Op] = []
        self.cancels: list[Op] = []
        self.purges: list[Op] = []
        self.runs: list[Run] = []
        self.left: list[Left] = []
        self.letters: list[Run] = []
        """The attempts that the store took as dead letters."""
        self.known: dict[int, Op] = {}
        """The accepted operations whose revision is known."""
        self.shown: list[Op] = []
        """Operations that changed nothing, but were told which revision waits."""
        self.series = False
        self.declared = False
        self.last: dict[int, Run] = {}
        self.places: list[int] = []
        self.newest: list[int] = []

    def drop_after(self) -> int:
        """Return how late it may be attempted, 0: however late."""
        return max((op.entry.drop_after_ms for op in self.ops), default=0)

    def saw(self, revision: int, place: int) -> None:
        """Note that *revision* had been accepted by *place*."""
        if not self.newest or revision > self.newest[-1]:
            self.places.append(place)
            self.newest.append(revision)

    def forget_runs(self) -> None:
        """Count only what callers were told: a crash may undo what merely began."""
        told = sorted((op for op in self.ops if op.revision), key=lambda op: op.answered)
        self.places, self.newest = [], []
        for op in told:
            self.saw(op.revision, op.answered)

    def newest_before(self, place: int) -> int:
        """Return the newest revision that had certainly been accepted before *place*, or 0."""
        index = bisect_left(self.places, place)
        return self.newest[index - 1] if index else 0

    def loose(self) -> list[Op]:
        """Return the operations that may have made a revision nobody was told."""
        if len(self.known) == len(self.ops):
            return []
        return [op for op in self.ops if op.may_have_acted() and not op.revision]


class History:
    """A ledger sorted out."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.stories: dict[str, Story] = {}
        self.runs: dict[int, Run] = {}
        """The last attempt that began with each token."""
        self.reused: list[tuple[Run, Run]] = []
        self.unstarted: dict[int, list[Settled]] = {}
        """The leases that were let go before they began, and what the store took of them."""
        self.refused = False
        """Whether a lease that never began was to become a dead letter."""
        self.failures = 0
        self.claimers: set[str] = set()
        self._failed: dict[str, list[int]] = {}
        self._ops: dict[int, Op] = {}
        self.drained = False
        self.after_drain: list[Entry] = []
        self._sort_out(entries)

    def _sort_out(self, entries: Iterable[Entry]) -> None:
        notes: dict[type, Callable[[Any, int], None]] = {
            Asked: self._asked,
            Answered: self._answered,
            Started: self._started,
            Finished: self._finished,
            Settled: self._settled,
            Failed: self._broke,
            Drained: self._emptied,
            Left: self._left,
        }
        for place, entry in enumerate(entries):
            if self.drained and type(entry) is not Left:
                self.after_drain.append(entry)
            notes[type(entry)](entry, place)

    def story(self, ref: str) -> Story:
        """Return the story of *ref*, a new one if nothing was said of it yet."""
        story = self.stories.get(ref)
        if story is None:
            story = self.stories[ref] = Story(ref)
        return story

    def failed_between(self, by: str, since: int, until: int) -> bool:
        """Say whether *by* failed after *since* and before *until*."""
        places = self._failed.get(by)
        if not places:
            return False
        index = bisect_right(places, since)
        return index < len(places) and places[index] < until

    def cut_off(self, run: Run, until: int) -> bool:
        """Say whether *run* may have lost its lease before *until*."""
        since = run.claimed
        return (
            self.failed_between(run.start.by, since, until)
            or self.failed_between(MEDIUM, since, until)
            or self.failed_between(CLOCK, since, until)
        )

    def _asked(self, entry: Asked, place: int) -> None:
        op = self._ops[entry.op] = Op(entry, place)
        verb = entry.verb
        if verb == "claim":
            self.claimers.add(entry.by)
            return
        story = self.story(entry.ref)
        if verb in ACCEPTING:
            story.ops.append(op)
            story.series |= entry.series
            story.declared |= entry.declared
        elif verb == "cancel":
            story.cancels.append(op)
        elif verb == "purge":
            story.purges.append(op)

    def _answered(self, entry: Answered, place: int) -> None:
        op = self._ops[entry.op]
        op.answer, op.answered, op.status = entry, place, entry.status
        revision = entry.revision
        if not revision or op.entry.verb not in ACCEPTING:
            return
        story = self.stories[op.entry.ref]
        if entry.status in ACCEPTED:
            story.known[revision] = op
        elif entry.status in _SHOWING:
            story.shown.append(op)
        else:
            return
        op.revision = revision
        story.saw(revision, place)

    def _started(self, entry: Started, place: int) -> None:
        story = self.story(entry.ref)
        claim = self._ops.get(entry.claim)
        claimed = claim.asked if claim else NOT_KNOWN
        run = Run(entry, place, claimed, story.last.get(entry.revision))
        story.runs.append(run)
        story.last[entry.revision] = run
        if MEDIUM not in self._failed:
            story.saw(entry.revision, place)
        first = self.runs.get(entry.token)
        if first is not None:
            self.reused.append((first, run))
        self.runs[entry.token] = run

    def _finished(self, entry: Finished, place: int) -> None:
        run = self.runs.get(entry.token)
        if run is None:
            self.unstarted.setdefault(entry.token, [])
            self.refused |= entry.outcome == "dead"
        elif run.finish is None:
            # A settlement that is tried again was decided once.
            run.finish, run.finished = entry, place

    def _settled(self, entry: Settled, place: int) -> None:
        run = self.runs.get(entry.token)
        taken = entry.answer in TAKEN
        if run is None:
            self.unstarted.setdefault(entry.token, []).extend([entry] * taken)
        elif not taken:
            pass
        elif run.taken is None:
            run.taken, run.settled = entry, place
            if entry.outcome == "dead":
                self.stories[run.start.ref].letters.append(run)
        else:
            run.again = entry

    def _broke(self, entry: Failed, place: int) -> None:
        self.failures += 1
        if entry.by == MEDIUM and MEDIUM not in self._failed:
            for story in self.stories.values():
                story.forget_runs()
        self._failed.setdefault(entry.by, []).append(place)

    def _emptied(self, _entry: Drained, _place: int) -> None:
        self.drained = True

    def _left(self, entry: Left, _place: int) -> None:
        self.story(entry.ref).left.append(entry)
