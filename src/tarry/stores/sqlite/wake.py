"""Wake-ups between processes: one datagram socket per worker process, in a folder beside the file.

A datagram carries the due of what became claimable. The folder is reached through a descriptor
(/proc/self/fd), so that the path stays under a socket's 104 bytes however deep the file lies;
where that is not to be had, nobody is woken and workers see news at their next look.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tarry.clock import SYSTEM
from tarry.stores.store import Watcher

_DUE = struct.Struct("<q")
_STOP = -1
_TICK_NS = 50_000_000


class Wakeups:
    """Tells the workers of every process that uses the file."""

    def __init__(self, path: str) -> None:
        self._folder = f"{path}-wake"
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._listener: _Listener | None = None
        self._fd: int | None = None
        self._seen = 0
        self._names: list[str] = []
        self._out: socket.socket | None = None

    def _own(self) -> None:
        if self._pid != os.getpid():
            self._begin_process()

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* for news of any process, this one included."""
        self._own()
        with self._lock:
            self._watchers.append(callback)
            if self._listener is None and self._reach(make=True):
                with suppress(OSError):
                    self._listener = _Listener(f"/proc/self/fd/{self._fd}", self._tell)

        def undo() -> None:
            with self._lock:
                if callback in self._watchers:
                    self._watchers.remove(callback)

        return undo

    def _tell(self, due: int) -> None:
        for watcher in list(self._watchers):
            watcher(due)

    def notify(self, due: int) -> None:
        """Tell every process that something is claimable at *due*."""
        self._own()
        self._tell(due)
        with self._lock:
            if not self._reach(make=False):
                return
            assert self._fd is not None  # noqa: S101 - reached
            self._refresh(self._fd)
            own = self._listener.name if self._listener else ""
            for name in self._names:
                if name != own:
                    self._send(name, due)

    def _send(self, name: str, due: int) -> None:
        if self._out is None:
            self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._out.setblocking(False)  # noqa: FBT003 - the socket's own
        try:
            self._out.sendto(_DUE.pack(due), f"/proc/self/fd/{self._fd}/{name}")
        except ConnectionRefusedError:
            # Its process died without cleaning up.
            with suppress(OSError):
                os.unlink(name, dir_fd=self._fd)
        except OSError:
            # A full queue means that it is being woken already; a vanished one needs no news.
            pass

    def _reach(self, *, make: bool) -> bool:
        """Hold a descriptor of the folder; says whether there is one."""
        if self._fd is not None:
            if os.fstat(self._fd).st_nlink:
                return True
            # Somebody swept the folder away.
            os.close(self._fd)
            self._fd = None
        if not Path("/proc/self/fd").is_dir():  # pragma: no cover - Linux has it
            return False
        try:
            if make:
                Path(self._folder).mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _refresh(self, fd: int) -> None:
        """List the folder again if it has changed.

        File systems tell time in steps of some milliseconds: a change just now may not be the last
        one of its instant, so that only an older one is remembered as seen.
        """
        changed = os.fstat(fd).st_mtime_ns
        if changed != self._seen:
            self._names = [name for name in os.listdir(fd) if name.endswith(".sock")]
            settled = abs(SYSTEM.now_us() * 1_000 - changed) > _TICK_NS
            self._seen = changed if settled else 0

    def close(self) -> None:
        """Stop listening and leave the folder clean."""
        if self._pid != os.getpid():
            return
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        with self._lock:
            if self._out is not None:
                self._out.close()
                self._out = None
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


class _Listener:
    """A socket and the thread that reads it."""

    def __init__(self, folder: str, tell: Watcher) -> None:
        self.name = f"{os.getpid()}-{os.urandom(4).hex()}.sock"
        self._path = f"{folder}/{self.name}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(self._path)
        except OSError:
            self._socket.close()
            raise
        self._tell = tell
        self._thread = threading.Thread(target=self._listen, name="tarry-wake", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(64)
            except OSError:
                return
            if len(data) != _DUE.size:
                continue
            [due] = _DUE.unpack(data)
            if due == _STOP:
                return
            self._tell(due)

    def close(self) -> None:
        """Stop the thread and remove the socket."""
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out,
        ):
            out.sendto(_DUE.pack(_STOP), self._path)
        self._thread.join(timeout=5)
        with suppress(OSError):
            Path(self._path).unlink()
        self._socket.close()
