"""Real servers as child processes: started in bounded time, stopped, killed, started again."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pytest

from tarry.clock import SYSTEM, nap
from tarry.testing.proof import postgres_server
from tarry.testing.proof.postgres_server import PostgresServer

HOST = "127.0.0.1"
LIMIT = 20.0
"""Seconds in which what must come has come."""


def until(reached: Callable[[], object], what: str, seconds: float = LIMIT) -> None:
    """Wait for something another process does, but not for ever."""
    deadline = SYSTEM.elapsed() + int(seconds * 1e9)
    while not reached():
        assert SYSTEM.elapsed() < deadline, f"{what}: not within {seconds} s"
        nap(0.005)


def reserved() -> socket.socket:
    """Return a socket that keeps a port for a server of ours: none but it can listen there."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind((HOST, 0))
    return place


class SupportsClose(Protocol):
    """Something that is removed when its server has ended."""

    def close(self) -> None: ...


class Server:
    """A server process that listens on a port of its own, the same one after each start."""

    files: SupportsClose | None = None
    """What goes with it."""

    def __init__(
        self,
        command: Callable[[int], list[str]],
        place: socket.socket | None = None,
        greets: Callable[[int], bool] | None = None,
    ) -> None:
        self._command = command
        self._greets = greets
        self._place = place or reserved()
        self.port: int = self._place.getsockname()[1]
        self._process = self._spawn()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            self._command(self.port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

        def listens() -> bool:
            assert process.poll() is None, f"{process.args!r} has ended"
            if self._greets is not None:
                return self._greets(self.port)
            with socket.socket() as probe:
                return probe.connect_ex((HOST, self.port)) == 0

        try:
            until(listens, "the server listens")
        except BaseException:
            process.kill()
            process.wait(LIMIT)
            raise
        return process

    def start(self) -> None:
        """Start it again after a kill."""
        self._process = self._spawn()

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait(LIMIT)

    def stop(self) -> None:
        """Freeze it: connections are made and bytes taken, but nothing is answered."""
        os.kill(self._process.pid, signal.SIGSTOP)
        # On a busy machine it may run for a while before it notices.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let a frozen one go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._place.close()
        if self.files is not None:
            self.files.close()


def python(script: str, *arguments: str) -> Server:
    """Start a script of this folder; its first argument is the port."""
    path = str(Path(__file__).with_name(script))
    return Server(lambda port: [sys.executable, path, str(port), *arguments])


UNSYNCED = ("--appendfsync", "no")
"""Makes a Redis faster that nobody kills."""


def needed(name: str) -> str:
    """Return where a program is; without it a test is skipped at a desk, and fails in CI."""
    program = shutil.which(name)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return program


def redis(folder: Path, *options: str) -> Server:
    """Start Redis with its data in *folder*, every write synced; *options* are its own."""
    program = needed("redis-server")
    common = ["--bind", HOST, "--dir", str(folder), "--loglevel", "warning"]
    synced = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    return Server(lambda port: [program, "--port", str(port), *common, *synced, *options])


_RAM = "/dev/shm"
_ROOM = 1 << 30


def needs_postgres() -> None:
    """Skip a test where there is no PostgreSQL; in CI it fails."""
    missing = postgres_server.unavailable()
    if missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)


def postgres(**settings: str) -> PostgresServer:
    """Start a PostgreSQL; its syncs cost little where its files lie in memory."""
    needs_postgres()
    roomy = Path(_RAM).is_dir() and shutil.disk_usage(_RAM).free > _ROOM
    return PostgresServer(settings=settings, folder=_RAM if roomy else None)


@cache
def _shared(_pid: int) -> PostgresServer:
    server = postgres()
    atexit.register(server.close)
    return server


def shared_postgres() -> PostgresServer:
    """Return the one server of this process, which everybody uses and nobody breaks."""
    needs_postgres()
    return _shared(os.getpid())


def mariadb(*options: str) -> Server:
    """Start MariaDB with a database `tarry`; commits are not synced unless *options* say so."""
    from tarry.testing.proof import mysql_server

    needed("mariadbd")
    needed("mariadb-install-db")
    files = mysql_server.Files(*mysql_server.UNSYNCED, *options)
    server = Server(files.command, greets=mysql_server.answers)
    server.files = files
    return server
