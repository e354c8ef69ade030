"""Forks: SQLite's locks do not survive one, so that no connection may be open while one happens.

A child inherits SQLite's note that its process holds the file, but not the locks themselves: its
own new connections would then lock nothing, and what it writes could be lost with the WAL that
somebody else believes to be the last to use. So a fork waits until no connection is in use, closes
them all, and lets parent and child open their own.
"""

import os
import threading
import weakref
from abc import ABC, abstractmethod

_WAIT_SECONDS = 10.0


class Lending:
    """Counts the connections in use; while a fork is under way nobody gets one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopped = False
        self.count = 0

    def begin(self) -> None:
        """Count one more in use; waits for the end of a fork."""
        with self._lock:
            while self._stopped:
                self._changed.wait()
            self.count += 1

    def end(self) -> None:
        """Count one less."""
        with self._lock:
            self.count -= 1
            if self._stopped:
                self._changed.notify_all()

    def stop(self) -> None:
        """Lend no more, and wait until none is in use; not for a call that never ends."""
        with self._lock:
            self._stopped = True
            self._changed.wait_for(lambda: not self.count, _WAIT_SECONDS)

    def go_on(self) -> None:
        """Lend again."""
        with self._lock:
            self._stopped = False
            self._changed.notify_all()


class Forkable(ABC):
    """Something that a fork must find closed."""

    @abstractmethod
    def before_fork(self) -> None:
        """Close everything."""

    @abstractmethod
    def after_fork(self) -> None:
        """Go on; in the parent and in the child."""


_forkables: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_resting: list[Forkable] = []


def enter(forkable: Forkable) -> None:
    """Tell *forkable* of every fork from now on."""
    _forkables.add(forkable)


def _before() -> None:
    _resting[:] = list(_forkables)
    for forkable in _resting:
        forkable.before_fork()


def _after() -> None:
    for forkable in _resting:
        forkable.after_fork()
    _resting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
