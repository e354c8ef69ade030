"""The Redis store: one server, Sentinel or Cluster; one Lua script per verb."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.clock import Clock
from tarry.errors import StoreError
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.redis import wire
from tarry.stores.redis.exchange import Exchange, Words
from tarry.stores.redis.layout import CLUSTER_SHARDS, DEFAULT_SHARDS
from tarry.stores.redis.links import Links
from tarry.stores.redis.looking import Looking
from tarry.stores.redis.server import Survey
from tarry.stores.redis.servers import servers
from tarry.stores.redis.url import Place
from tarry.stores.redis.wake import Wakeups
from tarry.stores.store import (
    CHUNK,
    RECLAIM_LIMIT,
    Capabilities,
    Claimed,
    Counts,
    Filter,
    Page,
    Store,
    Watcher,
)
from tarry.task import Task, TaskRef, check_namespace

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer

_CHUNK = 10 * CHUNK
"""So many items of a call are made into steps while the server is at work on those before."""
_MOST_CLAIMED = 1_000
"""More in one script would block the server for too long."""
_COSTLY = 100
"""So many items that must be looked at one by one go into one script."""
_COSTLY_BYTES = 1 << 18
_RECLAIMED = 50
"""So many expired leases are ended by one script."""


class RedisStore(Store):
    """Tasks in Redis, spread over shards; the server's clock decides, unless one is handed in."""

    def __init__(
        self, place: Place, *, namespace: str = "default", clock: Clock | None = None
    ) -> None:
        self.namespace = check_namespace(namespace)
        self._clock = clock
        self._links = Links(place)
        self._exchange = Exchange(
            place, namespace, self._links, servers(place, self._links, namespace)
        )
        try:
            survey = Survey(self._exchange, place, namespace)
            default = CLUSTER_SHARDS if place.how == "cluster" else DEFAULT_SHARDS
            self._shards = survey.settle_layout(place.shards, default)
            survives = survey.survives()
        except BaseException:
            self._links.close()
            raise
        self._survey = survey
        self.capabilities = Capabilities(
            medium="redis",
            survives=survives,
            shared=True,
            wakeup="pub/sub",
            remembers_calls=True,
            takes_over=True,
            shards=self._shards,
            chunk=_CHUNK,
        )
        self._all = range(self._shards)
        self._looking = Looking(self._exchange, self._shards, self._now_us)
        self._wakeups = Wakeups(place, namespace, self._shards, self._links, self._exchange.servers)
        self._turns = count()

    def _now_us(self) -> str | int:
        """Return what stands in for the server's clock, empty where nothing does."""
        return "" if self._clock is None else self._clock.now_us()

    # ---- the caller's verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Place each request in its ref's waiting slot."""
        return self._each("schedule", wire.SCHEDULE, requests, call, wire.scheduled)

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Give waiting tasks a new due."""
        return self._each("reschedule", wire.RESCHEDULE, moves, call, wire.moved)

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks."""
        return self._each("cancel", wire.CANCEL, cancellations, call, wire.cancelled)

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Record outcomes and end leases."""
        return self._each("settle", wire.SETTLE, settlements, call, wire.settled, durable=False)

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Let leases end *lease_ms* from now."""
        return self._each("renew", wire.RENEW, leases, str(lease_ms), wire.renewed, durable=False)

    def _each(
        self,
        name: str,
        verb: wire.Verb[I],
        items: Sequence[I],
        call: str,
        read: Callable[[Sequence[I], bytes], list[A]],
        *,
        durable: bool = True,
    ) -> list[A]:
        """Run a script on a batch, cut by shard and into steps no server is blocked by."""
        if not items:
            return []
        if len(items) == 1:
            return self._step(name, verb, items, call, read, durable=durable)
        steps = list(_steps(verb, items))
        if len(steps) == 1:
            return self._step(name, verb, items, call, read, durable=durable)
        # Each step is a call of its own, and a repeat finds each of them.
        numbers = [call if name == "renew" else _number(call, start) for start, _ in steps]
        answers: list[A] = []
        try:
            if self._shards == 1:
                told: deque[tuple[Sequence[I], wire.Part]] = deque()
                words = self._words(verb, steps, numbers, told)
                for reply in self._exchange.flow(name, 0, words, durable=durable):
                    step, part = told.popleft()
                    answers += _read(step, [part], [reply], read)
            else:
                for (_, step), number in zip(steps, numbers, strict=True):
                    answers += self._step(name, verb, step, number, read, durable=durable)
        except StoreError as error:
            error.answers = list(answers)
            raise
        return answers

    def _words(
        self,
        verb: wire.Verb[I],
        steps: Sequence[tuple[int, Sequence[I]]],
        numbers: Sequence[str],
        told: deque[tuple[Sequence[I], wire.Part]],
    ) -> Iterator[Words]:
        """Yield what the only shard is told in each step; *told* is what was yielded."""
        for (_, step), number in zip(steps, numbers, strict=True):
            [part] = wire.parts(step, 1, verb)
            told.append((step, part))
            yield (self._now_us(), number, *part.words)

    def _step(
        self,
        name: str,
        verb: wire.Verb[I],
        items: Sequence[I],
        call: str,
        read: Callable[[Sequence[I], bytes], list[A]],
        *,
        durable: bool,
    ) -> list[A]:
        parts = wire.parts(items, self._shards, verb)
        now = self._now_us()
        if len(parts) == 1:
            [part] = parts
            words = (now, call, *part.words)
            replies = [self._exchange.call(name, part.shard, words, durable=durable)]
        else:
            calls = [(part.shard, (now, call, *part.words)) for part in parts]
            replies = self._exchange.calls(name, calls, durable=durable)
        return _read(items, parts, replies, read)

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Make dead letters waiting tasks again."""
        return self._one_by_one("revive", refs, call, wire.revived)

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Delete dead letters."""
        return self._one_by_one("purge", refs, call, wire.yes_or_no)

    def take_over(
        self, tasks: Sequence[Task], *, replace: bool = False, call: str = ""
    ) -> list[bool]:
        """Place what another store has shown."""
        return self._one_by_one("take_over", tasks, call, wire.yes_or_no, int(replace))

    def _one_by_one(
        self,
        name: str,
        items: Sequence[DeadRef | Task],
        call: str,
        read: Callable[[bytes], list[A]],
        *how: int,
    ) -> list[A]:
        """Run a script that looks at each item by itself, told *how* before all of them."""
        answers: list[A] = []
        now = self._now_us()
        for start, step in _light(items, _COSTLY):
            number = _number(call, start)
            parts = wire.plain_parts(step, self._shards)
            calls = [(part.shard, (now, number, *how, *part.words)) for part in parts]
            replies = self._exchange.calls(name, calls, durable=True)
            answers += wire.in_order(len(step), parts, [read(reply) for reply in replies])
        return answers

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Stop or resume claims of *kind*, on every shard."""
        said = (self._now_us(), call, kind, int(paused))
        replies = self._exchange.calls("pause", [(n, said) for n in self._all], durable=True)
        return any(reply == b"\1" for reply in replies)

    # ---- the worker's verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Lease due tasks: a part of the limit from each shard, then the rest where more is due."""
        turn = next(self._turns)
        limit = min(limit, _MOST_CLAIMED)
        claims = _Claims(
            self._exchange, self._now_us(), kinds, lease_ms, holder, call, turn, self._shards
        )
        answers = claims.ask(even(limit, self._shards, turn), 1)
        left = {shard: answer.left for shard, answer in answers.items() if answer.left}
        rest = limit - len(claims.leases)
        if left and rest > 0 and not any(answer.repeated for answer in answers.values()):
            answers |= claims.ask(filled(rest, left), 2)
        # The earliest clock: a shard whose server is ahead must not make a worker early.
        now_us = min(answer.now_us for answer in answers.values())
        dues = [answer.next_due for answer in answers.values() if answer.next_due is not None]
        if self._shards > 1:
            claims.leases.sort(key=_by_due)
            if claims.leases:
                # … but what another shard has leased is due, and was due by now.
                now_us = max(now_us, claims.leases[-1].task.due * 1_000)
        return Claimed(claims.leases, now_us // 1_000, now_us % 1_000, min(dues, default=None))

    # ---- what operators see

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Show tasks."""
        return self._looking.get(refs)

    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Show tasks page by page."""
        return self._looking.scan(where, cursor, limit)

    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """Count tasks by kind."""
        return self._looking.counts(kinds)

    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        """Count the tasks due in each span from now on."""
        return self._looking.forecast(bucket_ms, buckets)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call *callback* on news."""
        return self._wakeups.watch(callback)

    def migrate(self) -> list[str]:
        """Do nothing: this is the first layout, and it is made when a namespace is first used."""
        return []

    def check(self) -> list[str]:
        """Look the servers over, and prove that orders and records agree."""
        return [*self._survey.findings(), *self._looking.check()]

    def facts(self) -> dict[str, str]:
        """Tell versions, layout and persistence."""
        return {**self._survey.facts(), "shards": str(self._shards)}

    def abandon(self) -> None:
        """Remove every key of the namespace, running attempts too; what is remembered expires."""
        self._exchange.calls("abandon", [(shard, ()) for shard in self._all], durable=True)

    def close(self) -> None:
        """Let go of the servers."""
        self._wakeups.close()
        self._links.close()


def _number(call: str, start: int) -> str:
    """Return the id of a call's step."""
    return f"{call}.{start}" if call and start else call


def _read(
    items: Sequence[I],
    parts: Sequence[wire.Part],
    replies: Sequence[bytes],
    read: Callable[[Sequence[I], bytes], list[A]],
) -> list[A]:
    """Return the answers to a batch in its order."""
    if parts[0].is_whole:
        return read(items, replies[0])
    answers = [
        read([items[place] for place in part.places], reply)
        for part, reply in zip(parts, replies, strict=True)
    ]
    return wire.in_order(len(items), parts, answers)


def _steps(verb: wire.Verb[I], items: Sequence[I]) -> Iterator[tuple[int, Sequence[I]]]:
    """Cut a batch into what one script may be given, with the place of each part."""
    most = CHUNK
    if len(items) > _COSTLY and not all(map(verb.is_plain, items)):
        most = _COSTLY
    return _light(items, most)


def _light(items: Sequence[I], most: int) -> Iterator[tuple[int, Sequence[I]]]:
    """Cut a batch into parts of so many items, and of so many bytes."""
    weighs = sum(len(item.payload) for item in items if isinstance(item, Request | Task))
    if len(items) <= most and weighs <= _COSTLY_BYTES:
        yield 0, items
        return
    start, size = 0, 0
    for place, item in enumerate(items):
        weight = len(item.payload) if isinstance(item, Request | Task) else 0
        if place > start and (place - start == most or size + weight > _COSTLY_BYTES):
            yield start, items[start:place]
            start, size = place, 0
        size += weight
    if start < len(items):
        yield start, items[start:]


_EXPIRED = 2
"""A claim that took nothing, because leases must be ended first."""


class _Answer(NamedTuple):
    """What a shard says besides its leases: its clock, if it repeats itself, what is left due."""

    now_us: int
    next_due: int | None
    repeated: bool
    left: int


class _Claims:
    """One claim, in one or two rounds of calls to the shards."""

    def __init__(
        self,
        exchange: Exchange,
        now: str | int,
        kinds: Sequence[str],
        lease_ms: int,
        holder: str,
        call: int,
        turn: int,
        shards: int,
    ) -> None:
        self._exchange = exchange
        self._now = now
        self._kinds = kinds
        self._lease_ms = lease_ms
        self._holder = holder
        self._call = call
        self._turn = turn
        self._shards = shards
        self.leases: list[Lease] = []

    def ask(
        self, limits: dict[int, int], number: int, *, goes_on: bool = False
    ) -> dict[int, _Answer]:
        """Claim up to a limit from each of some shards, after leases that expired were ended."""
        bases = {shard: _base() for shard in limits}
        calls = [
            (
                shard,
                (
                    self._now,
                    self._holder,
                    self._call,
                    number,
                    limit,
                    self._lease_ms,
                    _tokens(bases[shard], limit),
                    self._turn,
                    int(self._shards > 1) + 2 * goes_on,
                    *self._kinds,
                ),
            )
            for shard, limit in limits.items()
        ]
        if len(calls) == 1:
            replies = [self._exchange.call("claim", *calls[0], durable=True)]
        else:
            replies = self._exchange.calls("claim", calls, durable=True)
        answers = {}
        expired: dict[int, int] = {}
        for (shard, _), (now_us, due, repeated, left, *sections) in zip(
            calls, replies, strict=True
        ):
            now = int(now_us)
            answers[shard] = _Answer(now, int(due) if due else None, repeated == 1, left)
            if repeated == _EXPIRED:
                expired[shard] = limits[shard]
            expires = now // 1_000 + self._lease_ms
            self.leases += wire.leases(sections, self._holder, expires, count(bases[shard]))
        if expired:
            self._reclaim(expired)
            answers |= self.ask(expired, number, goes_on=True)
        return answers

    def _reclaim(self, shards: Iterable[int]) -> None:
        """End leases that have expired, in steps."""
        said = (self._now, _RECLAIMED, *dict.fromkeys(self._kinds))
        for _ in range(RECLAIM_LIMIT // _RECLAIMED):
            calls = [(shard, said) for shard in shards]
            replies = self._exchange.calls("reclaim", calls)
            shards = [shard for (shard, _), left in zip(calls, replies, strict=True) if left]
            if not shards:
                return


def even(limit: int, shards: int, turn: int) -> dict[int, int]:
    """Share *limit* evenly over all shards; *turn* rotates who gets one more."""
    part, rest = divmod(limit, shards)
    return {shard: part + ((shard - turn) % shards < rest) for shard in range(shards)}


def filled(limit: int, left: dict[int, int]) -> dict[int, int]:
    """Share *limit* over shards that have so much *left*: as even as that allows."""
    shares: dict[int, int] = {}
    for done, shard in enumerate(sorted(left, key=left.__getitem__)):
        shares[shard] = min(left[shard], limit // (len(left) - done))
        limit -= shares[shard]
    return {shard: share for shard, share in shares.items() if share}


def _by_due(lease: Lease) -> int:
    return lease.task.due


_ENDINGS = [number.to_bytes(2) for number in range(_MOST_CLAIMED)]


def _base() -> int:
    """Return the first token of a claim: 46 random bits, and 16 in which it counts."""
    return int.from_bytes(os.urandom(6)) >> 2 << 16


def _tokens(base: int, count: int) -> bytes:
    """Return *count* tokens from *base* on, as a script takes them."""
    return (base >> 16).to_bytes(6).join([b"", *_ENDINGS[:count]])
