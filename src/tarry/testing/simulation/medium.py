"""Medium: the store behind the wire; it is slow, away, or crashes and forgets."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tarry.clock import Clock as AnyClock
from tarry.errors import StoreUnavailableError
from tarry.life import NOTHING, Change, Life
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Capabilities, Claimed, Store
from tarry.task import TaskRef
from tarry.testing.simulation.process import Clock
from tarry.testing.simulation.world import MS, World

SYNCED = frozenset({"schedule", "reschedule", "cancel", "revive", "purge", "pause"})
"""What callers are promised is durable when it is acknowledged."""


class ForgetfulStore(MemoryStore):
    """The memory store, with a past it can fall back to."""

    def __init__(self, *, clock: AnyClock, rng: random.Random, capabilities: Capabilities) -> None:
        super().__init__(namespace="sim", clock=clock, rng=rng)
        self.capabilities = capabilities

    def snapshot(self) -> tuple[Any, ...]:
        """Return the records as they are; what is derived from them is left out."""
        return (
            dict(self._lives),
            {ref: dict(letters) for ref, letters in self._dead.items()},
            {ref: dict(kept) for ref, kept in self._history.items()},
            set(self._paused),
            dict(self._calls),
            dict(self._claims),
        )

    def restore(self, past: tuple[Any, ...]) -> None:
        """Go back to *past*; revisions and tokens drawn since then are not drawn again."""
        lives, dead, history, paused, calls, claims = past
        for ref in list(self._lives):
            self.put_life(ref, NOTHING)
        for ref, life in lives.items():
            self.put_life(ref, life)
        self._dead, self._history, self._paused = dead, history, paused
        self._calls, self._claims = calls, claims

    def lives(self) -> list[tuple[TaskRef, Life]]:
        """Return all that waits or runs."""
        return list(self._lives.items())

    def life_of(self, ref: TaskRef) -> Life:
        """Return what waits and runs of *ref*."""
        return self._lives.get(ref, NOTHING)

    def put_life(self, ref: TaskRef, life: Life) -> None:
        """Put *life* in the place of what there is: for those who break a rule."""
        self._put(ref, self.life_of(ref), Change(None, life))

    def holds_only(self, ref: TaskRef | None) -> bool:
        """Say whether nothing waits or runs but *ref*."""
        return not self._lives or (len(self._lives) == 1 and ref in self._lives)


class Medium:
    """Carries out what arrives, one thing after the other, at the instant it arrives."""

    def __init__(
        self, world: World, store: Store, clock: Clock, *, relaxed: frozenset[str]
    ) -> None:
        self.world = world
        self.store = store
        self.clock = clock
        self._relaxed = relaxed
        """The verbs whose commits a crash may forget."""
        self._past: deque[Callable[[], None]] = deque()
        self.down_until = 0
        self.contended_until = 0
        self.crashes = 0

    def execute(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Do *verb* on the store, now."""
        if self.world.now < self.down_until:
            raise StoreUnavailableError("the medium is down")
        if verb == "claim" and self.world.now < self.contended_until:
            contended = self._contended(args[0])
            if contended is not None:
                return contended
        if isinstance(self.store, ForgetfulStore):
            if verb in self._relaxed:
                past = self.store.snapshot()
                self._past.append(lambda store=self.store: store.restore(past))  # type: ignore[misc]
            elif verb in SYNCED or verb == "claim":
                # What is synced takes everything before it along: the log has one order.
                self._past.clear()
        return getattr(self.store, verb)(*args, **kwargs)

    def _contended(self, kinds: Sequence[str]) -> Claimed | None:
        """Answer as a store does whose due rows others hold locked: nothing, though it is due."""
        now, micros = divmod(self.clock.now_us(), 1_000)
        due = self.store.next_due(kinds) if isinstance(self.store, MemoryStore) else None
        return Claimed([], now, micros, due) if due is not None and due <= now else None

    def crash(self, span_ms: int, dice: random.Random) -> None:
        """Go down for a while; what was committed relaxed since the last sync may be forgotten."""
        self.crashes += 1
        self.down_until = self.world.now + span_ms * MS
        kept = dice.randrange(len(self._past) + 1)
        if kept < len(self._past):
            self._past[kept]()
        self._past.clear()
