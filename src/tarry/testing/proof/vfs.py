"""What SQLite asks of the disk, recorded: a thin layer between its pager and its own file system.

The layer sits in the very library that Python's `sqlite3` uses: SQLite's default VFS is copied and
the few functions that change files are replaced; all others (reads, locks, shared memory) stay
SQLite's own. The store under test notices nothing: same code, same statements, same pragmas. A sync
is recorded but not done, since the machine itself does not lose its power; one of them may fail.
"""

import _sqlite3
import ctypes
import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ctypes import CFUNCTYPE, c_char_p, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tarry.stores.sqlite import doubt

What = Literal["create", "write", "truncate", "sync", "failed sync", "delete"]

_OK = 0
_OPEN_CREATE = 0x4
_OPEN_JOURNALS = 0x800 | 0x4000 | 0x80000
"""Rollback journal, super journal, WAL: SQLite syncs their folder with a handle's first sync."""


class Step(NamedTuple):
    """One change that was asked of the disk."""

    what: What
    name: str
    """The file's name within the recorded folder."""
    offset: int = 0
    """Where it writes, or the size it truncates to."""
    data: bytes = b""
    folder: bool = False
    """A sync or a deletion that makes the folder's entries durable too."""


class Recording:
    """The steps that SQLite takes in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self.steps: list[Step] = []
        self.names = {path.name for path in Path(self.folder).iterdir()}
        """The files that were there before, or that SQLite has made."""
        self.fails_in = 0
        """The how many-th sync from now on fails; 0: none does."""

    def fails(self) -> bool:
        """Count a sync; says whether it is the one to fail."""
        self.fails_in -= 1
        return self.fails_in == 0


class _Handle:
    """An open file."""

    def __init__(self, recording: Recording, name: str, native: Any, *, journal: bool) -> None:
        self.recording = recording
        self.name = name
        self.native = native
        self.syncs_folder = journal


# Pointers stay numbers: SQLite keeps those it hands over, and Python must not move them.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Methods(ctypes.Structure):
    """SQLite's `sqlite3_io_methods`; what is not named is only carried along."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("others", c_void_p * 13),
    )


class _File(ctypes.Structure):
    """SQLite's `sqlite3_file`; what follows belongs to the VFS."""

    _fields_ = (("methods", c_void_p),)


class _Vfs(ctypes.Structure):
    """SQLite's `sqlite3_vfs`."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", _Open),
        ("delete", _Delete),
        ("others", c_void_p * 14),
    )


class _Layer:
    """The functions in place of SQLite's own.

    Made once in a process and never freed: a connection keeps a pointer to it.
    """

    def __init__(self, library: Any) -> None:
        self._register = library.sqlite3_vfs_register
        self._register.argtypes = (c_void_p, c_int)
        library.sqlite3_vfs_find.restype = c_void_p
        library.sqlite3_vfs_find.argtypes = (c_char_p,)
        self._native = _Vfs.from_address(library.sqlite3_vfs_find(None))
        self._recording: Recording | None = None
        self._handles: dict[int, _Handle] = {}
        self._tables: dict[int, _Methods] = {}
        self._replaced = (_Write(self._write), _Truncate(self._truncate), _Sync(self._sync))
        self._vfs = _Vfs.from_buffer_copy(self._native)
        self._vfs.name = b"tarry-recording"
        self._vfs.open = _Open(self._open)
        self._vfs.delete = _Delete(self._delete)

    @contextmanager
    def record(self, recording: Recording) -> Iterator[None]:
        """Record what connections opened in the block do; they must be closed in it, too."""
        self._handles.clear()
        self._recording = recording
        self._register(ctypes.addressof(self._vfs), 1)
        vars(doubt)["write_again"] = self._write_again
        try:
            yield
        finally:
            vars(doubt)["write_again"] = _write_again
            self._recording = None
            self._register(ctypes.addressof(self._native), 1)

    def _name(self, path: int | None) -> str | None:
        """Return the name of a file in the recorded folder, None for any other."""
        if path is None or self._recording is None:
            return None
        folder, name = os.path.split(os.fsdecode(ctypes.string_at(path)))
        return name if folder == self._recording.folder else None

    def _write_again(self, path: str) -> None:
        """Do the one thing that the store itself asks of the disk."""
        folder, name = os.path.split(path)
        recording = self._recording
        if recording is None or folder != recording.folder:
            _write_again(path)
            return
        recording.steps.append(Step("write", name, 0, Path(path).read_bytes()))
        if recording.fails():
            recording.steps.append(Step("failed sync", name))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        _write_again(path)
        recording.steps.append(Step("sync", name))

    def _open(self, _vfs: int, path: int | None, file: int, flags: int, out: int | None) -> int:
        code: int = self._native.open(ctypes.addressof(self._native), path, file, flags, out)
        name, recording = self._name(path), self._recording
        if code == _OK and name is not None and recording is not None:
            journal = bool(flags & _OPEN_CREATE and flags & _OPEN_JOURNALS)
            native = self._replace(_File.from_address(file))
            self._handles[file] = _Handle(recording, name, native, journal=journal)
            if name not in recording.names:
                recording.names.add(name)
                recording.steps.append(Step("create", name))
        return code

    def _replace(self, file: _File) -> _Methods:
        """Put our functions into a file that was just opened; returns SQLite's own."""
        address = int(file.methods)
        native = _Methods.from_address(address)
        if address not in self._tables:
            table = self._tables[address] = _Methods.from_buffer_copy(native)
            table.write, table.truncate, table.sync = self._replaced
        file.methods = ctypes.addressof(self._tables[address])
        return native

    def _delete(self, _vfs: int, path: int, folder: int) -> int:
        code: int = self._native.delete(ctypes.addressof(self._native), path, folder)
        name, recording = self._name(path), self._recording
        if code == _OK and recording is not None and name in recording.names:
            recording.names.remove(name)
            recording.steps.append(Step("delete", name, folder=bool(folder)))
        return code

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        handle = self._handles[file]
        code: int = handle.native.write(file, data, size, offset)
        if code == _OK:
            content = ctypes.string_at(data, size)
            handle.recording.steps.append(Step("write", handle.name, offset, content))
        return code

    def _truncate(self, file: int, size: int) -> int:
        handle = self._handles[file]
        code: int = handle.native.truncate(file, size)
        if code == _OK:
            handle.recording.steps.append(Step("truncate", handle.name, size))
        return code

    def _sync(self, file: int, _flags: int) -> int:
        handle = self._handles[file]
        if handle.recording.fails():
            handle.recording.steps.append(Step("failed sync", handle.name))
            return sqlite3.SQLITE_IOERR_FSYNC
        folder, handle.syncs_folder = handle.syncs_folder, False
        handle.recording.steps.append(Step("sync", handle.name, folder=folder))
        return _OK


_write_again = doubt.write_again


@lru_cache(maxsize=1)
def _layer() -> _Layer:
    # Its own symbols and those of the libraries it was linked with.
    return _Layer(ctypes.CDLL(getattr(_sqlite3, "__file__", None)))


@contextmanager
def recorded(folder: str) -> Iterator[Recording]:
    """Record what SQLite does in *folder* by connections that are opened and closed in the block.

    One at a time in a process; connections to files elsewhere are left alone.
    """
    recording = Recording(folder)
    with _layer().record(recording):
        yield recording


def unavailable() -> str:
    """Say why nothing can be recorded here; empty if it can."""
    hidden = "this Python does not show the library behind its sqlite3"
    try:
        with tempfile.TemporaryDirectory() as folder, recorded(folder) as recording:
            with closing(sqlite3.connect(f"{folder}/probe")) as db:
                db.execute("CREATE TABLE probe (x)")
            return "" if recording.steps else hidden
    except (AttributeError, OSError) as error:
        return f"{hidden}: {error}"
