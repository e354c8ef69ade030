"""What `tarry doctor` sees of a store that is a file: rights, folder, leftovers."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PRIVATE = 0o077


def file_facts(file: str) -> dict[str, str]:
    """Return where the file is and who may use it."""
    path = Path(file).absolute()
    return {"file": str(path), "mode": f"{stat.S_IMODE(path.stat().st_mode):04o}"}


def file_findings(file: str) -> Iterator[str]:
    """Tell what is wrong around the file."""
    path = Path(file).absolute()
    if os.name == "posix":
        yield from _rights(path)
    yield from _leftover_sockets(path)


def _rights(path: Path) -> Iterator[str]:
    for suffix in ("", "-wal", "-shm", "-lock"):
        part = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(part.stat().st_mode)
            if mode & _PRIVATE:
                yield f"{part} has mode {mode:04o}: others may use it; chmod 600 {part}"
    if path.parent.stat().st_mode & stat.S_IWOTH:
        yield f"{path.parent} is writable for everybody: move the store to a folder of its own"


def _leftover_sockets(path: Path) -> Iterator[str]:
    """Tell of sockets whose worker died without cleaning up; the next wake-up removes them."""
    folder = path.with_name(f"{path.name}-wake")
    dead = [found for found in sorted(folder.glob("*.sock")) if not _listens(folder, found.name)]
    if dead:
        yield f"{len(dead)} sockets of dead workers lie in {folder}; the next wake-up removes them"


def _listens(folder: Path, name: str) -> bool:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            # By way of the descriptor: the name of a socket may have only 104 bytes.
            out.connect(f"/proc/self/fd/{fd}/{name}")
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
    return True
