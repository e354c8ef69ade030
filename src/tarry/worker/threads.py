"""Threads: run plain handlers beside the loop; a thread that hangs is abandoned and replaced."""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Job = Callable[[], None]


class Threads:
    """Up to *limit* threads, started as they are needed, each running one job after the other."""

    def __init__(self, limit: int, spawn: Callable[[Job, str], object]) -> None:
        self._limit = limit
        self._spawn = spawn
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0
        self.abandoned = 0

    def submit(self, job: Job) -> None:
        """Have *job* run on a thread soon; a job must not raise."""
        self._jobs.put(job)
        with self._lock:
            if self._idle >= self._jobs.qsize() or self._count >= self._limit:
                return
            self._count += 1
        self._spawn(self._run, "tarry-handler")

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                return
            job()
            if getattr(me, "abandoned", False):
                return

    def abandon(self, thread: threading.Thread) -> None:
        """Give up on a thread that hangs: it ends after its job, another may take its place."""
        thread.abandoned = True  # type: ignore[attr-defined]
        self.abandoned += 1
        with self._lock:
            self._count -= 1
            needed = self._jobs.qsize() > self._idle
            self._count += needed
        if needed:
            self._spawn(self._run, "tarry-handler")

    def close(self) -> None:
        """Let idle threads end; running ones end after their job."""
        for _ in range(self._limit + self.abandoned):
            self._jobs.put(None)


class Inbox:
    """Results of threads on their way to the loop: many puts, one wake-up."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._items: deque[Job] = deque()
        self._notify = notify
        self._told = False

    def put(self, job: Job) -> None:
        """Have *job* run on the loop."""
        self._items.append(job)
        if not self._told:
            self._told = True
            self._notify()

    def drain(self) -> None:
        """Run what has come in; to be called on the loop."""
        self._told = False
        while self._items:
            self._items.popleft()()
