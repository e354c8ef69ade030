"""Book: a ledger on disk that many processes write, and that survives any of them."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tarry.testing.ledger.entries import Entry

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


class Book:
    """An append-only file, one entry a line; the order of lines is the order of events.

    Each line is one write at the end of the file. Who is killed within it may leave a part, which
    ends where a page of the file does: the kernel looks for signals between two pages. Such a part
    counts as never written, as if the kill had come a moment before. The newline that each write
    begins with keeps it apart from what others write behind it. A book may be handed to children
    by a fork, or opened anew by any process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        self._read = 0
        self._entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        """Append one entry; raises OSError if the file could not take the whole of it."""
        line = b"\n" + _ENCODER.encode(entry) + b"\n"
        written = os.write(self._fd, line)
        if written < len(line):
            message = f"{self.path}: {written} of {len(line)} bytes written, the book is torn"
            raise OSError(message)

    def entries(self) -> Sequence[Entry]:
        """Return all that was written so far; what was read once is not read again.

        A last line without its end is left for the next time.
        """
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        try:
            self._entries += _DECODER.decode_lines(whole)
        except msgspec.DecodeError:
            self._entries += self._without_torn(whole)
        self._read += len(whole)
        return self._entries

    def _without_torn(self, whole: bytes) -> list[Entry]:
        found, end = list[Entry](), self._read
        for line in whole.splitlines(keepends=True):
            end += len(line)
            try:
                found += _DECODER.decode_lines(line)
            except msgspec.DecodeError:
                if (end - 1) % _PAGE:
                    raise
        return found

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
