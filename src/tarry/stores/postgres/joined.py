"""Joined: a verb as the one statement that a caller's own transaction runs.

The function that the store itself calls, with the same arguments, as the caller's driver writes
them: rows, locks and the wake-up belong to the caller's transaction. That this is one of the
store's own database is seen by the same statement.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tarry.answers import Scheduled, SettleResult
from tarry.errors import StoreRefusedError
from tarry.request import Request, Settlement
from tarry.stores.joining import Statement, Steps
from tarry.stores.postgres import verbs
from tarry.stores.postgres.links import Links
from tarry.stores.postgres.url import Place
from tarry.stores.postgres.verbs import Batch

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer

_NOT_THERE = {"3F000", "42883"}
"""No such schema, no such function."""


class Joined:
    """Builds what the caller's connection runs, for the database that the store's links lead to."""

    def __init__(self, links: Links, place: Place) -> None:
        self._links = links
        self._place = place
        self._home: tuple[int, str] | None = None
        """The cluster and the database, as they tell it themselves."""

    def schedule(self, opening: list[Any], requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests; one statement, however many there are."""
        if not requests:
            return []
        given = verbs.batch([request.ref for request in requests])
        values = [*opening, *verbs.schedule(given, requests)]
        return verbs.scheduled(given, requests, (yield from self._ask("schedule", values)))

    def each(
        self,
        name: str,
        opening: list[Any],
        items: Sequence[I],
        say: Callable[[Batch, Sequence[I]], list[Any]],
        read: Callable[[Batch, Sequence[int]], list[A]],
    ) -> Steps[list[A]]:
        """Run a verb on items that name their refs."""
        if not items:
            return []
        given = verbs.batch([item.ref for item in items])  # type: ignore[attr-defined]
        return read(given, (yield from self._ask(name, [*opening, *say(given, items)])))

    def settle(
        self, opening: list[Any], settlements: Sequence[Settlement]
    ) -> Steps[list[SettleResult]]:
        """Record outcomes; nothing is relaxed, since it is the caller's commit."""
        if not settlements:
            return []
        given = verbs.batch([item.lease.ref for item in settlements])
        values = [*opening, False, *verbs.settle(given, settlements, verbs.tids)]
        return verbs.settled(given, (yield from self._ask("settle", values)))

    def _ask(self, name: str, values: list[Any]) -> Steps[Sequence[int]]:
        sql = verbs.joined(name, self._place.schema)
        home = self._home or self._look()
        while True:
            try:
                rows = yield Statement(sql, [*values, *home])
            except Exception as error:  # the caller's driver or framework has errors of its own
                if _state(error) in _NOT_THERE:
                    raise self._refused(f"one without {self._place.schema!r}") from error
                raise
            if rows:
                answers: Sequence[int] = rows[0][0]
                return answers
            # A copy that took over may be another cluster than the one that was known.
            before, home = home, self._look()
            if home == before:
                raise self._refused("another one")

    def _look(self) -> tuple[int, str]:
        [[cluster, database]] = self._links.run(verbs.HOME, [])
        self._home = (cluster, database)
        return self._home

    def _refused(self, which: str) -> StoreRefusedError:
        return StoreRefusedError(
            f"the database of the transaction is {which}; the tasks are in the schema "
            f"{self._place.schema!r} of {self._place.text}; nothing was written; what commits "
            "together lies in one database"
        )


def _state(error: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's error, also where a framework has wrapped it."""
    known = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    return known if isinstance(known, str) else None
