"""Coverage: which verbs were hit in which phases; a green run cannot be an idle run."""

from collections import Counter
from collections.abc import Iterable
from itertools import product

from tarry.testing.proxy.fault import Phase

Pair = tuple[str, Phase]


class Coverage:
    """Counts hits by verb and phase; several proxies may share one."""

    def __init__(self) -> None:
        self.counts: Counter[Pair] = Counter()
        self._expected: dict[Pair, None] = {}

    def hit(self, verb: str, phase: Phase) -> None:
        """Count a fault that really happened."""
        self.counts[verb, phase] += 1

    def expect(self, verbs: Iterable[str], phases: Iterable[Phase]) -> None:
        """Expect each of *verbs* to be hit in each of *phases*; adds to what is expected."""
        self._expected.update(dict.fromkeys(product(verbs, phases)))

    def missing(self) -> list[Pair]:
        """Return what was expected and never hit; all there is to assert."""
        return [pair for pair in self._expected if not self.counts[pair]]
