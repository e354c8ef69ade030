"""Runtime: the seams between tarry and the machine: threads, randomness, time."""

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import ParamSpec, Protocol, TypeVar

from tarry.clock import SYSTEM, Clock, nap

P = ParamSpec("P")
R = TypeVar("R")


class Signal(Protocol):
    """Something that is raised once, and that threads wait for."""

    def set(self) -> None:
        """Raise it."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is raised, for at most *timeout* seconds; says whether it is."""
        ...


class Line(Protocol):
    """Yes or no, handed to one thread after the other."""

    def put(self, item: bool, /) -> None:  # noqa: FBT001 - it is what is handed over
        """Hand *item* to whoever waits, or comes to wait."""
        ...

    def get(self) -> bool:
        """Block until there is something, and take it."""
        ...


class Runtime(Protocol):
    """What the calling and the working half need of the machine; the simulator has its own."""

    clock: Clock
    random: random.Random

    async def run_blocking(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run *fn* where blocking is allowed, and return what it returns."""
        ...

    def spawn(self, fn: Callable[[], None], name: str) -> Callable[[], None]:
        """Run *fn* beside everything else; the answer waits for its end."""
        ...

    def signal(self) -> Signal:
        """Return a signal that has not been raised."""
        ...

    def line(self) -> Line:
        """Return an empty line."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock for moments in which nothing blocks."""
        ...

    def nap(self, seconds: float) -> None:
        """Block the calling thread for a moment."""
        ...

    def unique(self, bits: int) -> int:
        """Return a number that nobody else draws, in this process or another."""
        ...

    def name(self) -> str:
        """Return a name for something of this process; never the same twice."""
        ...


class ThreadRuntime:
    """The real machine: threads of this process, its clock, its randomness."""

    def __init__(self, *, threads: int = 4, clock: Clock = SYSTEM) -> None:
        self.clock = clock
        self.random = random.Random(os.urandom(16))  # noqa: S311 - spreads retries; guards nothing
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tarry-store")

    async def run_blocking(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run *fn* on a thread of the pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: fn(*args, **kwargs))

    def spawn(self, fn: Callable[[], None], name: str) -> Callable[[], None]:
        """Start a daemon thread."""
        thread = threading.Thread(target=fn, name=name, daemon=True)
        thread.start()
        return thread.join

    def signal(self) -> Signal:
        """Return an event."""
        return threading.Event()

    def line(self) -> Line:
        """Return a queue."""
        return SimpleQueue()

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock."""
        return threading.Lock()

    def nap(self, seconds: float) -> None:
        """Sleep."""
        nap(seconds)

    def unique(self, bits: int) -> int:
        """Return a number from the system: a fork must not draw what its parent draws."""
        return int.from_bytes(os.urandom((bits + 7) // 8)) & (1 << bits) - 1

    def name(self) -> str:
        """Return host, process and chance."""
        return f"{socket.gethostname()}:{os.getpid()}:{self.unique(32):08x}"

    def close(self) -> None:
        """Let the threads go; calls under way end by themselves."""
        self._pool.shutdown(wait=False)
