"""Exchange: plans run in transactions of our own; calls are remembered, lock conflicts retried.

A plan's first statements go out with the BEGIN and its last writes with the COMMIT, so that most
verbs are two exchanges, however large the batch.
"""

import random
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
import pymysql

from tarry.clock import SYSTEM, Clock, nap
from tarry.errors import StoreError
from tarry.stores.mysql.errors import DUPLICATE, LOCKED, NoDatabaseError, code_of, translate
from tarry.stores.mysql.links import Link, Links, Result
from tarry.stores.mysql.plan import NOW, NOW_US, Plan, Told, text
from tarry.stores.mysql.url import Place
from tarry.stores.mysql.verbs import Setting
from tarry.stores.store import REMEMBER_MS, WAKE_MS

A = TypeVar("A")
T = TypeVar("T")
News = tuple[int, int]
"""A lane, and the due of something in it that became claimable."""

_TIME = "@tarry_now"
_MARGIN_MS = 5_000
"""Calls are remembered for a little longer than promised: the last try may be slow."""
_SWEEP_CALLS = 200
_SWEEP_NS = 2_000_000_000
_SWEPT = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_RACES = (*LOCKED, DUPLICATE)

FAILURES = (pymysql.MySQLError, OSError, NoDatabaseError)
"""What a driver raises."""


class Codec(msgspec.Struct, frozen=True):
    """How the answers of a verb are remembered."""

    write: Callable[[Sequence[Any]], bytes]
    read: Callable[[bytes], list[Any]]


class Exchange:
    """Runs statements and plans of one namespace."""

    def __init__(self, place: Place, namespace: str, links: Links, clock: Clock | None) -> None:
        self._place = place
        self._namespace = namespace.encode()
        self._links = links
        self._clock = clock
        self._patience_ns = int(place.timeout * 1e9)
        self._dice = random.SystemRandom()
        self._unswept = 0
        self._swept = SYSTEM.elapsed()
        self.returns = True
        """Whether the server answers a write with rows: set when it is known."""

    @property
    def now(self) -> str:
        """The store's time in milliseconds, as SQL."""
        return NOW if self._clock is None else str(self._clock.now())

    @property
    def now_us(self) -> str:
        """The store's time in microseconds, as SQL."""
        return NOW_US if self._clock is None else str(self._clock.now_us())

    def name(self, *words: str) -> bytes:
        """Return the short name under which something of the namespace is remembered."""
        digest = blake2b(digest_size=16)
        for word in (self._namespace, *(word.encode() for word in words)):
            digest.update(b"%d:%s" % (len(word), word))
        return digest.digest()

    # ---- single exchanges

    def ask(self, *statements: str, verb: str = "", reserved: bool = False) -> list[Result]:
        """Run statements in one exchange, each by itself or with a BEGIN and COMMIT among them."""

        def once() -> list[Result]:
            with self._links.link(reserved=reserved) as link:
                return link.run(statements, verb)

        return self.patiently(once)

    def patiently(self, act: Callable[[], T]) -> T:
        """Do something again that others were in the way of; errors are told in tarry's words."""
        deadline, pause = SYSTEM.elapsed() + self._patience_ns, _FIRST_PAUSE
        while True:
            try:
                return act()
            except StoreError:
                raise
            except FAILURES as error:
                if code_of(error) not in _RACES or SYSTEM.elapsed() > deadline:
                    raise translate(error, self._place.text) from error
            nap(pause * self._dice.random())
            pause = min(pause * 2, _LONGEST_PAUSE)

    def link(self) -> Any:
        """Lend a connection."""
        return self._links.link()

    # ---- plans

    def run(
        self, verb: str, make: Callable[[Setting], Plan[A]], codec: Codec, call: bytes | None
    ) -> tuple[list[A], list[News]]:
        """Run a plan in a transaction; returns its answers and what became claimable."""

        def once() -> tuple[list[A], list[News]]:
            with self._links.link() as link:
                try:
                    return self._transact(link, verb, make, codec, call)
                except pymysql.IntegrityError as error:
                    known = self._recall(link, error, call)
                    if known is None:
                        raise
                    return codec.read(known), []

        answer = self.patiently(once)
        if call is not None:
            self._sweep()
        return answer

    def _transact(
        self,
        link: Link,
        verb: str,
        make: Callable[[Setting], Plan[A]],
        codec: Codec,
        call: bytes | None,
    ) -> tuple[list[A], list[News]]:
        plan = make(Setting(_TIME, self.returns))
        batch = next(plan)
        opening = ["BEGIN", f"SET {_TIME} = {self.now}"]
        replies = link.run([*opening, *map(text, batch)])[len(opening) :]
        while True:
            try:
                batch = plan.send([reply.rows for reply in replies])
            except StopIteration as end:
                told: Told[A] = end.value
                return told.answers, self._commit(link, verb, told, codec, call)
            replies = link.run([text(statement) for statement in batch])

    def _commit(
        self, link: Link, verb: str, told: Told[Any], codec: Codec, call: bytes | None
    ) -> list[News]:
        statements = [text(statement) for statement in told.writes]
        if call is not None:
            statements.append(remember(call, codec.write(told.answers)))
        statements.append("COMMIT")
        if not told.news:
            link.run(statements, verb)
            return []
        lanes = ", ".join({str(lane) for lane, _ in told.news})
        statements.append(
            f"SELECT {_TIME}, (SELECT GROUP_CONCAT(id) FROM tarry_lane "
            f"WHERE id IN ({lanes}) AND paused = 1)"
        )
        now, paused = link.run(statements, verb)[-1].rows[0]
        resting = {int(word) for word in str(paused).split(",")} if paused else set()
        soon = int(now) + WAKE_MS
        return [(lane, due) for lane, due in told.news if due <= soon and lane not in resting]

    def _recall(
        self, link: Link, error: pymysql.IntegrityError, call: bytes | None
    ) -> bytes | None:
        """Return the answers of a call that was made before, None if that is not what failed."""
        if call is None or code_of(error) != DUPLICATE:
            return None
        wanted = f"SELECT answers FROM tarry_call WHERE id = x'{call.hex()}'"
        found = link.run(["ROLLBACK", wanted])[1].rows
        return found[0][0] if found else None

    def _sweep(self) -> None:
        """Forget calls and claims that nobody repeats any more, a few at a time."""
        self._unswept += 1
        now = SYSTEM.elapsed()
        if self._unswept < _SWEEP_CALLS and now - self._swept < _SWEEP_NS:
            return
        self._unswept, self._swept = 0, now
        try:
            with self._links.link() as link:
                link.run(
                    [
                        f"DELETE FROM {table} WHERE until < {NOW} ORDER BY until LIMIT {_SWEPT}"
                        for table in ("tarry_call", "tarry_claim")
                    ]
                )
        except (*FAILURES, StoreError):
            # The next call tries it again; this one was answered.
            return


def remember(call: bytes, answers: bytes) -> str:
    """Return the statement that keeps the answers of a call; by the server's own clock."""
    until = f"{NOW} + {REMEMBER_MS + _MARGIN_MS}"
    return (
        f"INSERT INTO tarry_call (id, until, answers) "
        f"VALUES (x'{call.hex()}', {until}, x'{answers.hex()}')"
    )
