"""Control: something that is known to be wrong, and must be caught."""

from collections.abc import Callable

import msgspec

from tarry.testing.simulation import Bench, History, Plan, draw, run


class Control(msgspec.Struct, frozen=True):
    """A broken algorithm in tarry's place, and what is wrong with it."""

    name: str
    """Words joined by hyphens: no-start-gate."""
    title: str
    """What it does, in one line."""
    wrong: str
    """Why that is wrong, in a few sentences."""
    rules: tuple[str, ...]
    """The rules it is known to break; one of them must be what catches it."""
    bench: Bench
    plan: Callable[[int], Plan] = draw
    """Where its story is short: a plan for each seed. It is caught without it, too."""

    def caught(self, seed: int) -> History | None:
        """Return the history of *seed* if the control breaks one of its rules in it."""
        history = run(draw(seed), self.bench)
        return history if self.breaks(history) else None

    def breaks(self, history: History) -> bool:
        """Say whether a history shows what is wrong with the control."""
        return any(found.rule in self.rules for found in history.violations)

    def hunt(self, first: int = 0, most: int = 3_000) -> int | None:
        """Return the first seed that catches it, None if none of *most* does."""
        for seed in range(first, first + most):
            if self.caught(seed) is not None:
                return seed
        return None
