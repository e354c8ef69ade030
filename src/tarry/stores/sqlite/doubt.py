"""Doubt: a sync has failed, and nothing is promised before the WAL was written once more.

A page whose sync failed may count as written although it never was. What is committed behind it
would be lost with it in a power cut, and a checkpoint would rest on a WAL that is not there; no
later sync makes up for it, unless the page is written again.

The doubt is a byte of the lock file: every process on the file shares it, and the next one finds
it. The byte is mapped: to look at it is no system call.
"""

import mmap
import os
from contextlib import suppress

_CHUNK = 1 << 20


class Doubt:
    """Whether a sync has failed, and the WAL was not written again since."""

    def __init__(self) -> None:
        self._here = False
        """What only this process knows, where the byte cannot be written."""
        self._side: int | None = None
        self._byte: mmap.mmap | None = None

    def share(self, side: int) -> None:
        """Share it with all who have the file *side* open, until `part`."""
        with suppress(OSError, ValueError):
            # A hole would do, but not on a full disk: to look into it kills the process.
            if not os.fstat(side).st_size:
                os.pwrite(side, b"\0", 0)
            self._byte = mmap.mmap(side, 1, access=mmap.ACCESS_READ)
            self._side = side

    def part(self) -> None:
        """Let go of the file."""
        if self._byte is not None:
            self._byte.close()
        self._side = self._byte = None

    def stands(self) -> bool:
        """Say whether there is doubt."""
        return self._here or (self._byte is not None and self._byte[0] != 0)

    def begin(self) -> None:
        """Doubt."""
        self._here = not self._tell(b"\1")

    def end(self, wal: str) -> None:
        """Write the WAL once more, and doubt no longer; for whom nobody else writes to it."""
        write_again(wal)
        self._here = False
        self._tell(b"\0")

    def _tell(self, byte: bytes) -> bool:
        """Write the byte; not through the map, for the same reason."""
        with suppress(OSError):
            return self._side is not None and os.pwrite(self._side, byte, 0) == 1
        return False


def write_again(path: str) -> None:
    """Write a file's own bytes to it, and sync it: readers see no change."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        offset = 0
        while chunk := os.pread(file, _CHUNK, offset):
            offset += os.pwrite(file, chunk, offset)
        os.fsync(file)
    finally:
        os.close(file)
