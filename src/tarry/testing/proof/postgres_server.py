"""PostgresServer: a PostgreSQL of the campaign's own, to be killed and started again."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from tarry.clock import SYSTEM, nap
from tarry.errors import TarryError

HOST = "127.0.0.1"
ROLE = "tarry"
_FOLDERS = "/usr/lib/postgresql"
_PATIENCE_NS = 30_000_000_000
_TICK = 0.01
_SMALL = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "log_min_messages": "warning",
    "checkpoint_timeout": "1h",
}
_FORGETFUL = {"synchronous_commit": "off", "wal_writer_delay": "10s", "commit_delay": "0"}


def program(name: str) -> str | None:
    """Return where a program of the server is: Debian keeps them out of the way, by version."""
    found = shutil.which(name)
    if found is None and Path(_FOLDERS).is_dir():
        versions = sorted(Path(_FOLDERS).glob(f"*/bin/{name}"), key=_version)
        found = str(versions[-1]) if versions else None
    return found


def _version(path: Path) -> float:
    with suppress(ValueError):
        return float(path.parts[-3])
    return 0.0


def unavailable() -> str:
    """Say what is not installed, and how to get it; empty if nothing is missing."""
    if find_spec("psycopg") is None:
        return "the driver is not installed: pip install 'tarry[postgres]'"
    if program("initdb") is None or program("postgres") is None:
        return "the server is not installed: apt-get install postgresql"
    return ""


class PostgresServerError(TarryError):
    """The server does not start; its log says why."""


class PostgresServer:
    """A PostgreSQL with files of its own, below *folder*; with *settings* beyond those it needs.

    With *keeps* false it acknowledges what it has not written down.
    """

    def __init__(
        self,
        *,
        keeps: bool = True,
        settings: dict[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        # Nobody else can listen there while this socket is bound, and it never listens itself.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind((HOST, 0))
        self.port: int = self._place.getsockname()[1]
        self._settings = {
            **_SMALL,
            "port": str(self.port),
            **({} if keeps else _FORGETFUL),
            **(settings or {}),
        }
        # The server refuses to run as root: its files belong to somebody without rights.
        self._user = _unprivileged()
        self.folder = Path(mkdtemp(prefix="tarry-postgres-", dir=folder))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if self._user is not None:
                os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            self._run("initdb", "-D", self.data, "-U", ROLE, "-A", "trust", *_QUICKLY)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> str:
        """The folder of the database cluster."""
        return str(self.folder / "data")

    @property
    def url(self) -> str:
        """Where the database is that is there from the beginning."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{ROLE}@{HOST}:{self.port}/{database}"

    def start(self) -> None:
        """Start it, again if it was killed; returns when it has recovered and answers."""
        words = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = self._spawn("postgres", "-D", self.data, *words, out=log.fileno())
        deadline = SYSTEM.elapsed() + _PATIENCE_NS
        while not self._answers():
            if self._process.poll() is not None or SYSTEM.elapsed() > deadline:
                self.kill()
                message = f"postgres does not start: {self._log()}"
                raise PostgresServerError(message)
            nap(_TICK)

    def _answers(self) -> bool:
        from psycopg.pq import PGconn, Ping  # noqa: PLC0415 - only where the driver is there

        return PGconn.ping(f"{self.url}?connect_timeout=2".encode()) == Ping.OK

    def _log(self) -> str:
        with suppress(OSError):
            return (self.folder / "log").read_text(errors="replace")[-2_000:]
        return "it left no log"

    def kill(self) -> None:
        """End it at once, as `pg_ctl stop -m immediate` does: nothing is written any more."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def freeze(self) -> None:
        """Stop the postmaster: connections are taken by nobody."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it for good, and remove its files."""
        self.kill()
        self._place.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, *words: str) -> None:
        with (self.folder / "log").open("ab") as log:
            process = self._spawn(name, *words, out=log.fileno())
            if process.wait():
                message = f"{name} failed: {self._log()}"
                raise PostgresServerError(message)

    def _spawn(self, name: str, *words: str, out: int) -> "subprocess.Popen[bytes]":
        found = program(name)
        if found is None:
            raise PostgresServerError(unavailable())
        user = self._user
        return subprocess.Popen(  # noqa: S603 - a program by its name, with words of ours
            [found, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=self.folder,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            # Not interrupted with whoever started it.
            start_new_session=True,
        )


_QUICKLY = ("-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")


def _unprivileged() -> pwd.struct_passwd | None:
    """Return whom the server is to run as; None: as whoever we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    return None
