"""Metrics: counts and the lateness histogram, made from events, as text for Prometheus."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from tarry.events import AttemptEnded, Event, LeaseLost, SlotLost, StoreBack, StoreLost

BUCKETS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds of the lateness histogram, in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_UNTIMED = ("release",)


class Histogram:
    """How many values fell under each bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str, label: str) -> Iterator[str]:
        """Yield the cumulative lines of the text format."""
        total = 0
        for bound, count in zip((*(f"{b:g}" for b in BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
        yield f"{name}_sum{{{label}}} {self.sum:.6f}"
        yield f"{name}_count{{{label}}} {total}"


class Metrics:
    """Collects what happened to an app's workers: hand `on` to `app.listen`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._lateness: dict[str, Histogram] = {}
        self._lease_lost: Counter[str] = Counter()
        self._slots_lost = 0
        self._store_up = 1

    def on(self, event: Event) -> None:
        """Count *event*; may be called from any thread."""
        with self._lock:
            match event:
                case AttemptEnded():
                    self._attempt(event)
                case LeaseLost():
                    self._lease_lost[event.ref.kind] += 1
                case SlotLost():
                    self._slots_lost = event.lost
                case StoreLost():
                    self._store_up = 0
                case StoreBack():
                    self._store_up = 1
                case _:
                    pass

    def _attempt(self, event: AttemptEnded) -> None:
        kind = event.ref.kind
        self._attempts[kind, event.outcome] += 1
        if event.outcome not in _UNTIMED:
            found = self._lateness.setdefault(kind, Histogram())
            found.add(event.lateness_ms / 1_000)

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("tarry_attempts_total", "counter", "Attempts that came to their end.")
        for (kind, outcome), count in sorted(self._attempts.items()):
            yield f'tarry_attempts_total{{kind="{_safe(kind)}",outcome="{outcome}"}} {count}'
        name = "tarry_lateness_seconds"
        yield from _head(name, "histogram", "Start of the attempt minus due.")
        for kind, histogram in sorted(self._lateness.items()):
            yield from histogram.lines(name, f'kind="{_safe(kind)}"')
        yield from _head("tarry_lease_lost_total", "counter", "Leases lost before they settled.")
        for kind, count in sorted(self._lease_lost.items()):
            yield f'tarry_lease_lost_total{{kind="{_safe(kind)}"}} {count}'
        yield from _head("tarry_slots_lost", "gauge", "Threads lost to handlers that hang.")
        yield f"tarry_slots_lost {self._slots_lost}"
        yield from _head("tarry_store_up", "gauge", "1 while the store answers.")
        yield f"tarry_store_up {self._store_up}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _safe(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
