"""Room: take due tasks under a lease, never more than there is room for."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from tarry.due import At
from tarry.errors import HandlerError
from tarry.handler import Handler, Registry
from tarry.payload import Codec
from tarry.request import OnConflict, Request
from tarry.stores.store import Store
from tarry.task import TaskRef

_WINDOW_NS = 50_000_000
QUEUE_LIMIT = 200


class Room:
    """Counts what is taken and says how much more may be claimed.

    Free slots, plus a short queue sized by what the last 50 ms ran, so that a fast worker does not
    wait for the store between claims and a slow one hoards nothing.
    """

    def __init__(self, registry: Registry, kinds: Sequence[str], concurrency: int) -> None:
        self._concurrency = concurrency
        self._bounded: dict[str, tuple[Handler, list[str]]] = {}
        self._unbounded: list[str] = []
        for kind in kinds:
            handler = registry.find(kind)
            if handler is not None and handler.concurrency is not None:
                self._bounded.setdefault(handler.kind, (handler, []))[1].append(kind)
            else:
                self._unbounded.append(kind)
        self._taken = 0
        self._by_handler: Counter[str] = Counter()
        self._ran = 0
        self._windows: deque[tuple[int, int]] = deque([(0, 0)])

    def took(self, handler: Handler) -> None:
        """Count a lease that was taken."""
        self._taken += 1
        self._by_handler[handler.kind] += 1

    def freed(self, handler: Handler, *, ran: bool) -> None:
        """Count a lease that was let go."""
        self._taken -= 1
        self._by_handler[handler.kind] -= 1
        self._ran += ran

    def is_full(self, handler: Handler) -> bool:
        """Say whether nothing more of *handler* can be claimed before a slot is free."""
        bound = handler.concurrency
        if bound is not None and self._by_handler[handler.kind] >= bound:
            return True
        return self._taken >= self._concurrency

    def asks(self, now: int) -> Iterator[tuple[Sequence[str], int]]:
        """Say which kinds to claim, and how many of them; nothing while there is no room.

        Each ask reckons with what the one before it took.
        """
        most = self._concurrency + min(self._recent(now), QUEUE_LIMIT)
        if self._unbounded and most > self._taken:
            yield self._unbounded, most - self._taken
        for handler, kinds in self._bounded.values():
            free = (handler.concurrency or 0) - self._by_handler[handler.kind]
            limit = min(free, most - self._taken)
            if limit > 0:
                yield kinds, limit

    def _recent(self, now: int) -> int:
        """Return how many attempts ended in the last 50 ms."""
        windows = self._windows
        windows.append((now, self._ran))
        while len(windows) > 1 and windows[1][0] <= now - _WINDOW_NS:
            windows.popleft()
        return self._ran - windows[0][1]


def place_series(store: Store, registry: Registry, kinds: Sequence[str], codec: Codec) -> None:
    """Place the declared recurring tasks, and move those whose rule has changed."""
    series = [handler for handler in registry if handler.rule and handler.kind in kinds]
    refs = [TaskRef(handler.kind, handler.series_key) for handler in series]
    for handler, ref, task in zip(series, refs, store.get(refs), strict=True):
        assert handler.rule is not None  # noqa: S101 - chosen by it
        text = handler.rule.text()
        if task is not None and task.rule == text and not task.ended:
            continue
        # A claim of nothing is how a store is asked for its time.
        now = store.claim([], limit=0, lease_ms=1, holder="").now
        first = handler.rule.first(now)
        changed = task is not None and task.rule and not task.ended
        request = Request(
            ref,
            At(first),
            codec.encode(b"{}"),
            on_conflict=OnConflict.REPLACE if changed else OnConflict.KEEP,
            rule=text,
            nominal=first,
            declared=True,
            keep_ms=handler.keep_ms,
        )
        store.schedule([request])


def served(registry: Registry, kinds: Sequence[str] | None) -> tuple[str, ...]:
    """Return the kinds a worker looks after; raises if there is no handler for one."""
    known = registry.kinds()
    if kinds is None:
        if not known:
            message = "the app has no handlers: declare one with @app.task"
            raise HandlerError(message)
        return known
    unknown = [kind for kind in kinds if kind not in known]
    if unknown or not kinds:
        message = f"no handler for {', '.join(unknown) or 'nothing'}; there is {', '.join(known)}"
        raise HandlerError(message)
    return tuple(kinds)
