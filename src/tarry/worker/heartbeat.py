"""Heartbeat: renew the leases of queued and running attempts; tell which were lost."""

import threading
from collections.abc import Callable, Iterable

from tarry.answers import RenewResult
from tarry.errors import StoreError
from tarry.lease import Lease
from tarry.stores.store import CHUNK, Store

_NS_PER_MS = 1_000_000
CONFIRM_NS = 50 * _NS_PER_MS
"""A lease this old is confirmed once before its attempt starts."""


class Held:
    """A lease this worker holds, with its time on the worker's own clock.

    The time counts from the instant the claim or renewal was *sent*: the reply may come late.
    """

    __slots__ = ("cancelled", "confirmed", "lease", "lost", "on_change", "since", "started")

    def __init__(self, lease: Lease, since: int) -> None:
        self.lease = lease
        self.since = since
        self.confirmed = False
        self.started = False
        self.lost = False
        self.cancelled = lease.cancelled
        self.on_change: Callable[[Held], None] | None = None


class Heartbeat:
    """Keeps the leases of one worker alive. `step` is all it does; a thread calls it in time."""

    def __init__(
        self, store: Store, lease_ms: int, trouble: Callable[[StoreError, float], None]
    ) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._trouble = trouble
        self._held: dict[int, Held] = {}
        self._lock = threading.Lock()

    def hold(self, leases: Iterable[Lease], since: int) -> list[Held]:
        """Keep *leases* alive from now on."""
        held = [Held(lease, since) for lease in leases]
        with self._lock:
            for one in held:
                self._held[one.lease.token] = one
        return held

    def drop(self, held: Held) -> None:
        """Let a lease go: it was settled, released or lost."""
        self._held.pop(held.lease.token, None)

    def __len__(self) -> int:
        return len(self._held)

    def alive(self, held: Held, now: int) -> bool:
        """Say whether the lease surely has time left."""
        return not held.lost and now - held.since < self._lease_ms * _NS_PER_MS

    def needs_confirm(self, held: Held, now: int) -> bool:
        """Say whether a lease is too old to start from without asking the store."""
        return not held.confirmed and now - held.since > CONFIRM_NS

    def confirm(self, now: Callable[[], int]) -> None:
        """Ask the store once about every lease that has not started yet."""
        with self._lock:
            wanted = [held for held in self._held.values() if not held.started]
        self._renew(wanted, now())

    def step(self, now: int) -> None:
        """Renew what has used up a third of its time."""
        old = now - self._lease_ms * _NS_PER_MS // 4
        with self._lock:
            wanted = [held for held in self._held.values() if held.since <= old]
        try:
            self._renew(wanted, now)
        except StoreError as error:
            self._trouble(error, self._lease_ms / 3_000)

    def _renew(self, wanted: list[Held], now: int) -> None:
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            answers = self._store.renew([held.lease for held in part], lease_ms=self._lease_ms)
            for held, answer in zip(part, answers, strict=True):
                self._note(held, answer, now)

    def _note(self, held: Held, answer: RenewResult, now: int) -> None:
        if answer is RenewResult.LOST:
            if held.lease.token not in self._held:
                # Settled while the renewal was under way.
                return
            held.lost = True
        else:
            held.since = now
            held.confirmed = True
            held.cancelled = answer is RenewResult.CANCELLED
        if (held.lost or held.cancelled) and held.on_change is not None:
            held.on_change(held)


class Pulse:
    """The thin thread around a heartbeat: beats every third of the lease."""

    def __init__(self, heartbeat: Heartbeat, lease_ms: int, now: Callable[[], int]) -> None:
        self._heartbeat = heartbeat
        self._interval = lease_ms / 3_000
        self._now = now
        self._stop = threading.Event()

    def run(self) -> None:
        """Beat until stopped."""
        while not self._stop.wait(self._interval):
            self._heartbeat.step(self._now())

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
