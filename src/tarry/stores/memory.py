"""The memory store: the reference implementation, short enough to be the specification."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from tarry import life as lives
from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.clock import SYSTEM, Clock
from tarry.due import shown
from tarry.errors import CursorError
from tarry.lease import Lease
from tarry.life import NOTHING, Change, Life
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.lanes import share
from tarry.stores.order import Entry, Order
from tarry.stores.store import (
    RECLAIM_LIMIT,
    REMEMBER_MS,
    WAKE_MS,
    Capabilities,
    Claimed,
    Counts,
    Filter,
    Page,
    Store,
    Watcher,
    matches,
)
from tarry.task import Task, TaskRef, TaskState, check_namespace

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer
_PURGE_STEP = 10


class MemoryStore(Store):
    """Tasks in dictionaries, dues in ordered lanes, one lock; gone with the process."""

    def __init__(
        self,
        *,
        namespace: str = "default",
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.namespace = check_namespace(namespace)
        self.capabilities = Capabilities(
            medium="memory",
            survives="nothing",
            shared=False,
            wakeup="direct",
            remembers_calls=True,
            takes_over=True,
        )
        self._clock = clock or SYSTEM
        self._random = rng or random.Random()  # noqa: S311 - unique, not secret
        self._lock = threading.RLock()
        self._lives: dict[TaskRef, Life] = {}
        self._lanes: dict[str, Order] = defaultdict(Order)
        self._leases: dict[str, Order] = defaultdict(Order)
        self._dead: dict[TaskRef, dict[int, Task]] = {}
        self._history: dict[TaskRef, dict[int, Task]] = {}
        self._stale = Order()
        self._paused: set[str] = set()
        self._revision = 0
        self._turn = 0
        self._calls: dict[str, tuple[int, Any]] = {}
        self._claims: dict[str, tuple[int, list[TaskRef]]] = {}
        self._watchers: list[Watcher] = []

    # ---- the caller's verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot."""
        return self._each(
            requests, call, lambda life, item, now: lives.schedule(life, item, now, self._draw)
        )

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due."""
        return self._each(
            moves, call, lambda life, item, now: lives.reschedule(life, item, now, self._draw)
        )

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks."""
        return self._each(cancellations, call, lives.cancel)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases."""
        answers = self._each(
            settlements,
            call,
            lambda life, item, now: lives.settle(life, item, now, self._draw),
            ref=lambda item: item.lease.ref,
        )
        self._forget()
        return answers

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""

        def step(life: Life, item: DeadRef, now: int) -> Change[ReviveResult]:
            dead = self._dead_letter(item)
            change = lives.revive(life, dead, now, self._draw)
            if dead is not None and change.answer is ReviveResult.REVIVED:
                self._drop_dead(dead)
            return change

        return self._each(refs, call, step)

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters."""

        def step(life: Life, item: DeadRef, _now: int) -> Change[bool]:
            dead = self._dead_letter(item)
            if dead is not None:
                self._drop_dead(dead)
            return Change(dead is not None, life)

        return self._each(refs, call, step)

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown."""

        def step(life: Life, item: Task, now: int) -> Change[bool]:
            if item.state is not TaskState.DEAD:
                return lives.take_over(life, item, now, self._draw, over=replace)
            letters = self._dead.setdefault(item.ref, {})
            new = all(letter.ended != item.ended for letter in letters.values())
            if not new:
                return Change(answer=False, life=life)
            letter = structs.replace(item, revision=self._draw())
            return Change(answer=True, life=life, ended=(letter,))

        return self._each(tasks, call, step)

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Stop or resume claims of *kind*."""
        with self._lock:
            if call and call in self._calls:
                return bool(self._calls[call][1])
            now = self._clock.now()
            before = kind in self._paused
            (self._paused.add if paused else self._paused.discard)(kind)
            if call:
                self._calls[call] = (now, before)
            due = None if paused else self._next_due([kind])
        self._wake(due, now)
        return before

    def _each(
        self,
        items: Sequence[I],
        call: str,
        step: Callable[[Life, I, int], Change[A]],
        ref: Callable[[I], TaskRef] = lambda item: item.ref,  # type: ignore[attr-defined]
    ) -> list[A]:
        """Run *step* on the life of each item's ref, under one lock, and wake the workers once."""
        answers: list[A] = []
        soonest: int | None = None
        with self._lock:
            now = self._clock.now()
            if call:
                self._forget_calls(now)
                if call in self._calls:
                    return list(self._calls[call][1])
            for item in items:
                name = ref(item)
                old = self._lives.get(name, NOTHING)
                change = step(old, item, now)
                self._put(name, old, change)
                answers.append(change.answer)
                due = self._news(old, change.life)
                if due is not None and (soonest is None or due < soonest):
                    soonest = due
            if call:
                self._calls[call] = (now, list(answers))
        self._wake(soonest, now)
        return answers

    def _forget_calls(self, now: int) -> None:
        """Drop what was remembered long enough; the oldest calls come first."""
        while self._calls:
            oldest = next(iter(self._calls))
            if self._calls[oldest][0] > now - REMEMBER_MS:
                return
            del self._calls[oldest]

    # ---- the worker's verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease due tasks."""
        with self._lock:
            now_us = self._clock.now_us()
            now, micros = divmod(now_us, 1_000)
            open_kinds = [kind for kind in dict.fromkeys(kinds) if kind not in self._paused]
            leases = self._repeated(holder, call, now) if call else None
            if leases is None:
                self._reclaim(open_kinds, now)
                leases = self._take(open_kinds, limit, holder, now, now + lease_ms)
                if call:
                    self._claims[holder] = (call, [lease.ref for lease in leases])
            return Claimed(leases, now, micros, self._next_due(open_kinds))

    def _repeated(self, holder: str, call: int, now: int) -> list[Lease] | None:
        """Return the answer to a claim that was made before, None for a new one."""
        newest, refs = self._claims.get(holder, (0, []))
        if call > newest:
            return None
        if call < newest:
            return []
        running = [self._lives.get(ref, NOTHING).running for ref in refs]
        return [held for held in running if held and held.holder == holder and held.expires > now]

    def _take(
        self, kinds: list[str], limit: int, holder: str, now: int, expires: int
    ) -> list[Lease]:
        due = [kind for kind in kinds if self._lanes[kind].reached(now)]
        if not due:
            return []
        self._turn += 1

        def take(kind: str, offset: int, count: int) -> list[Entry]:
            return self._lanes[kind].until(now, offset + count)[offset:]

        leases = []
        for _, _, ref in share(due, limit, self._turn, take, lambda entry: entry[0]):
            old = self._lives[ref]
            assert old.waiting is not None  # noqa: S101 - what is in a lane waits
            lease = lives.claim(
                old.waiting, token=self._random.getrandbits(62), holder=holder, expires=expires
            )
            self._put(ref, old, Change(None, Life(None, lease)))
            leases.append(lease)
        return leases

    def _reclaim(self, kinds: list[str], now: int) -> None:
        """End the leases of *kinds* that have expired."""
        ended = [kind for kind in kinds if self._leases[kind].reached(now)]
        if not ended:
            return
        found = [entry for kind in ended for entry in self._leases[kind].until(now, RECLAIM_LIMIT)]
        for _, _, ref in sorted(found)[:RECLAIM_LIMIT]:
            old = self._lives[ref]
            self._put(ref, old, lives.at(old, now))

    def next_due(self, kinds: Sequence[str]) -> int | None:
        """Return when a claim of *kinds* may find something; for test kits."""
        with self._lock:
            return self._next_due([kind for kind in kinds if kind not in self._paused])

    def _next_due(self, kinds: list[str]) -> int | None:
        soonest = None
        for kind in kinds:
            for order in (self._lanes[kind], self._leases[kind]):
                first = order.first()
                if first is not None and (soonest is None or first < soonest):
                    soonest = first
        return soonest

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now."""
        with self._lock:
            expires = self._clock.now() + lease_ms
            answers = []
            for lease in leases:
                old = self._lives.get(lease.ref, NOTHING)
                change = lives.renew(old, lease.token, expires)
                self._put(lease.ref, old, change)
                answers.append(change.answer)
            return answers

    # ---- what operators see

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show tasks."""
        with self._lock:
            now = self._clock.now()
            return [self._get(ref, now) for ref in refs]

    def _get(self, ref: TaskRef, now: int) -> Task | None:
        found = lives.view(self._lives.get(ref, NOTHING), now)
        if found is not None:
            return found
        ended = {**self._history.get(ref, {}), **self._dead.get(ref, {})}
        return ended[max(ended)] if ended else None

    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Show tasks page by page."""
        with self._lock:
            now = self._clock.now()
            rows = sorted(
                (task for task in self._records(where, now)),
                key=lambda task: (task.ref, task.revision),
            )
        start = _after(cursor)
        rows = [task for task in rows if start is None or _place(task) > start]
        page = rows[: limit * 10]
        found = [task for task in page if matches(task, where)]
        if len(found) > limit:
            found = found[:limit]
            return Page(found, _cursor(found[-1]))
        return Page(found, _cursor(page[-1]) if len(rows) > len(page) else None)

    def _records(self, where: Filter, now: int) -> Iterator[Task]:
        if where.state in (None, TaskState.SCHEDULED, TaskState.LEASED):
            for old in list(self._lives.values()):
                now_life = lives.at(old, now).life
                if now_life.waiting is not None:
                    yield now_life.waiting
                if now_life.running is not None:
                    yield now_life.running.task
        elif where.state is TaskState.DEAD:
            for letters in self._dead.values():
                yield from letters.values()
        else:
            for kept in self._history.values():
                yield from kept.values()

    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """Count tasks by kind."""
        with self._lock:
            now = self._clock.now()
            tally: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
            oldest: dict[str, int] = {}
            for task in self._records(Filter(), now):
                tally[task.ref.kind][task.state.value] += 1
                if task.state is TaskState.SCHEDULED and task.due <= now:
                    tally[task.ref.kind]["overdue"] += 1
                    oldest[task.ref.kind] = min(oldest.get(task.ref.kind, task.due), task.due)
            for task in self._records(Filter(state=TaskState.DEAD), now):
                tally[task.ref.kind]["dead"] += 1
            names = kinds if kinds is not None else sorted({*tally, *self._paused})
            return {
                kind: Counts(
                    **tally.get(kind, {}),
                    oldest_due=oldest.get(kind),
                    paused=kind in self._paused,
                )
                for kind in names
            }

    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        with self._lock:
            now = self._clock.now()
            answer = [0] * buckets
            for task in self._records(Filter(), now):
                place = max(0, task.due - now) // bucket_ms
                if task.state is TaskState.SCHEDULED and place < buckets:
                    answer[place] += 1
            return answer

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* on news."""
        with self._lock:
            self._watchers.append(callback)

        def undo() -> None:
            with self._lock:
                if callback in self._watchers:
                    self._watchers.remove(callback)

        return undo

    def migrate(self) -> list[str]:
        """Do nothing: memory has no layout to change."""
        return []

    def check(self) -> list[str]:
        """Prove that lanes and leases agree with the records."""
        with self._lock:
            lanes = {entry for lane in self._lanes.values() for entry in lane}
            leases = {entry for lane in self._leases.values() for entry in lane}
            found = []
            if lanes != {_lane_entry(old) for old in self._lives.values()} - {None}:
                found.append("the lanes do not agree with the waiting tasks")
            if leases != {_lease_entry(old) for old in self._lives.values()} - {None}:
                found.append("the lease order does not agree with the running attempts")
            return found

    def close(self) -> None:
        """Keep everything: the store may be used again by its owner."""

    # ---- the records and what is derived from them

    def _draw(self) -> int:
        self._revision += 1
        return self._revision

    def _put(self, ref: TaskRef, old: Life, change: Change[A]) -> None:
        """Write the life after a change, and keep lanes, leases, dead letters and history true."""
        new = change.life
        if new is not old:
            before, after = _lane_entry(old), _lane_entry(new)
            if before != after:
                self._lanes[ref.kind].change(before, after)
            before, after = _lease_entry(old), _lease_entry(new)
            if before != after:
                self._leases[ref.kind].change(before, after)
            if new.waiting is None and new.running is None:
                self._lives.pop(ref, None)
            else:
                self._lives[ref] = new
        for task in change.ended:
            if task.state is TaskState.DEAD:
                self._dead.setdefault(ref, {})[task.revision] = task
            elif task.keep_ms:
                self._history.setdefault(ref, {})[task.revision] = task
                self._stale.change(None, (task.ended + task.keep_ms, task.revision, ref))

    def _forget(self) -> None:
        """Drop history that was kept long enough, a few records at a time."""
        if not self._history:
            return
        with self._lock:
            for entry in self._stale.until(self._clock.now(), _PURGE_STEP):
                _, revision, ref = entry
                self._stale.change(entry, None)
                del self._history[ref][revision]
                if not self._history[ref]:
                    del self._history[ref]

    def _dead_letter(self, item: DeadRef) -> Task | None:
        letters = self._dead.get(item.ref, {})
        return letters.get(item.revision or max(letters, default=0))

    def _drop_dead(self, dead: Task) -> None:
        del self._dead[dead.ref][dead.revision]
        if not self._dead[dead.ref]:
            del self._dead[dead.ref]

    def _news(self, old: Life, new: Life) -> int | None:
        """Return the due of what *new* made claimable and *old* had not."""
        entry = _lane_entry(new)
        if entry is None or entry == _lane_entry(old) or entry[2].kind in self._paused:
            return None
        return entry[0]

    def _wake(self, due: int | None, now: int) -> None:
        if due is not None and due - now <= WAKE_MS:
            for watcher in list(self._watchers):
                watcher(due)


def _lane_entry(life: Life) -> Entry | None:
    """Return where a life stands in its lane: only a revision with no attempt before it does."""
    task = life.waiting
    if task is None or life.running is not None:
        return None
    return task.due, task.revision, task.ref


def _lease_entry(life: Life) -> Entry | None:
    lease = life.running
    return None if lease is None else (lease.expires, lease.token, lease.ref)


def _place(task: Task) -> tuple[str, str, int]:
    return task.ref.kind, task.ref.key, task.revision


def _cursor(task: Task) -> str:
    return f"{task.ref.kind} {task.revision} {task.ref.key}"


def _after(cursor: str | None) -> tuple[str, str, int] | None:
    if cursor is None:
        return None
    try:
        kind, revision, key = cursor.split(" ", 2)
        return kind, key, int(revision)
    except ValueError as error:
        message = (
            f"{shown(cursor)} is no cursor of this scan: hand back what the page before answered"
        )
        raise CursorError(message) from error
