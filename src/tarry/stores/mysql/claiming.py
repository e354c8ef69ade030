"""Claiming: look first, then take what is due past whatever others have locked."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tarry import life as lives
from tarry.clock import SYSTEM
from tarry.lease import Lease
from tarry.stores.joining import Rows
from tarry.stores.mysql import record, rows
from tarry.stores.mysql.exchange import Exchange
from tarry.stores.mysql.lanes import Lanes
from tarry.stores.mysql.links import Link, Result
from tarry.stores.mysql.plan import NOW, text
from tarry.stores.mysql.record import Found
from tarry.stores.store import RECLAIM_LIMIT, Claimed
from tarry.task import TaskRef

_MOST = 1_000
_HOLDERS = 1_000
_MANY = 50
"""A claim that takes so many, and all it asked for, goes on where the one before it ended."""
_HASTE_NS = 250_000_000
"""For so long; then it looks from the beginning again, for what came in between."""
_KEPT_MS = 60_000
"""A claim is remembered for as long as its leases last, and for so much longer."""
_json = msgspec.json.Encoder().encode
_numbers = msgspec.json.Decoder(list[int]).decode


class Sight(NamedTuple):
    """What a look saw: the time, and of each open lane the earliest due and end of a lease."""

    now_us: int
    heads: dict[int, int]
    ends: dict[int, int]

    @property
    def now(self) -> int:
        """The time in milliseconds."""
        return self.now_us // 1_000

    def claimed(self, leases: list[Lease]) -> Claimed:
        """Return the answer of a claim that looked around last."""
        sights = (*self.heads.values(), *self.ends.values())
        return Claimed(leases, self.now, self.now_us % 1_000, min(sights, default=None))


class _Mark:
    """How far claims of some lanes have come while there is more than they can take.

    Entries that were taken lie at the head of the index until the server has swept them away: a
    claim that began there each time would read them all again.
    """

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        """Of each lane the due and the id of what was taken last."""
        self._since = SYSTEM.elapsed()

    def is_fresh(self) -> bool:
        """Say whether a claim may go on from here."""
        return SYSTEM.elapsed() - self._since < _HASTE_NS

    def move(self, lane: int, place: tuple[int, int]) -> None:
        """Go on behind *place* in a lane."""
        self.places[lane] = max(place, self.places.get(lane, place))


class Claiming:
    """The claims of this process."""

    def __init__(self, exchange: Exchange, lanes: Lanes, rng: random.Random) -> None:
        self._exchange = exchange
        self._lanes = lanes
        self._random = rng
        self._turn = 0
        self._newest: dict[str, tuple[int, bool]] = {}
        """Of each holder its newest claim, and whether that was answered."""
        self._marks: dict[tuple[int, ...], _Mark] = {}

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int
    ) -> Claimed:
        """Lease due tasks."""
        known = self._lanes.of(kinds)
        lanes = {known[kind]: kind for kind in kinds if kind in known}
        newest, answered = self._newest.get(holder, (0, True)) if call else (0, True)
        if call < newest or (call and call == newest and answered):
            leases = self._repeated(holder, call) if call == newest else []
            return sight(self._exchange.ask(*looks(self._exchange, lanes))).claimed(leases)
        if call:
            if len(self._newest) > _HOLDERS:
                self._newest.clear()
            self._newest[holder] = call, False
        taking = _Taking(self, lanes, min(limit, _MOST), lease_ms, holder, call)
        claimed = taking.take(doubtful=not answered)
        if call:
            self._newest[holder] = call, True
        return claimed

    def _repeated(self, holder: str, call: int) -> list[Lease]:
        """Return what is left of the leases that a claim took."""
        name = self._exchange.name("claim", holder).hex()
        [found] = self._exchange.ask(
            f"SELECT number, nonce, taken FROM tarry_claim WHERE holder = x'{name}'"
        )
        return self.held(found.rows, call, holder)

    def held(self, found: Rows, call: int, holder: str) -> list[Lease]:
        """Return the unexpired leases of the claim in *found*, if it is the one named *call*."""
        if not found or found[0][0] != call or found[0][2] == b"[]":
            return []
        nonce, places = found[0][1], _numbers(found[0][2])
        asked = ", ".join(map(str, places))
        [held] = self._exchange.ask(
            f"SELECT {rows.LIFE}, lane FROM tarry_task "
            f"WHERE id IN ({asked}) AND token = {nonce} + id AND at > {self._exchange.now}"
        )
        kinds = {lane: kind for kind, lane in self._lanes.of(()).items()}
        found_lives = [rows.life(kinds[row[-1]], row[:-1], holder)[0] for row in held.rows]
        leases = [life.running for life in found_lives if life.running is not None]
        return sorted(leases, key=_by_due)


class _Taking:
    """One claim that is made for the first time."""

    def __init__(
        self,
        claiming: Claiming,
        lanes: dict[int, str],
        limit: int,
        lease_ms: int,
        holder: str,
        call: int,
    ) -> None:
        self._claiming = claiming
        self._exchange = claiming._exchange  # noqa: SLF001 - its own helper
        self._lanes = lanes
        self._limit = limit
        self._lease_ms = lease_ms
        self._holder = holder
        self._call = call
        self._name = self._exchange.name("claim", holder).hex() if call else ""

    def take(self, *, doubtful: bool) -> Claimed:
        """Go on where the claim before ended, if there was more; else begin anew."""
        marks, key = self._claiming._marks, tuple(self._lanes)  # noqa: SLF001
        mark = marks.pop(key, None)
        if mark is not None and mark.is_fresh() and not doubtful and self._limit >= _MANY:
            claimed = self._go_on(mark)
            if claimed is not None:
                marks[key] = mark
                return claimed
        claimed = self._begin(doubtful=doubtful)
        if len(claimed.leases) == self._limit >= _MANY:
            mark = _Mark()
            self._note(mark, claimed.leases)
            marks[key] = mark
        return claimed

    def _note(self, mark: _Mark, leases: Sequence[Lease]) -> None:
        lanes = {kind: lane for lane, kind in self._lanes.items()}
        for lease in leases:
            mark.move(lanes[lease.ref.kind], (lease.task.due, lease.place))

    def _go_on(self, mark: _Mark) -> Claimed | None:
        """Take more from where *mark* stands; None, and nothing taken, if that is not all."""
        known, claimed = self._exchange.patiently(lambda: self._attempt([*mark.places], mark=mark))
        if claimed is None and known:
            return self._look().claimed(self._claiming.held(known, self._call, self._holder))
        if claimed is not None:
            self._note(mark, claimed.leases)
        return claimed

    def _begin(self, *, doubtful: bool) -> Claimed:
        """Look, end what has expired, take what is due, and look again.

        *doubtful*: a try before may have taken something, or may be about to. That one holds the
        holder's row, or comes too late for it: nothing is answered before it is settled which.
        """
        seen = self._look()
        if any(end <= seen.now for end in seen.ends.values()):
            self._reclaim(seen)
            seen = self._look()
        due = [lane for lane in self._lanes if seen.heads.get(lane, seen.now + 1) <= seen.now]
        if (not due or self._limit <= 0) and not doubtful:
            return seen.claimed([])
        known, claimed = self._exchange.patiently(lambda: self._attempt(due, doubtful=doubtful))
        if claimed is None:
            claimed = self._look().claimed(self._claiming.held(known, self._call, self._holder))
        return claimed

    def _look(self) -> Sight:
        return sight(self._exchange.ask(*looks(self._exchange, self._lanes)))

    def _attempt(
        self, due: Sequence[int], *, doubtful: bool = False, mark: _Mark | None = None
    ) -> tuple[Rows, Claimed | None]:
        """Take what is due; None where this claim was made before: its row is returned.

        With a *mark* only what is behind it, and None also if that is less than was asked for.
        """
        with self._exchange.link() as link:
            shares = _Shares(due, self._limit, self._next_turn())
            found, now, known = self._select(link, shares, mark)
            if self._call and known and known[0][0] >= self._call:
                link.run(["ROLLBACK"])
                return known, None
            if mark is not None:
                if len(found) < self._limit:
                    link.run(["ROLLBACK"])
                    return (), None
                return (), self._write(link, found, now, is_first=not known, hasty=True)
            if found or doubtful:
                return known, self._write(link, found, now, is_first=not known)
            results = link.run(["ROLLBACK", *looks(self._exchange, self._lanes)])
            return known, sight(results[1:]).claimed([])

    def _next_turn(self) -> int:
        self._claiming._turn += 1  # noqa: SLF001
        return self._claiming._turn  # noqa: SLF001

    def _select(
        self, link: Link, shares: "_Shares", mark: _Mark | None
    ) -> tuple[list[tuple[str, rows.Row]], int, Rows]:
        """Lock what is to be taken; returns kinds and rows, the time, and the newest claim."""
        statements = ["BEGIN", f"SET @tarry_now = {self._exchange.now}", "SELECT @tarry_now"]
        if self._call:
            statements.append(
                "SELECT number, nonce, taken FROM tarry_claim "
                f"WHERE holder = x'{self._name}' FOR UPDATE"
            )
        # Shared: a pause waits for the claims that are under way, and they for it.
        lanes = ", ".join(map(str, shares.order)) or "0"
        statements.append(
            f"SELECT id FROM tarry_lane WHERE id IN ({lanes}) AND paused = 0 LOCK IN SHARE MODE"
        )
        before = len(statements)
        lows = {} if mark is None else mark.places
        statements += [_due(lane, shares.part, 0, lows.get(lane)) for lane in shares.order]
        results = link.run(statements)
        now = int(results[2].rows[0][0])
        known: Rows = results[3].rows if self._call else ()
        is_open = {lane for (lane,) in results[before - 1].rows}
        for lane, result in zip(shares.order, results[before:], strict=True):
            shares.add(lane, result.rows if lane in is_open else ())
        more = shares.more()
        if more:
            rest = shares.rest()
            results = link.run([_due(lane, rest, shares.part, lows.get(lane)) for lane in more])
            for lane, result in zip(more, results, strict=True):
                shares.add_more(lane, result.rows)
            shares.fill()
        return [(self._lanes[lane], row) for lane, row in shares.chosen], now, known

    def _write(
        self,
        link: Link,
        found: Sequence[tuple[str, rows.Row]],
        now: int,
        *,
        is_first: bool,
        hasty: bool = False,
    ) -> Claimed:
        nonce = self._claiming._random.getrandbits(61)  # noqa: SLF001
        expires = now + self._lease_ms
        leases = [rows.claimed(kind, row, nonce, self._holder, expires) for kind, row in found]
        leases.sort(key=_by_due)
        places = [lease.place for lease in leases]
        statements = []
        if places:
            statements.append(
                f"UPDATE tarry_task SET leased = 1, at = {expires}, token = {nonce} + id, "
                "attempt = attempt + 1 "
                f"WHERE id IN ({', '.join(map(str, places))})"
            )
        if self._call:
            taken = f"x'{_json(places).hex()}'"
            until = f"{NOW} + {self._lease_ms + _KEPT_MS}"
            if is_first:
                statements.append(
                    "INSERT INTO tarry_claim (holder, number, nonce, taken, until) VALUES "
                    f"(x'{self._name}', {self._call}, {nonce}, {taken}, {until})"
                )
            else:
                statements.append(
                    f"UPDATE tarry_claim SET number = {self._call}, nonce = {nonce}, "
                    f"taken = {taken}, until = {until} WHERE holder = x'{self._name}'"
                )
        statements.append("COMMIT")
        if hasty:
            # There was as much as was asked for: there may be more, and it is due.
            [time] = link.run([*statements, f"SELECT {self._exchange.now_us}"], "claim")[-1:]
            now_us = int(time.rows[0][0])
            return Claimed(leases, now_us // 1_000, now_us % 1_000, now_us // 1_000)
        asked = looks(self._exchange, self._lanes)
        results = link.run([*statements, *asked], "claim")
        return sight(results[len(statements) :]).claimed(leases)

    def _reclaim(self, seen: Sight) -> None:
        """End leases that have expired."""
        lanes = [lane for lane, end in seen.ends.items() if end <= seen.now]

        def once() -> None:
            with self._exchange.link() as link:
                ended = _select_expired(link, lanes, self._lanes, self._exchange.now)
                statements = [text(statement) for statement in record.writes(ended)]
                link.run([*statements, "COMMIT"])

        self._exchange.patiently(once)


def _select_expired(
    link: Link, lanes: Sequence[int], kinds: dict[int, str], now_sql: str
) -> list[Found]:
    """Lock leases that have expired; returns what becomes of them, those that ended first first."""
    results = link.run(
        [
            "BEGIN",
            f"SET @tarry_now = {now_sql}",
            "SELECT @tarry_now",
            *(
                f"SELECT {rows.LIFE} FROM tarry_task FORCE INDEX (turn) "
                f"WHERE lane = {lane} AND leased = 1 AND at <= @tarry_now "
                f"ORDER BY at LIMIT {RECLAIM_LIMIT} FOR UPDATE SKIP LOCKED"
                for lane in lanes
            ),
        ]
    )
    now = int(results[2].rows[0][0])
    found: list[tuple[int, Found]] = []
    for lane, result in zip(lanes, results[3:], strict=True):
        for row in result.rows:
            each = Found(lane, TaskRef(kinds[lane], row[1].decode()))
            each.fill(row)
            assert each.life.running is not None  # noqa: S101 - chosen by it
            found.append((each.life.running.expires, each))
    found.sort(key=lambda pair: pair[0])
    chosen = [each for _, each in found[:RECLAIM_LIMIT]]
    for each in chosen:
        change = lives.at(each.life, now)
        each.life = change.life
        each.ended += change.ended
    return chosen


class _Shares:
    """Kinds are lanes: an even part of the limit for each, then the rest by earliest due."""

    def __init__(self, due: Sequence[int], limit: int, turn: int) -> None:
        self.chosen: list[tuple[int, rows.Row]] = []
        self._limit = limit
        self._full: list[int] = []
        self._more: list[tuple[int, rows.Row]] = []
        first = turn % len(due) if due else 0
        self.order = [*due[first:], *due[:first]][: max(limit, 0)]
        self.part = limit // len(self.order) if self.order else 0

    def add(self, lane: int, got: Rows) -> None:
        """Take a lane's part."""
        self.chosen += [(lane, row) for row in got]
        if len(got) == self.part:
            self._full.append(lane)

    def rest(self) -> int:
        """Return how much of the limit is left."""
        return self._limit - len(self.chosen)

    def more(self) -> list[int]:
        """Return the lanes that may have more, if there is room for it."""
        return self._full if self.rest() > 0 and len(self.order) > 1 else []

    def add_more(self, lane: int, got: Rows) -> None:
        """Note what else is due in a lane."""
        self._more += [(lane, row) for row in got]

    def fill(self) -> None:
        """Take the earliest of what else is due.

        What came in between, due earlier, moves what is taken already behind the offset.
        """
        taken = {rows.place(row) for _, row in self.chosen}
        more = [pair for pair in self._more if rows.place(pair[1]) not in taken]
        more.sort(key=lambda pair: int(pair[1][0].split(",", 2)[1]))
        self.chosen += more[: self.rest()]


def _due(lane: int, count: int, offset: int, low: tuple[int, int] | None) -> str:
    """Return the statement that locks due tasks of a lane, those behind *low* if it is given."""
    where = f"lane = {lane} AND leased = 0"
    due = f"{where} AND at <= @tarry_now"
    if low is not None:
        # The index ends with the id: both parts are ranges of it.
        due = f"({where} AND at = {low[0]} AND id > {low[1]}) OR ({due} AND at > {low[0]})"
    return (
        f"SELECT {rows.RECORD} FROM tarry_task FORCE INDEX (turn) WHERE {due} "
        f"ORDER BY at LIMIT {count} OFFSET {offset} FOR UPDATE SKIP LOCKED"
    )


def looks(exchange: Exchange, lanes: dict[int, str]) -> list[str]:
    """Return the statements of a look: two reads at the head of an index for each open lane."""
    time = f"SELECT {exchange.now_us}"
    if not lanes:
        return [time]
    heads = (
        "(SELECT t.at FROM tarry_task t FORCE INDEX (turn) WHERE t.lane = l.id AND t.leased = {} "
        "ORDER BY t.at LIMIT 1)"
    )
    of_lanes = (
        f"SELECT l.id, {heads.format(0)}, {heads.format(1)} "
        f"FROM tarry_lane l WHERE l.id IN ({', '.join(map(str, lanes))}) AND l.paused = 0"
    )
    return [of_lanes, time]


def sight(results: Sequence[Result]) -> Sight:
    """Return what the statements of a look saw."""
    # The time comes last: what was due in the look is due by it.
    now_us = int(results[-1].rows[0][0])
    found = results[0].rows if len(results) > 1 else ()
    heads = {lane: due for lane, due, _ in found if due is not None}
    ends = {lane: end for lane, _, end in found if end is not None}
    return Sight(now_us, heads, ends)


def _by_due(lease: Lease) -> int:
    return lease.task.due
