"""Heartbeat: renew the leases of queued and running attempts; tell which were lost."""

from collections.abc import Callable, Iterable

from tarry.answers import RenewResult
from tarry.runtime import Runtime
from tarry.stores.store import CHUNK, Store
from tarry.worker.run import Attempt

_NS_PER_MS = 1_000_000
_CONFIRM_NS = 50 * _NS_PER_MS
_LONGEST_RETRY = 1.0


class Heartbeat:
    """Keeps the leases of one worker alive. `step` is all it does; a thread calls it in time."""

    def __init__(
        self,
        store: Store,
        lease_ms: int,
        runtime: Runtime,
        *,
        changed: Callable[[Attempt], None],
        trouble: Callable[[Exception, float], None],
    ) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._lease_ns = lease_ms * _NS_PER_MS
        self._changed = changed
        self._trouble = trouble
        self._held: dict[int, Attempt] = {}
        self._lock = runtime.lock()

    def hold(self, attempts: Iterable[Attempt]) -> None:
        """Keep the leases of *attempts* alive from now on."""
        with self._lock:
            for attempt in attempts:
                self._held[attempt.lease.token] = attempt

    def drop(self, token: int) -> Attempt | None:
        """Let a lease go: what became of it is recorded, or it was lost."""
        return self._held.pop(token, None)

    def __len__(self) -> int:
        return len(self._held)

    def alive(self, attempt: Attempt, now: int) -> bool:
        """Say whether the lease surely has time left."""
        return not attempt.lost and now - attempt.since < self._lease_ns

    def needs_confirm(self, attempt: Attempt, now: int) -> bool:
        """Say whether a lease is too old to start from without asking the store."""
        return now - attempt.claimed > _CONFIRM_NS and not attempt.confirmed

    def confirm(self, now: Callable[[], int]) -> None:
        """Ask the store, in one call, about every lease that has not started yet.

        What it does not confirm, for whatever reason, needs confirming still.
        """
        with self._lock:
            held = list(self._held.values())
        wanted = [a for a in held if not a.started and not a.confirmed]
        try:
            self._renew(wanted, now())
        except Exception as error:  # noqa: BLE001 - as in `step`
            self._trouble(error, 0)

    def step(self, now: int) -> float:
        """Renew what has used up a quarter of its time; returns seconds until the next beat."""
        old = now - self._lease_ns // 4
        with self._lock:
            held = list(self._held.values())
        # The record of one that its handler settles is locked until the handler commits.
        wanted = [attempt for attempt in held if attempt.since <= old and attempt.joined is None]
        beat = self._lease_ms / 3_000
        try:
            self._renew(wanted, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next beat must come
            beat = min(beat, _LONGEST_RETRY)
            self._trouble(error, beat)
        return beat

    def _renew(self, wanted: list[Attempt], now: int) -> None:
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            answers = self._store.renew([a.lease for a in part], lease_ms=self._lease_ms)
            for attempt, answer in zip(part, answers, strict=True):
                self._note(attempt, answer, now)

    def _note(self, attempt: Attempt, answer: RenewResult, now: int) -> None:
        if answer is RenewResult.LOST:
            if attempt.lease.token not in self._held or attempt.joined is not None:
                # Settled while the renewal was under way.
                return
            attempt.lost = True
        else:
            attempt.since = now
            attempt.confirmed = True
            attempt.cancelled = answer is RenewResult.CANCELLED
        if attempt.asked_to_stop():
            self._changed(attempt)


class Pulse:
    """The thin thread around a heartbeat: beats every third of the lease."""

    def __init__(self, heartbeat: Heartbeat, lease_ms: int, runtime: Runtime) -> None:
        self._heartbeat = heartbeat
        self._beat = lease_ms / 3_000
        self._now = runtime.clock.elapsed
        self._stop = runtime.signal()

    def run(self) -> None:
        """Beat until stopped."""
        while not self._stop.wait(self._beat):
            self._beat = self._heartbeat.step(self._now())

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
