"""Supervisor: keeps several processes of the same worker running, and ends them together."""

import ctypes
import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from tarry.cli.exits import INTERRUPTED, OK, RECYCLE, USAGE, talk
from tarry.clock import SYSTEM

SUPERVISOR = "TARRY_SUPERVISOR"
"""The variable that tells a child who started it."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
_STEADY_NS = 60_000_000_000
_LOOK_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1


class _Child:
    """One place in the crew: its command, its process if it runs, else when to start it."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0
        self.again = 0
        self.pause = FIRST_PAUSE

    def start(self) -> None:
        """Start the process, in a session of its own: Ctrl-C reaches it through us alone."""
        environ = {**os.environ, SUPERVISOR: str(os.getpid())}
        self.process = subprocess.Popen(  # noqa: S603 - our own command line
            self.command, env=environ, start_new_session=True
        )
        self.started = SYSTEM.elapsed()

    def send(self, number: int) -> None:
        """Send a signal, if there is anybody to get it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Runs one process per command until it is told to stop.

    A process that dies is started again after a pause that grows with each death, from 1 s to
    30 s, and is forgotten after a minute of good conduct. One that asks to be started anew
    is started at once; one that finds its command line wrong ends all.
    """

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._children = [_Child(number, command) for number, command in enumerate(commands)]
        self._signals = 0
        self._news_out, self._news_in = os.pipe()
        os.set_blocking(self._news_out, False)
        os.set_blocking(self._news_in, False)
        self._code = OK

    def run(self) -> int:
        """Start everybody and look after them; returns the exit code."""
        before = {n: signal.signal(n, self._told) for n in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._news_in, warn_on_full_buffer=False)
        try:
            for child in self._children:
                self._start(child)
            while self._look_after():
                self._wait()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            for child in self._children:
                child.send(signal.SIGKILL)
            os.close(self._news_out)
            os.close(self._news_in)
        return self._code

    def _told(self, number: int, frame: FrameType | None) -> None:
        """Pass the stop on: gently at first, with force the second time."""
        del number, frame
        self._signals += 1
        if self._signals > 1:
            self._code = INTERRUPTED
        for child in self._children:
            child.send(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _look_after(self) -> bool:
        """Collect the dead, start who is to be started; says whether there is anybody left."""
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._ended(child, child.process.returncode)
            if child.process is None and not self._signals and SYSTEM.elapsed() >= child.again:
                self._start(child)
        return not self._signals or any(child.process for child in self._children)

    def _start(self, child: _Child) -> None:
        child.start()
        assert child.process is not None  # noqa: S101 - just started
        talk(f"process {child.number} started (pid {child.process.pid})")
        if self._signals:
            # Told between the decision to start it and its start.
            child.send(signal.SIGTERM)

    def _ended(self, child: _Child, code: int) -> None:
        child.process = None
        if self._signals:
            return
        if code == USAGE:
            self._code = USAGE
            self._told(signal.SIGTERM, None)
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == RECYCLE:
            talk(f"process {child.number} wants to be started anew")
            child.again = 0
            return
        now = SYSTEM.elapsed()
        if now - child.started > _STEADY_NS:
            child.pause = FIRST_PAUSE
        talk(f"process {child.number} {how}; starting it again in {child.pause:g} s")
        child.again = now + int(child.pause * 1e9)
        child.pause = min(child.pause * 2, LONGEST_PAUSE)

    def _wait(self) -> None:
        """Sleep until a signal comes, or until somebody is to be started again."""
        now = SYSTEM.elapsed()
        pauses = [c.again - now for c in self._children if c.process is None]
        limit = None if self._signals or not pauses else max(0.0, min(pauses) / 1e9)
        select.select([self._news_out], [], [], limit)
        with suppress(BlockingIOError):
            os.read(self._news_out, 4_096)


def die_with(parent: int) -> None:
    """Let this process get SIGTERM when its *parent* dies, however that happens."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        armed = libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) == 0
    except (OSError, AttributeError):
        armed = False
    if not armed:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    elif os.getppid() != parent:
        # It died before we could ask to be told.
        os.kill(os.getpid(), signal.SIGTERM)


def _watch_parent(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
