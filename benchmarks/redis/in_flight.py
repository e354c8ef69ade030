"""Sides whose verbs are coroutines: 50 calls in flight. Needs nothing but Python."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

_CALLERS = 50


class Scheduling(Protocol):
    """Schedules by a coroutine."""

    def aschedule(self, n: int, due: int) -> Awaitable[object]:
        """Schedule task *n* at *due* (milliseconds UTC)."""
        ...


async def place_all(side: Scheduling, dues: list[int]) -> None:
    """Schedule task n at the nth due, 50 calls in flight."""
    numbers = iter(range(len(dues)))

    async def caller() -> None:
        for n in numbers:
            await side.aschedule(n, dues[n])

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
