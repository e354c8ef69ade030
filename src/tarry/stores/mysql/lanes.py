"""Lanes: the small numbers that stand for the kinds of a namespace."""

from collections.abc import Iterable

from tarry.stores.mysql.exchange import Exchange


class Lanes:
    """Kind → lane. Lanes are never removed in use, so that what was read once stays true."""

    def __init__(self, exchange: Exchange, namespace: str) -> None:
        self._exchange = exchange
        self._namespace = f"x'{namespace.encode().hex()}'"
        self._known: dict[str, int] = {}

    def of(self, kinds: Iterable[str], *, make: bool = False) -> dict[str, int]:
        """Return the lanes of *kinds*; those that have none yet are made, or left out."""
        known = self._known
        missing = [kind for kind in dict.fromkeys(kinds) if kind not in known]
        if missing:
            self.all()
            missing = [kind for kind in missing if kind not in self._known]
        if missing and make:
            rows = ", ".join(f"({self._namespace}, x'{kind.encode().hex()}')" for kind in missing)
            self._exchange.ask(f"INSERT IGNORE INTO tarry_lane (namespace, kind) VALUES {rows}")
            self.all()
        return self._known

    def all(self) -> dict[str, tuple[int, bool]]:
        """Return every kind of the namespace with its lane, and whether it is paused."""
        [found] = self._exchange.ask(
            f"SELECT id, kind, paused FROM tarry_lane WHERE namespace = {self._namespace}"
        )
        lanes = {kind.decode(): (lane, bool(paused)) for lane, kind, paused in found.rows}
        self._known = {kind: lane for kind, (lane, _) in lanes.items()}
        return lanes

    def forget(self) -> None:
        """Read anew what there is: the namespace was emptied."""
        self._known = {}
