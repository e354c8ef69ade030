"""Proxy: stands between clients and a server, and breaks what it is told to."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tarry.testing.proxy.connection import Connection, close
from tarry.testing.proxy.coverage import Coverage, Pair
from tarry.testing.proxy.fault import Fault, Phase, Rule

R = TypeVar("R")
_LIMIT_S = 10.0
_BACKLOG = 128


class Proxy:
    """Listens on a free port of this machine and carries what comes there to *host*:*port*.

    It works from the moment it is made until `close`, on a thread of its own. Its verbs may be
    called from any thread but not from a rule, and have taken effect when they return.
    """

    def __init__(
        self, host: str, port: int, *, coverage: Coverage | None = None, quiet_ms: int = 20
    ) -> None:
        self.coverage = coverage or Coverage()
        self.hits: list[Pair] = []
        """What really happened, in order: (verb, phase)."""
        self._found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._quiet_ms = quiet_ms
        # Keeps the port ours while nobody listens on it.
        self._place = _bound(0)
        self.port: int = self._place.getsockname()[1]
        self.address = ("127.0.0.1", self.port)
        self._listener: socket.socket | None = None
        self._armed: list[tuple[Fault, Callable[[bytes], bool]]] = []
        self._rule: Rule | None = None
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        self._failures: list[BaseException] = []
        self._news = threading.Condition()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tarry-proxy", daemon=True
        )
        self._thread.start()
        self._do(self._heal())

    # ---- what a test says

    def arm(
        self,
        phase: Phase,
        *,
        verb: str = "",
        ms: int = 0,
        only: Callable[[bytes], bool] = lambda _request: True,
    ) -> None:
        """Hit the next exchange, of any connection, whose request *only* says yes to.

        *only* sees the first bytes of the request. *verb* is the name under which the hit is
        counted; *ms* is how long the fault lasts, see `Phase`. Several armed faults wait side by
        side: each exchange is hit by the oldest one that wants it.
        """
        fault = Fault(phase, verb, ms)

        async def arm() -> None:
            self._armed.append((fault, only))

        self._do(arm())

    def follow(self, rule: Rule) -> None:
        """Ask *rule* about every exchange that no armed fault wants, until healed.

        A rule that raises cuts the exchange; `close` raises its error.
        """

        async def follow() -> None:
            self._rule = rule

        self._do(follow())

    def refuse(self) -> None:
        """Refuse new connections until healed; those that are open stay."""
        self._do(self._refuse())

    def cut_all(self) -> None:
        """Reset every open connection, now."""
        self._do(self._cut_all())

    def heal(self) -> None:
        """Disarm and forget the rule, accept connections, and let black holes flow.

        What they held arrives late, as it does when a real network heals; `cut_all` before makes
        that impossible. A fault under way takes its course.
        """
        self._do(self._heal())

    def wait_for_hits(self, count: int = 1, *, seconds: float = _LIMIT_S) -> None:
        """Return when there have been *count* hits in all; raises TimeoutError if there are not."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.hits) >= count, seconds):
                message = f"{count} hits were to come; came: {self.hits}"
                raise TimeoutError(message)

    def close(self) -> None:
        """Cut everything and let go of the port; raises what a rule raised."""
        if self._closed:
            return
        self._closed = True
        self._do(self._refuse())
        self._do(self._cut_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT_S)
        self._loop.close()
        self._place.close()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_S)

    # ---- on the loop

    async def _heal(self) -> None:
        self._armed.clear()
        self._rule = None
        self._listen()
        for connection in self._connections.values():
            if connection is not None:
                connection.flow()

    async def _refuse(self) -> None:
        self._stop_listening()

    async def _cut_all(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _listen(self) -> None:
        if self._listener is None and not self._closed:
            self._listener = _bound(self.port)
            self._listener.listen(_BACKLOG)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            # Gone again before it was accepted.
            return
        task = self._loop.create_task(self._serve(client))
        self._connections[task] = None
        task.add_done_callback(lambda task: self._ended(task, client))

    async def _serve(self, client: socket.socket) -> None:
        family, _, _, _, address = self._found
        server = socket.socket(family, socket.SOCK_STREAM)
        for side in (client, server):
            side.settimeout(0)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.sock_connect(server, address)
        except (OSError, asyncio.CancelledError):
            close(server, reset=True)
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = connection = Connection(
            client, server, choose=self._choose, hit=self._hit, quiet_ms=self._quiet_ms
        )
        await connection.run()

    def _ended(self, task: asyncio.Task[None], client: socket.socket) -> None:
        del self._connections[task]
        # Still open if there was no server, or a cut before the first step.
        close(client, reset=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)

    def _choose(self, request: bytes) -> Fault | None:
        for place, (fault, only) in enumerate(self._armed):
            if only(request):
                del self._armed[place]
                return fault
        return self._rule(request) if self._rule else None

    def _hit(self, fault: Fault) -> None:
        if fault.phase is Phase.REFUSE:
            self._stop_listening()
            if fault.ms:
                self._loop.call_later(fault.ms / 1_000, self._listen)
        self.coverage.hit(fault.verb, fault.phase)
        with self._news:
            self.hits.append((fault.verb, fault.phase))
            self._news.notify_all()


def _bound(port: int) -> socket.socket:
    """Return a socket on *port* (0: a free one) that shares it with others of this process."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.settimeout(0)
    return bound
