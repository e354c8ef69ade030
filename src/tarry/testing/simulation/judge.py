"""Judge: whether everything is attempted in time, nothing takes too long, and nothing spins.

A task is *claimable* from its due on, once it was accepted, nothing of its ref runs and its kind is
not paused. While some worker surely has room it is attempted within moments, if nothing breaks;
and within the lease and two seconds once nothing breaks any more.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tarry.testing.ledger import (
    Answered,
    Asked,
    Entry,
    Failed,
    Finished,
    Settled,
    Started,
    Violation,
)
from tarry.testing.simulation.world import MS, NS

if TYPE_CHECKING:
    from tarry.testing.simulation.stage import Stage

PROMPT_MS = 400
"""Ways to the store and back, a worker that stands by, a lease that is given to somebody else."""
LOOK_MS = 2_000
IDLE_CLAIMS = 6
"""So many claims in a window may find nothing, besides those that something called for."""
BACKED_OFF = 20
"""And so many more where others hold what is due: 5, 10, 20 … 250 ms apart."""
PATIENCE_MS = 50
"""What it takes to notice that a handler's time is up."""
_FAILING = frozenset({"retry", "dead"})
_PER_NEWS = 2
_WINDOW_NS = 4 * NS


def judge(stage: "Stage") -> list[Violation]:
    """Return what was late, what was given too much time or too little, and who span."""
    overtime = _overtime(stage) if stage.plan.timeout else ()
    return [*_late(stage), *overtime, *_spins(stage)]


def _late(stage: "Stage") -> list[Violation]:
    broke = bool(stage.plan.faults) or any(isinstance(entry, Failed) for entry in stage.entries)
    quiet = stage.plan.quiet * MS if broke else 0
    allowed = PROMPT_MS + (stage.plan.lease + LOOK_MS + _set_back(stage) if broke else 0)
    # A pause that overlapped its resume may have come second: then it lasted until the end.
    paused = any(step.verb == "pause" for step in stage.plan.steps)
    resumed = stage.resumed if paused else 0
    watch = _Watch(stage)
    found = []
    for entry, when in zip(stage.entries, stage.times, strict=True):
        if isinstance(entry, Started):
            since = max(quiet, watch.since(entry), resumed if resumed <= when else 0)
            late = (when - since) // MS
            if late > allowed and when > quiet:
                said = f"it was {late} ms late, {allowed} are allowed"
                found.append(Violation("late", entry.ref, said, (entry,)))
        watch.see(entry, when)
    return found


def _set_back(stage: "Stage") -> int:
    """Return by how much steps of the store's clock prolong the leases of the dead."""
    steps = [fault.amount for fault in stage.plan.faults if fault.what in {"clock", "step"}]
    return -sum(step for step in steps if step < 0)


def _overtime(stage: "Stage") -> Iterator[Violation]:
    """Find attempts that went on beyond their time-out, or failed before it though all was well."""
    limit = stage.plan.timeout
    began: dict[int, tuple[Started, int]] = {}
    for entry, when in zip(stage.entries, stage.times, strict=True):
        if isinstance(entry, Started):
            began[entry.token] = entry, when
        elif isinstance(entry, Failed):
            # Who stalls does not see to it; who is slow or dead says nothing any more.
            began = {token: one for token, one in began.items() if one[0].by != entry.by}
        elif isinstance(entry, Finished) and entry.token in began:
            start, since = began.pop(entry.token)
            took = (when - since) // MS
            step = stage.steps.get(start.op)
            if took > limit + PATIENCE_MS:
                said = f"token {start.token} took {took} ms, {limit} are allowed"
            elif entry.outcome in _FAILING and took < limit and step and step.script == ("ok",):
                said = f"token {start.token} failed after {took} ms, though {limit} are allowed"
            else:
                continue
            yield Violation("overtime", start.ref, said, (start, entry))


class _Watch:
    """Since when, at the latest, a task could be claimed and somebody had room for it."""

    def __init__(self, stage: "Stage") -> None:
        self._wall = stage.clock.wall
        self._concurrency = stage.plan.concurrency
        self._asked: dict[int, Asked] = {}
        self._touched: dict[str, int] = {}
        """When something last happened to a ref, or to its kind."""
        self._running: dict[int, Started] = {}
        self._crowded = 0
        """When one worker last may have had no room."""

    def since(self, start: Started) -> int:
        """Return since when what starts here was waiting for it."""
        kind = start.ref.partition("/")[0]
        due = (start.due - self._wall) * MS
        touched = self._touched
        return max(due, touched.get(start.ref, 0), touched.get(kind, 0), self._crowded)

    def see(self, entry: Entry, when: int) -> None:
        """Take note of what happened."""
        if len(self._running) >= self._concurrency:
            self._crowded = when
        if isinstance(entry, Asked):
            self._asked[entry.op] = entry
            self._touch(entry, when)
        elif isinstance(entry, Answered):
            self._touch(self._asked[entry.op], when)
        elif isinstance(entry, Started):
            self._running[entry.token] = entry
            self._touched[entry.ref] = when
        elif isinstance(entry, Finished | Settled):
            started = self._running.pop(entry.token, None)
            if started is not None:
                self._touched[started.ref] = when

    def _touch(self, ask: Asked, when: int) -> None:
        whole = ask.verb in {"pause", "resume"}
        self._touched[ask.ref.partition("/")[0] if whole else ask.ref] = when


def _spins(stage: "Stage") -> list[Violation]:
    """Find a worker that asked far more often than there was something to ask for."""
    news = [
        when
        for entry, when in zip(stage.entries, stage.times, strict=True)
        if not (isinstance(entry, Asked) and entry.verb == "claim")
    ]
    contended = any(fault.what == "contend" for fault in stage.plan.faults)
    idle = IDLE_CLAIMS + (BACKED_OFF if contended else 0)
    found = []
    for label in dict.fromkeys(label for label, _ in stage.empties):
        asked: deque[int] = deque()
        for when in [at for who, at in stage.empties if who == label]:
            asked.append(when)
            while asked[0] <= when - _WINDOW_NS:
                asked.popleft()
            heard = bisect_right(news, when) - bisect_right(news, when - _WINDOW_NS - NS)
            if len(asked) > idle + _PER_NEWS * heard:
                said = f"{label}: {len(asked)} claims in {_WINDOW_NS // NS} s found nothing"
                found.append(Violation("spin", "", said))
                break
    return found
