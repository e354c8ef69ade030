"""A Hypothesis state machine that drives any store beside the memory store and compares them.

```python
from hypothesis.stateful import run_state_machine_as_test

def test_my_store_agrees_with_the_model() -> None:
    run_state_machine_as_test(compare(lambda clock: MyStore(clock=clock)))
```

Both stores share one clock. Revisions and tokens are a store's own: they are paired as they appear,
and revisions must grow as the model's do. The order of equal dues is a store's own too: every due
here is unique, and a claim of several kinds takes all that is due.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from tarry.answers import Moved, Scheduled
from tarry.attempt import AnyOutcome, Dead, Done, Release, Retry, Skip, Snooze
from tarry.due import At, By, Due, In
from tarry.lease import Lease
from tarry.request import (
    Cancellation,
    DeadRef,
    Move,
    OnConflict,
    Only,
    Request,
    Settlement,
    Successor,
)
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Claimed, Filter, Store
from tarry.task import Task, TaskRef, TaskState
from tarry.testing.clock import ManualClock

Item = TypeVar("Item")

KINDS = ("a", "b")
REFS = tuple(TaskRef(kind, key) for kind in KINDS for key in ("1", "2"))
LEASES_MS = (2_000, 30_000)
KEEP_MS = 1_000_000_000
NO_REVISION = (1 << 52) + 1
HOUR = 3_600_000
DEAD = Filter(state=TaskState.DEAD)

refs = st.sampled_from(REFS)
kinds = st.sampled_from(KINDS)
offsets = st.sampled_from((0, 1, 40, 700, 1_900, 5_000, 45_000))
leases_ms = st.sampled_from(LEASES_MS)
picks = st.integers(min_value=0, max_value=23)
rarely = st.integers(min_value=0, max_value=4).map(lambda n: n == 0)
if_revisions = st.sampled_from(("any", "any", "right", "wrong"))
wishes = st.sampled_from((Done, Skip, Dead, Release, Retry, Snooze))


def batch(item: st.SearchStrategy[Item]) -> st.SearchStrategy[list[Item]]:
    """Return small batches, so that items of one ref meet in one call."""
    return st.lists(item, min_size=1, max_size=3)


class Pairs:
    """Which revision of the store is which of the model's, by ref."""

    def __init__(self) -> None:
        self._known: dict[TaskRef, dict[int, int]] = {ref: {} for ref in REFS}

    def same(self, ref: TaskRef, mine: int, theirs: int) -> None:
        """Say that two revisions are the same; they were before, or they are newer than all."""
        if not mine or not theirs:
            assert mine == theirs
            return
        known = self._known[ref]
        assert known.setdefault(mine, theirs) == theirs
        assert sorted(known.values()) == [known[revision] for revision in sorted(known)]
        assert len(set(known.values())) == len(known)

    def theirs(self, ref: TaskRef, mine: int) -> int:
        """Return the store's revision that is the model's *mine*."""
        return self._known[ref].get(mine, mine)


class Comparison(RuleBasedStateMachine):
    """Does the same to both stores; whatever they answer must be the same."""

    def __init__(
        self, make_store: Callable[[ManualClock], Store], close: Callable[[Store], None]
    ) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model: Store = MemoryStore(clock=self.clock)
        self.store = make_store(self.clock)
        self._close = close
        self._pairs = Pairs()
        self._held: list[tuple[Lease, Lease]] = []
        self._ended: list[tuple[Lease, Lease]] = []
        self._tokens: set[int] = set()
        self._used: set[int] = set()

    # ---- the caller's verbs

    @rule(
        ref=refs,
        offset=offsets,
        mode=st.sampled_from(OnConflict),
        wanted=if_revisions,
        max_wait=st.none() | offsets,
        past=rarely,
        relative=st.booleans(),
    )
    def schedule_one(
        self,
        *,
        ref: TaskRef,
        offset: int,
        mode: OnConflict,
        wanted: str,
        max_wait: int | None,
        past: bool,
        relative: bool,
    ) -> None:
        """Schedule in any mode, with any condition."""
        due = self._due(offset, past=past, relative=relative)
        old = self._seen(ref)
        if max_wait is not None and old is not None:
            max_wait = self._instant(max_wait) - old.created
        mine, theirs = self._if_revision(ref, wanted)
        request = Request(ref, due, on_conflict=mode, max_wait_ms=max_wait)
        self._schedule([request], [mine], [theirs])

    @rule(
        items=batch(st.tuples(refs, offsets, st.sampled_from(OnConflict))),
        payload=st.binary(max_size=4),
        series=st.sampled_from(("", "", "every 1h", "every 2h")),
        declared=st.booleans(),
        kept=st.booleans(),
    )
    def schedule_many(
        self,
        *,
        items: list[tuple[TaskRef, int, OnConflict]],
        payload: bytes,
        series: str,
        declared: bool,
        kept: bool,
    ) -> None:
        """Schedule a batch, perhaps of a series, perhaps with history."""
        requests = [
            Request(
                ref,
                At(self._instant(offset)),
                payload,
                headers=payload[:1],
                on_conflict=mode,
                rule=series,
                declared=declared and bool(series),
                keep_ms=KEEP_MS if kept else 0,
            )
            for ref, offset, mode in items
        ]
        self._schedule(requests, [None] * len(items), [None] * len(items))

    @rule(pick=picks, offset=offsets, only=st.sampled_from(Only), wanted=if_revisions, by=rarely)
    def move_one(self, *, pick: int, offset: int, only: Only, wanted: str, by: bool) -> None:
        """Move to an instant or by a shift, on any condition."""
        ref = self._ref(pick)
        instant = self._instant(offset)
        old = self._seen(ref)
        due = By(instant - old.due) if by and old is not None else At(instant)
        mine, theirs = self._if_revision(ref, wanted)
        self._move([Move(ref, due, only, mine)], [Move(ref, due, only, theirs)])

    @rule(items=batch(st.tuples(picks, offsets)), onwards=rarely)
    def move_many(self, *, items: list[tuple[int, int]], onwards: bool) -> None:
        """Move a batch, perhaps on to another occurrence."""
        nominal = self.clock.now() + HOUR if onwards else None
        moves = [
            Move(self._ref(pick), self._due(offset, relative=True), nominal=nominal)
            for pick, offset in items
        ]
        self._move(moves, moves)

    @rule(items=batch(st.tuples(picks, if_revisions)), only=rarely)
    def cancel(self, *, items: list[tuple[int, str]], only: bool) -> None:
        """Cancel a batch, on any condition."""
        chosen = [(self._ref(pick), condition) for pick, condition in items]
        wanted = [(ref, *self._if_revision(ref, condition)) for ref, condition in chosen]

        mine = self.model.cancel([Cancellation(ref, mine, only) for ref, mine, _ in wanted])
        theirs = self.store.cancel([Cancellation(ref, theirs, only) for ref, _, theirs in wanted])

        assert theirs == mine

    # ---- the worker's verbs

    @rule(kind=kinds, limit=st.integers(0, 3), lease_ms=leases_ms, holder=st.sampled_from("vw"))
    def claim_some(self, *, kind: str, limit: int, lease_ms: int, holder: str) -> None:
        """Claim a few tasks of one kind; all of it where shards have orders of their own."""
        if limit and self.store.capabilities.shards > 1:
            limit = 100
        self._claim([kind], limit, lease_ms, holder)

    @rule(lease_ms=leases_ms)
    def claim_all(self, *, lease_ms: int) -> None:
        """Claim all that is due."""
        self._claim([*KINDS, "nobody", KINDS[0]], 100, lease_ms, "w")

    @rule(items=batch(refs), series=rarely, declared=st.booleans(), lease_ms=leases_ms)
    def start(self, *, items: list[TaskRef], series: bool, declared: bool, lease_ms: int) -> None:
        """Schedule a batch that is due at once, and claim it."""
        rule_ = "every 1h" if series else ""
        requests = [
            Request(ref, At(self._instant(0)), rule=rule_, declared=series and declared)
            for ref in items
        ]
        self._schedule(requests, [None] * len(items), [None] * len(items))
        self.clock.advance(len(items))
        self._claim(KINDS, 100, lease_ms, "w")

    @precondition(lambda self: bool(self._held))
    @rule(pick=picks, lease_ms=leases_ms)
    def die(self, *, pick: int, lease_ms: int) -> None:
        """Let an attempt fail for good, and perhaps start what waited behind it."""
        pair = self._held[pick % len(self._held)]
        self._settle([pair], [Dead("broken")], [None])
        if pick % 2:
            self._claim(KINDS, 100, lease_ms, "w")

    @precondition(lambda self: bool(self._held))
    @rule(
        items=batch(st.tuples(picks, wishes, offsets, st.booleans())),
        late=rarely,
        reason=st.sampled_from(("", "because")),
    )
    def settle(
        self,
        *,
        items: list[tuple[int, type[AnyOutcome], int, bool]],
        late: bool,
        reason: str,
    ) -> None:
        """Settle a batch with any outcomes; late: with tokens that were used before."""
        leases = (self._ended if late else None) or self._held
        pairs = [leases[pick % len(leases)] for pick, *_ in items]
        outcomes = [self._outcome(wish, offset, reason) for _, wish, offset, _ in items]
        successors = [
            Successor(self._instant(offset), mine.task.nominal + HOUR) if follow else None
            for (mine, _), (*_, offset, follow) in zip(pairs, items, strict=True)
        ]
        self._settle(pairs, outcomes, successors)

    @precondition(lambda self: bool(self._held))
    @rule(items=batch(picks), lease_ms=leases_ms, late=rarely)
    def renew(self, *, items: list[int], lease_ms: int, late: bool) -> None:
        """Renew a batch; late: with tokens that were used before."""
        leases = self._held + (self._ended if late else [])
        pairs = [leases[-1 - pick % len(leases)] for pick in items]

        mine = self.model.renew([mine for mine, _ in pairs], lease_ms=lease_ms)
        theirs = self.store.renew([theirs for _, theirs in pairs], lease_ms=lease_ms)

        assert theirs == mine

    # ---- the operator's verbs

    @rule(kind=kinds, paused=rarely)
    def pause(self, *, kind: str, paused: bool) -> None:
        """Pause or resume a kind."""
        assert self.store.pause(kind, paused) == self.model.pause(kind, paused)

    @precondition(lambda self: bool(_scanned(self.model, DEAD)))
    @rule(pick=picks, which=picks, verb=st.sampled_from(("revive", "revive", "purge")))
    def revive_or_purge(self, *, pick: int, which: int, verb: str) -> None:
        """Revive or purge the newest dead letter, one of the others, or one that is not there."""
        letters = _scanned(self.model, DEAD)
        ref = letters[pick % len(letters)].ref
        choices = [0, NO_REVISION, *(task.revision for task in letters if task.ref == ref)]
        mine = choices[which % len(choices)]
        theirs = self._pairs.theirs(ref, mine)
        self._fresh_now()

        answers = getattr(self.model, verb)([DeadRef(ref, mine)])

        assert getattr(self.store, verb)([DeadRef(ref, theirs)]) == answers

    @rule(
        state=st.none() | st.sampled_from(TaskState),
        only=st.sampled_from(((), (), ("b",), ("a", "nobody"))),
        prefix=st.sampled_from(("", "", "1", "no")),
        after=st.none() | offsets,
        before=st.none() | offsets,
        limit=st.sampled_from((1, 2, 100)),
    )
    def scan(
        self,
        *,
        state: TaskState | None,
        only: tuple[str, ...],
        prefix: str,
        after: int | None,
        before: int | None,
        limit: int,
    ) -> None:
        """Scan with any filter and pages of any size."""
        now = self.clock.now()
        where = Filter(
            state=state,
            kinds=only,
            key_prefix=prefix,
            due_after=None if after is None else now + after,
            due_before=None if before is None else now + before,
        )
        self._same_scan(where, limit)

    @rule(some=st.none() | st.lists(kinds, unique=True))
    def counts(self, *, some: list[str] | None) -> None:
        """Count all kinds or some."""
        assert dict(self.store.counts(some)) == dict(self.model.counts(some))

    @rule(ms=st.sampled_from((1, 50, 700, 1_999, 2_001, 31_000, 60_000)))
    def advance(self, *, ms: int) -> None:
        """Let time pass; leases may end."""
        self.clock.advance(ms)

    @invariant()
    def every_task_looks_the_same(self) -> None:
        """Compare what `get` shows of every ref."""
        mine, theirs = self.model.get(REFS), self.store.get(REFS)
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            self._same_task(one, other)

    def teardown(self) -> None:
        """Compare all records, run what is left, and look the store over."""
        try:
            if sys.exc_info()[0] is None:
                self._same_at_last()
        finally:
            self._close(self.store)

    # ---- one verb on both stores

    def _schedule(
        self,
        requests: Sequence[Request],
        mine: Sequence[int | None],
        theirs: Sequence[int | None],
    ) -> None:
        ours = zip(requests, mine, theirs, strict=True)
        both = [(replace(r, if_revision=m), replace(r, if_revision=t)) for r, m, t in ours]
        self._same_answers(
            self.model.schedule([one for one, _ in both]),
            self.store.schedule([other for _, other in both]),
        )

    def _move(self, mine: Sequence[Move], theirs: Sequence[Move]) -> None:
        self._same_answers(self.model.reschedule(mine), self.store.reschedule(theirs))

    def _claim(self, some: Sequence[str], limit: int, lease_ms: int, holder: str) -> None:
        mine = self.model.claim(some, limit=limit, lease_ms=lease_ms, holder=holder)
        theirs = self.store.claim(some, limit=limit, lease_ms=lease_ms, holder=holder)

        assert replace(theirs, leases=[]) == replace(mine, leases=[])
        assert _by_kind(theirs) == _by_kind(mine)
        held = {lease.ref: lease for lease in theirs.leases}
        for lease in mine.leases:
            self._same_lease(lease, held[lease.ref])

    def _same_lease(self, mine: Lease, theirs: Lease) -> None:
        assert (theirs.holder, theirs.expires) == (mine.holder, mine.expires)
        assert theirs.token not in self._tokens
        self._same_task(mine.task, theirs.task)
        self._tokens.add(theirs.token)
        self._held.append((mine, theirs))

    def _settle(
        self,
        pairs: Sequence[tuple[Lease, Lease]],
        outcomes: Sequence[AnyOutcome],
        successors: Sequence[Successor | None],
    ) -> None:
        rest = list(zip(outcomes, successors, strict=True))
        mine = [Settlement(pair[0], *more) for pair, more in zip(pairs, rest, strict=True)]
        theirs = [Settlement(pair[1], *more) for pair, more in zip(pairs, rest, strict=True)]

        assert self.store.settle(theirs) == self.model.settle(mine)

        self._held = [pair for pair in self._held if pair not in pairs]
        self._ended.extend(pairs)

    # ---- what the same means

    def _same_answers(
        self, mine: Sequence[Scheduled | Moved], theirs: Sequence[Scheduled | Moved]
    ) -> None:
        for one, other in zip(mine, theirs, strict=True):
            assert replace(other, revision=one.revision) == one
            self._pairs.same(one.ref, one.revision, other.revision)

    def _same_task(self, mine: Task | None, theirs: Task | None) -> None:
        if mine is None or theirs is None:
            assert theirs == mine
            return
        assert replace(theirs, revision=mine.revision) == mine
        self._pairs.same(mine.ref, mine.revision, theirs.revision)

    def _same_scan(self, where: Filter, limit: int = 100) -> None:
        mine, theirs = _scanned(self.model, where, limit), _scanned(self.store, where, limit)
        assert len(theirs) == len(mine)
        for one, other in zip(mine, theirs, strict=True):
            self._same_task(one, other)

    def _same_at_last(self) -> None:
        for state in (None, *TaskState):
            self._same_scan(Filter(state=state))
        for kind in KINDS:
            self.pause(kind=kind, paused=False)
        self.clock.advance(HOUR)
        self._claim(KINDS, 100, LEASES_MS[0], "last")
        self.every_task_looks_the_same()
        assert self.model.check() == []
        assert self.store.check() == []

    # ---- what to ask for

    def _seen(self, ref: TaskRef) -> Task | None:
        return self.model.get([ref])[0]

    def _ref(self, pick: int) -> TaskRef:
        """Return a ref, rather one that waits or runs than another."""
        alive = [task.ref for task in _scanned(self.model, Filter())]
        choices = [*alive, *alive, *REFS]
        return choices[pick % len(choices)]

    def _if_revision(self, ref: TaskRef, wanted: str) -> tuple[int | None, int | None]:
        """Return the condition for the model and for the store."""
        task = self._seen(ref)
        if wanted == "any":
            return None, None
        if wanted == "right" and task is not None:
            return task.revision, self._pairs.theirs(ref, task.revision)
        return NO_REVISION, NO_REVISION

    def _instant(self, offset: int) -> int:
        """Return an instant from now on that no other task is due at."""
        instant = self.clock.now() + offset
        while instant in self._used:
            instant += 1
        self._used.add(instant)
        return instant

    def _fresh_now(self) -> int:
        """Let time pass until nothing else is due right now."""
        while self.clock.now() in self._used:
            self.clock.advance(1)
        return self._instant(0)

    def _outcome(self, wish: type[AnyOutcome], offset: int, reason: str) -> AnyOutcome:
        if issubclass(wish, Retry | Snooze):
            return wish(self._due(offset, relative=True), reason)
        return wish(reason)

    def _due(self, offset: int, *, past: bool = False, relative: bool = False) -> Due:
        if past:
            return At(self._fresh_now() - offset)
        instant = self._instant(offset)
        return In(instant - self.clock.now()) if relative else At(instant)


def compare(
    make_store: Callable[[ManualClock], Store], close: Callable[[Store], None] = Store.close
) -> type[RuleBasedStateMachine]:
    """Return a state machine that compares the stores *make_store* makes with the memory store.

    Each history has a store of its own: *make_store* is handed the clock to use, and *close* gets
    the store when the history is over.
    """

    class StoreComparison(Comparison):
        def __init__(self) -> None:
            super().__init__(make_store, close)

    return StoreComparison


def _by_kind(claimed: Claimed) -> dict[str, list[TaskRef]]:
    return {
        kind: [lease.ref for lease in claimed.leases if lease.ref.kind == kind] for kind in KINDS
    }


def _scanned(store: Store, where: Filter, limit: int = 100) -> list[Task]:
    """Scan to the end, and put what was found in one order."""
    found: list[Task] = []
    cursor = None
    while True:
        page = store.scan(where, cursor=cursor, limit=limit)
        assert len(page.tasks) <= limit
        found += page.tasks
        cursor = page.cursor
        if cursor is None:
            return sorted(found, key=lambda task: (task.ref, task.revision))
