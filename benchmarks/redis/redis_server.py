"""A Redis of its own for each program: append-only file, a sync every second, no snapshots.

The file is never rewritten meanwhile: the fork for that would fall into somebody's measure.
"""

import argparse
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import above  # noqa: F401 - for the next imports
import measure
from redis import Redis
from redis.exceptions import RedisError

HOST = "127.0.0.1"
SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "auto-aof-rewrite-percentage": "0",
}
_START_SECONDS = 120
_POLL_SECONDS = 0.02


class RedisServer:
    """A running server; what it keeps lies in *folder*."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = {**SETTINGS, **{k.replace("_", "-"): v for k, v in settings.items()}}
        with socket.create_server((HOST, 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"redis://{HOST}:{self.port}"
        self.process = self._start()

    def _start(self) -> measure.Process:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server is not installed")
        words: list[object] = [program, "--port", self.port, "--bind", HOST, "--dir", self._folder]
        words += ["--logfile", self._folder / "redis.log"]
        for name, value in self._settings.items():
            words += [f"--{name}", value]
        process = measure.Process(words)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with closing(self.client()) as client:
                    client.ping()
            except RedisError:
                # Nobody listens yet, or the file is being read.
                if time.monotonic() > deadline:
                    process.kill()
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return process

    def client(self) -> Redis:
        """Return a client that knows nothing of tarry."""
        return Redis(host=HOST, port=self.port)

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        self.process.kill()

    def start_again(self) -> None:
        """Start the server that was killed, on the same port and files."""
        self.process = self._start()

    def info(self, section: str) -> Mapping[str, Any]:
        """Return what the server tells of itself."""
        with closing(self.client()) as client:
            found: Any = client.info(section)
        return dict(found)

    def used_memory(self) -> int:
        """Return the bytes the server holds."""
        return int(self.info("memory")["used_memory"])

    def await_forgotten_calls(self, seconds: float = 40) -> bool:
        """Wait until no key is left that expires: tarry's memory of calls lasts 30 s."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not any(int(db["expires"]) for db in self.info("keyspace").values()):
                return True
            time.sleep(0.5)
        return False


@contextmanager
def serving(options: argparse.Namespace, **settings: str) -> Iterator[RedisServer]:
    """Lend a fresh server."""
    with measure.scratch(options) as folder:
        server = RedisServer(folder, **settings)
        try:
            yield server
        finally:
            server.process.stop()
