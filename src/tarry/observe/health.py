"""The health port: /livez, /readyz and /metrics of one worker, for probes on the same machine."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tarry.errors import ConfigError
from tarry.events import Event, WorkerStarted
from tarry.observe.metrics import CONTENT_TYPE, Metrics

_TURN_SECONDS = 5.0
_PLAIN = "text/plain; charset=utf-8"
_Answer = tuple[HTTPStatus, str, str]


class Health:
    """Answers probes on a port of 127.0.0.1 while the block lasts.

    *ready* says whether the worker takes tasks now. Hand `on` to `app.listen`: the first event of
    the worker tells on which event loop it runs.
    """

    def __init__(self, port: int, *, ready: Callable[[], bool]) -> None:
        self.metrics = Metrics()
        self._ready = ready
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except OSError as error:
            message = f"the health port {port} cannot be used: {error.strerror}"
            raise ConfigError(message) from error
        self._server.health = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tarry-health", daemon=True
        )

    def on(self, event: Event) -> None:
        """Take note of *event*."""
        if isinstance(event, WorkerStarted):
            with suppress(RuntimeError):
                self._loop = asyncio.get_running_loop()
        self.metrics.on(event)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> _Answer:
        """Return status, content type and body for *path*."""
        match path.partition("?")[0]:
            case "/livez":
                return _said(ok=self._turns(), no="the event loop does not turn")
            case "/readyz":
                started = self._loop is not None
                return _said(ok=started and self._ready(), no="no store, starting or stopping")
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, self.metrics.text()
            case _:
                return HTTPStatus.NOT_FOUND, _PLAIN, "try /livez, /readyz or /metrics\n"

    def _turns(self) -> bool:
        """Say whether the loop runs a callback in time; one that has not begun may be slow."""
        if self._loop is None:
            return True
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return False
        return turned.wait(_TURN_SECONDS)


def _said(*, ok: bool, no: str) -> _Answer:
    if ok:
        return HTTPStatus.OK, _PLAIN, "ok\n"
    return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{no}\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    health: Health

    def server_bind(self) -> None:
        """Bind without asking a name server who we are, as the standard library would."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10
    server_version = "tarry"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a probe."""
        self._send(body=True)

    def do_HEAD(self) -> None:
        """Answer a probe that wants no body."""
        self._send(body=False)

    def _send(self, *, body: bool) -> None:
        status, content_type, text = self.server.health.answer(self.path)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing: probes come every few seconds."""
