"""MysqlServer: a MariaDB of the campaign's own, to be killed and started again."""

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tarry.clock import SYSTEM, nap
from tarry.errors import TarryError

_HOST = "127.0.0.1"
_PROGRAM = "mariadbd"
_INSTALL = "mariadb-install-db"
_PATIENCE_NS = 30_000_000_000
_TICK = 0.005
_SMALL = (
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--aria-pagecache-buffer-size=8M",
    "--key-buffer-size=1M",
)
_LEAN = ("--skip-log-bin", "--skip-name-resolve", "--performance-schema=OFF", "--skip-ssl")
DATABASE = "tarry"
SYNCED = ("--innodb-flush-log-at-trx-commit=1",)
UNSYNCED = ("--innodb-flush-log-at-trx-commit=2",)
_FORGETFUL = ("--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=2700")


def unavailable() -> str:
    """Say what is not installed, and how to get it; empty if nothing is missing."""
    if find_spec("pymysql") is None:
        return "the driver is not installed: pip install 'tarry[mysql]'"
    if _found(_PROGRAM) is None or _found(_INSTALL) is None:
        return f"{_PROGRAM} is not installed: apt-get install mariadb-server"
    return ""


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


class MysqlServerError(TarryError):
    """The server does not start; its log says why."""


@cache
def _account() -> str:
    """Return who the server runs as: it must not be root; empty: whoever calls."""
    if os.geteuid() != 0:
        return ""
    for name in ("mysql", "nobody"):
        with suppress(KeyError):
            pwd.getpwnam(name)
            return name
    return "root"


@cache
def _template() -> Path:
    """Make the files of an empty server once; each server gets a copy."""
    folder = _folder("tarry-mariadb-empty-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _own(folder)
    user = (f"--user={_account()}",) if _account() else ()
    auth = ("--auth-root-authentication-method=normal", "--skip-test-db")
    done = subprocess.run(  # noqa: S603 - a program by its name, with words of ours
        [
            _found(_INSTALL) or _INSTALL,
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            # Not the one of all: a server that starts removes what it takes for leftovers there.
            f"--tmpdir={folder}",
            *auth,
            *_LEAN,
            *_SMALL,
            *user,
        ],
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode:
        message = f"{_INSTALL} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise MysqlServerError(message)
    # Databases are folders.
    (folder / "data" / DATABASE).mkdir()
    return folder / "data"


def _folder(prefix: str) -> Path:
    # Not below a folder that only root may enter: the server is somebody else.
    return Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("TMPDIR", "/tmp")))  # noqa: S108


def _own(folder: Path) -> None:
    """Hand a folder over to the server's account."""
    if not _account():
        return
    shutil.chown(folder, _account())
    for path in folder.rglob("*"):
        shutil.chown(path, _account())


class Files:
    """The files of one server, gone when it is closed."""

    def __init__(self, *options: str) -> None:
        self._options = options
        template = _template()
        self.folder = _folder("tarry-mariadb-")
        shutil.copytree(template, self.folder / "data")
        _own(self.folder)

    @property
    def log(self) -> Path:
        """Where the server says what is wrong."""
        return self.folder / "error.log"

    def command(self, port: int) -> list[str]:
        """Return the command that starts the server."""
        user = [f"--user={_account()}"] if _account() else []
        return [
            _found(_PROGRAM) or _PROGRAM,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={self.folder}",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--log-error={self.log}",
            f"--bind-address={_HOST}",
            f"--port={port}",
            *_LEAN,
            *_SMALL,
            *self._options,
            *user,
        ]

    def close(self) -> None:
        """Remove them."""
        shutil.rmtree(self.folder, ignore_errors=True)


def url(port: int) -> str:
    """Return the URL of a store on a server of ours."""
    return f"mysql://root@{_HOST}:{port}/{DATABASE}"


class MysqlServer:
    """A MariaDB with files of its own: every commit is synced, or with *keeps* false none."""

    def __init__(self, *, keeps: bool = True, options: Sequence[str] = ()) -> None:
        # Nobody else can listen there while this socket is bound, and it never listens itself.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind((_HOST, 0))
        self.port: int = self._place.getsockname()[1]
        self.url = url(self.port)
        self._files = Files(*(SYNCED if keeps else _FORGETFUL), *options)
        self.start()

    def start(self) -> None:
        """Start it, again if it was killed; returns when it has read its files and answers."""
        self._process = subprocess.Popen(  # noqa: S603 - a program by its name, with words of ours
            self._files.command(self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = SYSTEM.elapsed() + _PATIENCE_NS
        while not answers(self.port):
            if self._process.poll() is not None or SYSTEM.elapsed() > deadline:
                self.kill()
                message = f"{_PROGRAM} does not start: see {self._files.log}"
                raise MysqlServerError(message)
            nap(_TICK)

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._place.close()
        self._files.close()


def answers(port: int) -> bool:
    """Say whether a server greets whoever connects."""
    with suppress(OSError), socket.create_connection((_HOST, port), 1) as line:
        return len(line.recv(5)) > 0
    return False
