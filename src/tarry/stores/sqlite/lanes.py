"""Lanes: the small numbers that stand for the kinds of a namespace."""

from collections.abc import Iterable

from tarry.stores.sqlite.connection import Connections
from tarry.stores.sqlite.record import SQL


class Lanes:
    """Kind → lane. Lanes are never removed, so that what was read once stays true."""

    def __init__(self, connections: Connections, namespace: str) -> None:
        self._connections = connections
        self._namespace = namespace
        self._known: dict[str, int] = {}

    def of(self, kinds: Iterable[str], *, make: bool = False) -> dict[str, int]:
        """Return the lanes of *kinds*; those that have none yet are made, or left out."""
        known = self._known
        missing = [kind for kind in kinds if kind not in known]
        if missing:
            self._read()
            missing = [kind for kind in missing if kind not in self._known]
        if missing and make:
            with self._connections.writing("full") as db:
                for kind in missing:
                    db.execute(SQL["add_lane"], (self._namespace, kind))
            self._read()
        return self._known

    def all(self) -> dict[str, tuple[int, bool]]:
        """Return every kind of the namespace with its lane, and whether it is paused."""
        with self._connections.reading() as db:
            found = db.execute(SQL["lanes"], (self._namespace,)).fetchall()
        return {kind: (lane, bool(paused)) for lane, kind, paused in found}

    def _read(self) -> None:
        self._known = {kind: lane for kind, (lane, _) in self.all().items()}
