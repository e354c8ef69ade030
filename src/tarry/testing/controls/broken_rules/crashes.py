"""Crashes of the medium: what they must not bring back."""

import random
from typing import Any

from tarry.testing.controls.broken_rules.setting import crashes_of_the_medium, on, power
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench
from tarry.testing.simulation.medium import ForgetfulStore


class CountedTokens(ForgetfulStore):
    """Draws tokens from a counter that is part of the state."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self._random = _Counter()

    def snapshot(self) -> tuple[Any, ...]:
        """Keep the counter with the records."""
        assert isinstance(self._random, _Counter)
        return (*super().snapshot(), self._random.last)

    def restore(self, past: tuple[Any, ...]) -> None:
        """Let the counter fall back too."""
        assert isinstance(self._random, _Counter)
        *records, self._random.last = past
        super().restore(tuple(records))


class _Counter(random.Random):
    """Dice that count."""

    last = 0

    def getrandbits(self, k: int, /) -> int:
        """Return the next number."""
        del k
        self.last += 1
        return self.last


CRASHES: tuple[Control, ...] = (
    Control(
        "token-reused",
        "Tokens are counted in the medium, and the counter falls back with a crash.",
        "After the crash a new lease gets the number of an old one, and the old holder passes the "
        "fence. Tokens are random.",
        ("token reused",),
        on(CountedTokens),
        power,
    ),
    Control(
        "relaxed-cancel",
        "A cancel is acknowledged before it is safe on disk.",
        "The power fails, the cancel is forgotten, the task runs: after the caller was told that "
        "it never would.",
        ("after cancel",),
        Bench(relaxed=frozenset({"renew", "settle", "cancel"})),
        crashes_of_the_medium,
    ),
)
