"""Runtime: the seams between tarry and the machine: threads, randomness, time."""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from tarry.clock import SYSTEM, Clock

P = ParamSpec("P")
R = TypeVar("R")


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

    def close(self) -> None:
        """Let the threads go; calls under way end by themselves."""
        self._pool.shutdown(wait=False)
