"""RedisServer: a Redis of the campaign's own, to be killed and started again."""

import shutil
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tarry.clock import SYSTEM, nap
from tarry.errors import TarryError

_HOST = "127.0.0.1"
_PROGRAM = "redis-server"
_PATIENCE_NS = 20_000_000_000
_TICK = 0.005
_SYNCED = ("--appendonly", "yes", "--appendfsync", "always")
_FORGETFUL = ("--appendonly", "no")


def unavailable() -> str:
    """Say what is not installed, and how to get it; empty if nothing is missing."""
    if find_spec("redis") is None or find_spec("hiredis") is None:
        return "the driver is not installed: pip install 'tarry[redis]'"
    if shutil.which(_PROGRAM) is None:
        return f"{_PROGRAM} is not installed: apt-get install redis-server"
    return ""


class RedisServerError(TarryError):
    """The server does not start; its log says why."""


class RedisServer:
    """A Redis with its files in *folder*: every write is synced, or with *keeps* false none."""

    def __init__(self, folder: Path, *, keeps: bool = True) -> None:
        # Nobody else can listen there while this socket is bound, and it never listens itself.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind((_HOST, 0))
        self.port: int = self._place.getsockname()[1]
        self.url = f"redis://{_HOST}:{self.port}"
        self._folder = folder
        self._keeps = keeps
        self.start()

    def start(self) -> None:
        """Start it, again if it was killed; returns when it has read its files and answers."""
        files = _SYNCED if self._keeps else _FORGETFUL
        where = ("--bind", _HOST, "--port", str(self.port), "--dir", str(self._folder))
        log = ("--logfile", str(self._folder / "redis.log"), "--save", "")
        self._process = subprocess.Popen(  # noqa: S603 - a program by its name, with words of ours
            [_PROGRAM, *where, *log, *files], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        deadline = SYSTEM.elapsed() + _PATIENCE_NS
        while not self._answers():
            if self._process.poll() is not None or SYSTEM.elapsed() > deadline:
                self.kill()
                message = f"{_PROGRAM} does not start: see {self._folder}/redis.log"
                raise RedisServerError(message)
            nap(_TICK)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection((_HOST, self.port), 1) as line:
            line.sendall(b"PING\r\n")
            # While it reads its files it says LOADING.
            return line.recv(5) == b"+PONG"
        return False

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._place.close()
