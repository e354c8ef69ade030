"""SocketStore: a store over a real network, with time-outs and without silent retries."""
# What a verb returns is what the server says.
# mypy: disable-error-code=no-any-return

import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.network import wire

from tarry import errors
from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Capabilities, Claimed, Counts, Filter, Page, Store, Watcher
from tarry.task import Task, TaskRef, check_namespace

TIMEOUT = 0.2
"""Seconds a verb waits for its reply."""
_AGAIN_S = 0.05


class SocketStore(Store):
    """Asks a `StoreServer` for everything; each call takes a connection from a pool."""

    def __init__(
        self, address: tuple[str, int], *, namespace: str = "default", timeout: float = TIMEOUT
    ) -> None:
        self.namespace = check_namespace(namespace)
        self.capabilities = Capabilities(
            medium="socket", survives="nothing", shared=True, wakeup="push", remembers_calls=True
        )
        self._address = address
        self.timeout = timeout
        self.sent: Counter[str] = Counter()
        """How many requests of each verb have left; a try that found no connection has not."""
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._watchers: list[Watcher] = []
        self._ear: threading.Thread | None = None
        self._hears = threading.Event()
        self._closed = threading.Event()

    # ---- verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        return self._ask("schedule", requests, call=call)

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        return self._ask("reschedule", moves, call=call)

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        return self._ask("cancel", cancellations, call=call)

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        return self._ask("claim", kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        return self._ask("renew", leases, lease_ms=lease_ms)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        return self._ask("settle", settlements, call=call)

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        return self._ask("get", refs)

    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        return self._ask("scan", where, cursor=cursor, limit=limit)

    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        return self._ask("counts", kinds)

    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        return self._ask("forecast", bucket_ms=bucket_ms, buckets=buckets)

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        return self._ask("revive", refs, call=call)

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        return self._ask("purge", refs, call=call)

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:
        return self._ask("pause", kind, paused, call=call)

    def migrate(self) -> list[str]:
        return self._ask("migrate")

    def check(self) -> list[str]:
        return self._ask("check")

    def served(self, verb: str) -> int:
        """Return how often the server has executed *verb* in this namespace."""
        return self._ask("served", verb)

    def close(self) -> None:
        self._closed.set()
        self._drop_idle()
        if self._ear is not None:
            self._ear.join()

    # ---- the pool

    def _ask(self, verb: str, *args: Any, **options: Any) -> Any:
        message = wire.frame([verb, self.namespace, list(args), options])
        line = None
        try:
            line = self._take() or self._connect()
            line.sendall(message)
            self.sent[verb] += 1
            error, answer = wire.read(line)
        except (OSError, EOFError) as trouble:
            if line is not None:
                line.close()
            # Whatever broke this one has broken the idle ones too.
            self._drop_idle()
            said = f"{verb}: no reply ({type(trouble).__name__}: {trouble})"
            raise errors.StoreUnavailableError(said) from trouble
        self._give_back(line)
        if error:
            raise getattr(errors, error)(answer)
        return answer

    def _connect(self) -> socket.socket:
        line = socket.create_connection(self._address, self.timeout)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line

    def _take(self) -> socket.socket | None:
        if self._closed.is_set():
            message = "the store was closed"
            raise errors.StoreClosedError(message)
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, line: socket.socket) -> None:
        with self._lock:
            self._idle.append(line)
        if self._closed.is_set():
            self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    # ---- wake-ups

    def watch(self, callback: Watcher) -> Callable[[], None]:
        with self._lock:
            self._watchers.append(callback)
            if self._ear is None:
                self._ear = threading.Thread(target=self._hear, name="ear", daemon=True)
                self._ear.start()
        self._hears.wait(self.timeout)

        def undo() -> None:
            with self._lock, suppress(ValueError):
                self._watchers.remove(callback)

        return undo

    def _hear(self) -> None:
        """Pass news on; a line that breaks or falls silent is made anew."""
        missed = False
        while not self._closed.is_set():
            with suppress(OSError, EOFError), self._connect() as line:
                line.sendall(wire.frame(["watch", self.namespace]))
                wire.read(line)
                self._hears.set()
                if missed:
                    self._tell(0)
                missed = True
                while not self._closed.is_set():
                    due = wire.read(line)
                    if due is not None:
                        self._tell(due)
            self._closed.wait(_AGAIN_S)

    def _tell(self, due: int) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher(due)
