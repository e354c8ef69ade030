"""What the tests of the API share: a store that counts its calls, and fails on command."""

from collections.abc import Callable
from typing import Any

from tarry import Tarry
from tarry.stores.store import Store


class Tap:
    """Stands before the verbs of an app's store: notes each call, and may refuse it."""

    def __init__(self, app: Tarry, *verbs: str) -> None:
        self.calls: list[tuple[str, int]] = []
        self.before: Callable[[str, Any], None] = lambda _verb, _items: None
        for verb in verbs:
            setattr(app.store, verb, self._tapped(verb, getattr(app.store, verb)))

    def _tapped(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(items: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append((verb, len(items)))
            self.before(verb, items)
            return real(items, *args, **kwargs)

        return call

    @property
    def sizes(self) -> list[int]:
        """How many items each call had."""
        return [size for _, size in self.calls]


def kinds_waiting(store: Store) -> int:
    """Return how many tasks wait."""
    return sum(counts.scheduled for counts in store.counts().values())
