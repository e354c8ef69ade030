"""Joining: the verbs of the store as statements for a caller's own transaction.

A schedule is one statement on MariaDB; MySQL, whose writes answer with no rows, needs a second one
to read what it did. Tables are named with their database: the caller's connection may use another,
but of the same server, of which each connection is asked once.
"""

import re
from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar
from weakref import WeakSet

from tarry.answers import CancelResult, Moved, Scheduled, SettleResult
from tarry.errors import StoreRefusedError
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.joining import Joins, Rows, Statement, Steps
from tarry.stores.mysql import verbs
from tarry.stores.mysql.exchange import Exchange
from tarry.stores.mysql.lanes import Lanes
from tarry.stores.mysql.plan import Plan, rows_of
from tarry.stores.mysql.wake import Wakeups
from tarry.task import TaskRef

A = TypeVar("A")

_TABLE = re.compile(r"\btarry_(?=task|lane|ended)")
_NO_LANE = 0
_SERVER = "CONCAT_WS(' ', @@hostname, @@port, @@datadir)"
"""What a server says it is, by whatever name or proxy it was reached."""


class Joining(Joins):
    """What a store adds to be joined."""

    _exchange: Exchange
    _lanes: Lanes
    _wakeups: Wakeups
    _database: str
    _server = ""
    _checked: WeakSet[object]

    joined_drivers = frozenset({"MySQLdb", "pymysql"})

    def join_check(self, connection: object) -> Steps[None]:
        """Refuse a connection to another server; asks once for each connection."""
        if connection in self._checked:
            return
        [[server]] = yield Statement(f"SELECT {_SERVER}")
        if server != self._server:
            # Not known yet, or another one has taken over.
            [own] = self._exchange.ask(f"SELECT {_SERVER}")
            self._server = own.rows[0][0]
        if server != self._server:
            message = (
                f"the transaction is one of the server {server}, the tasks are in "
                f"{self._database!r} of {self._server} (host, port, folder); nothing was written; "
                "what commits together lies on one server"
            )
            raise StoreRefusedError(message)
        self._checked.add(connection)

    def join_schedule(self, requests: Sequence[Request]) -> Steps[list[Scheduled]]:
        """Place requests when the caller commits."""
        lanes = self._lanes_of(request.ref for request in requests)
        return self._joined(verbs.schedule(requests, lanes, self._setting()))

    def join_reschedule(self, moves: Sequence[Move]) -> Steps[list[Moved]]:
        """Give waiting tasks a new due when the caller commits."""
        lanes = self._lanes_of(move.ref for move in moves)
        return self._joined(verbs.reschedule(moves, lanes, self._setting()))

    def join_cancel(self, cancellations: Sequence[Cancellation]) -> Steps[list[CancelResult]]:
        """Cancel tasks when the caller commits."""
        lanes = self._lanes_of(item.ref for item in cancellations)
        return self._joined(verbs.cancel(cancellations, lanes, self._setting()))

    def join_settle(self, settlements: Sequence[Settlement]) -> Steps[list[SettleResult]]:
        """Record outcomes when the caller commits."""
        lanes = self._lanes_of(item.lease.ref for item in settlements)
        return self._joined(verbs.settle(settlements, lanes, self._setting()))

    def committed(self, due: int) -> None:
        """Wake the workers of this process; those of others look by themselves."""
        self._wakeups.notify([(_NO_LANE, due)])

    def _setting(self) -> verbs.Setting:
        return verbs.Setting(self._exchange.now, self._exchange.returns)

    def _lanes_of(self, refs: Iterable[TaskRef]) -> dict[str, int]:
        # On a connection of ours: a new kind stays known, whatever becomes of the transaction.
        return self._lanes.of([ref.kind for ref in refs], make=True)

    def _joined(self, plan: Plan[A]) -> Generator[Statement, Rows, list[A]]:
        database = self._database.replace("`", "``")
        steps = rows_of(plan)
        rows: Rows = ()
        started = False
        while True:
            try:
                statement = steps.send(rows) if started else next(steps)
            except StopIteration as end:
                answers: list[A] = end.value.answers
                return answers
            started = True
            sql = _TABLE.sub(f"`{database}`.tarry_", statement.sql)
            rows = yield Statement(sql, statement.values, statement.rows)
