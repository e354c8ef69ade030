"""Processor time of the server and of this process, added up where it is of interest.

On a quiet machine the two take turns, and their sum is the time that passes; on a busy one the sum
still tells what something costs, where the wall clock tells what others do.
"""

import time

import above  # noqa: F401 - for the next imports
import measure
from redis_server import RedisServer


class Used:
    """Adds up the processor time that is used inside `with`."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.by_server = self.by_client = 0.0

    def __enter__(self) -> None:
        self.by_server -= self._server.process.cpu_seconds()
        self.by_client -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.by_client += time.process_time()
        self.by_server += self._server.process.cpu_seconds()

    def tell(self, report: measure.Report, name: str, who: str, tasks: int) -> float:
        """Report what a task costs the server and the client; returns the sum."""
        report.add(f"{name}_server_{who}", 1e6 * self.by_server / tasks, "µs/task")
        report.add(f"{name}_client_{who}", 1e6 * self.by_client / tasks, "µs/task")
        return (self.by_server + self.by_client) / tasks
