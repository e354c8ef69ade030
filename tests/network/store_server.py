"""A store behind a socket: memory stores, one per namespace, one thread per connection."""

import queue
import socket
import socketserver
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarry.clock import Clock
from tarry.errors import TarryError
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.network import wire

PING_S = 0.1
"""A watcher hears something at least this often: silence means that the line is dead."""


class StoreServer(socketserver.ThreadingTCPServer):
    """Serves every verb of `Store`, `watch`, and `served`: how often each verb was executed."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, clock: Clock | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.begin(clock)

    def begin(self, clock: Clock | None) -> None:
        """Forget everything, and tell time by *clock* from now on."""
        self.clock = clock
        self.stores: dict[str, Store] = {}
        self.executed: Counter[str] = Counter()

    def store(self, namespace: str) -> Store:
        """Return the store of *namespace*."""
        # setdefault is one step: two connections get the same store.
        return self.stores.setdefault(namespace, MemoryStore(namespace=namespace, clock=self.clock))

    def execute(self, verb: str, namespace: str, args: Any, options: Any) -> Any:
        """Do what a request asks for."""
        if verb == "served":
            return self.executed[f"{namespace} {args[0]}"]
        act: Callable[..., Any] = getattr(self.store(namespace), verb)
        answer = act(*args, **options)
        self.executed[f"{namespace} {verb}"] += 1
        return answer


class _Connection(socketserver.BaseRequestHandler):
    server: StoreServer
    request: socket.socket

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError, EOFError):
            while True:
                verb, *rest = wire.read(self.request)
                if verb == "watch":
                    self._watch(self.server.store(*rest))
                self._send(self._answer(verb, rest))

    def _answer(self, verb: str, rest: list[Any]) -> list[Any]:
        try:
            return ["", self.server.execute(verb, *rest)]
        except TarryError as error:
            return [type(error).__name__, str(error)]

    def _watch(self, store: Store) -> None:
        news: queue.Queue[int] = queue.Queue(100)

        def tell(due: int) -> None:
            with suppress(queue.Full):
                news.put_nowait(due)

        undo = store.watch(tell)
        try:
            self._send(None)
            while True:
                try:
                    self._send(news.get(timeout=PING_S))
                except queue.Empty:
                    self._send(None)
        finally:
            undo()

    def _send(self, message: Any) -> None:
        self.request.sendall(wire.frame(message))


if __name__ == "__main__":
    StoreServer(int(sys.argv[1])).serve_forever()
