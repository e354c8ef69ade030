"""Wire: from batches to the words the scripts take, and from their answers back (pure).

A batch is cut by shard and, within a shard, by kind: items of one ref stay in their order, and a
script finds the tasks of a kind side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

from tarry.answers import (
    CancelResult,
    Moved,
    MoveStatus,
    RenewResult,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import Dead, Done, Release, Retry, Skip
from tarry.due import At, By, Due, resolve
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Only, Request, Settlement
from tarry.stores.redis.layout import shard_of
from tarry.stores.redis.records import lease_of, tail
from tarry.task import TaskRef

I = TypeVar("I")  # noqa: E741 - an item, as A is an answer
A = TypeVar("A")

_MODES = {mode: place for place, mode in enumerate(OnConflict)}
_ONLY = {only: place for place, only in enumerate(Only)}
_SCHEDULED = (
    ScheduleStatus.CREATED,
    ScheduleStatus.REPLACED,
    ScheduleStatus.KEPT,
    ScheduleStatus.CONFLICT,
)
_MOVED = (
    MoveStatus.ABSENT,
    MoveStatus.RUNNING,
    MoveStatus.CONFLICT,
    MoveStatus.UNCHANGED,
    MoveStatus.MOVED,
)
_CANCELLED = (
    CancelResult.CANCELLED,
    CancelResult.RUNNING,
    CancelResult.ABSENT,
    CancelResult.CONFLICT,
)
_RENEWED = (RenewResult.RENEWED, RenewResult.CANCELLED, RenewResult.LOST)
_SETTLED = (SettleResult.SETTLED, SettleResult.SUPERSEDED, SettleResult.LEASE_LOST)
_REVIVED = (ReviveResult.REVIVED, ReviveResult.SKIPPED, ReviveResult.ABSENT)

_ANSWER = Struct(">Bqq")
_HOW = Struct(">BBq")
_CARE = Struct(">qqq")
_MOVE = Struct(">BBqqq")
_END = Struct(">qBBqqq")
_WHICH = Struct(">Bq")
_ANY = _WHICH.pack(0, 0)
_TOKEN = Struct(">q")
_RELATIVE, _MAX_WAIT, _IF_REVISION, _CAREFUL = 1, 2, 4, 8
_BY, _NOMINAL = 2, 8
_ONE, _ONLY_RUNNING = 1, 2
_SUCCESSOR, _PLAINLY_OVER, _REASON = 2, 4, 8
_ALL_NEW = 255
_DONE, _DEAD, _RETRY, _SNOOZE, _RELEASE = range(5)


class Part:
    """What one shard is asked of a batch: the items' places in the batch, and the words."""

    __slots__ = ("places", "shard", "words")

    def __init__(self, shard: int, places: list[int], words: list[Any]) -> None:
        self.shard = shard
        self.places = places
        self.words = words


def parts(
    items: Sequence[I],
    shards: int,
    ref: Callable[[I], TaskRef],
    say: Callable[[I], tuple[bytes, bytes | str | None]],
) -> list[Part]:
    """Cut a batch by shard and kind.

    *say* tells of each item how it is meant, in bytes of a fixed length, and perhaps a word more.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    refs = [ref(item) for item in items]
    for place, name in enumerate(refs):
        shard = shard_of(name, shards) if shards > 1 else 0
        groups.setdefault((shard, name.kind), []).append(place)
    by_shard: dict[int, Part] = {}
    for (shard, kind), places in groups.items():
        part = by_shard.get(shard)
        if part is None:
            by_shard[shard] = part = Part(shard, [], [])
        hows: list[bytes] = []
        words: list[bytes | str] = []
        for place in places:
            how, word = say(items[place])
            hows.append(how)
            words.append(refs[place].key)
            if word is not None:
                words.append(word)
        part.places += places
        part.words += (kind, len(places), b"".join(hows), *words)
    return list(by_shard.values())


def plain_parts(items: Sequence[DeadRef], shards: int) -> list[Part]:
    """Cut a batch of dead letters by shard; each is told by kind, key and revision."""
    by_shard: dict[int, Part] = {}
    for place, item in enumerate(items):
        shard = shard_of(item.ref, shards)
        part = by_shard.setdefault(shard, Part(shard, [], []))
        part.places.append(place)
        part.words += (item.ref.kind, item.ref.key, item.revision)
    return list(by_shard.values())


def in_order(count: int, parts: Sequence[Part], answers: Sequence[Sequence[A]]) -> list[A]:
    """Return the answers of all parts in the order of the batch."""
    if len(parts) == 1:
        [part], [only] = parts, answers
        if part.places == list(range(count)):
            return list(only)
    ordered: list[Any] = [None] * count
    for part, some in zip(parts, answers, strict=True):
        for place, answer in zip(part.places, some, strict=True):
            ordered[place] = answer
    return ordered


# ---- what the items say


def ref_of(item: Request | Move | Cancellation | Lease) -> TaskRef:
    """Return the name of what an item is about."""
    return item.ref


def settled_ref(settlement: Settlement) -> TaskRef:
    """Return the name of what was settled."""
    return settlement.lease.ref


def request_words(request: Request) -> tuple[bytes, bytes]:
    """Say how a request is to be placed, and its record."""
    due = request.due
    if type(due) is At:
        flags, value = 0, due.instant
    else:
        flags, value = _due(due)
    mode = _MODES[request.on_conflict]
    if not (
        request.rule
        or request.nominal
        or request.if_revision is not None
        or request.max_wait_ms is not None
    ):
        return _HOW.pack(flags, mode, value), tail(request)
    flags |= _CAREFUL
    if request.max_wait_ms is not None:
        flags |= _MAX_WAIT
    if request.if_revision is not None:
        flags |= _IF_REVISION
    care = _CARE.pack(request.max_wait_ms or 0, request.if_revision or 0, request.nominal)
    return _HOW.pack(flags, mode, value), care + tail(request)


def move_words(move: Move) -> tuple[bytes, None]:
    """Say how a task is to be moved."""
    if isinstance(move.due, By):
        flags, value = _BY, move.due.shift_ms
    else:
        flags, value = _due(move.due)
    if move.if_revision is not None:
        flags |= _IF_REVISION
    if move.nominal is not None:
        flags |= _NOMINAL
    only = _ONLY[move.only]
    return _MOVE.pack(flags, only, value, move.if_revision or 0, move.nominal or 0), None


def cancellation_words(cancellation: Cancellation) -> tuple[bytes, None]:
    """Say which revision is to be cancelled."""
    wanted = cancellation.if_revision
    if wanted is None and not cancellation.only_running:
        return _ANY, None
    flags = (_ONE if wanted is not None else 0) | (
        _ONLY_RUNNING if cancellation.only_running else 0
    )
    return _WHICH.pack(flags, wanted or 0), None


def lease_words(lease: Lease) -> tuple[bytes, None]:
    """Say which lease is meant."""
    return _TOKEN.pack(lease.token), None


def settlement_words(settlement: Settlement) -> tuple[bytes, str | None]:
    """Say how an attempt ended."""
    outcome, successor, lease = settlement.outcome, settlement.successor, settlement.lease
    flags, value = 0, 0
    match outcome:
        case Done() | Skip():
            number = _DONE
            if not (successor or lease.task.keep_ms):
                return _END.pack(lease.token, _PLAINLY_OVER, _DONE, 0, 0, 0), None
        case Dead():
            number = _DEAD
        case Release():
            number = _RELEASE
        case _:
            number = _RETRY if isinstance(outcome, Retry) else _SNOOZE
            flags, value = _due(outcome.due)
    due = nominal = 0
    if successor is not None:
        flags |= _SUCCESSOR
        due, nominal = successor.due, successor.nominal
    reason = outcome.reason or None
    if reason:
        flags |= _REASON
    return _END.pack(lease.token, flags, number, value, due, nominal), reason


def _due(due: Due) -> tuple[int, int]:
    if isinstance(due, At):
        return 0, due.instant
    return _RELATIVE, due.delay_ms


# ---- what the scripts answer


def scheduled(requests: Sequence[Request], reply: bytes) -> list[Scheduled]:
    """Read the answers to a schedule."""
    status, now, revision = _ANSWER.unpack_from(reply)
    if status == _ALL_NEW:
        created = ScheduleStatus.CREATED
        return [
            Scheduled(request.ref, resolve(request.due, now), number, created)
            for number, request in enumerate(requests, revision)
        ]
    return [
        Scheduled(request.ref, due, revision, _SCHEDULED[status])
        for request, (status, due, revision) in zip(
            requests, _ANSWER.iter_unpack(reply), strict=True
        )
    ]


def moved(moves: Sequence[Move], reply: bytes) -> list[Moved]:
    """Read the answers to a reschedule."""
    return [
        Moved(move.ref, due, revision, _MOVED[status])
        for move, (status, due, revision) in zip(moves, _ANSWER.iter_unpack(reply), strict=True)
    ]


def cancelled(_items: Sequence[Cancellation], reply: bytes) -> list[CancelResult]:
    """Read the answers to a cancel."""
    return [_CANCELLED[byte] for byte in reply]


def renewed(_items: Sequence[Lease], reply: bytes) -> list[RenewResult]:
    """Read the answers to a renewal."""
    return [_RENEWED[byte] for byte in reply]


def settled(_items: Sequence[Settlement], reply: bytes) -> list[SettleResult]:
    """Read the answers to a settlement."""
    return [_SETTLED[byte] for byte in reply]


def revived(reply: bytes) -> list[ReviveResult]:
    """Read the answers to a revival."""
    return [_REVIVED[byte] for byte in reply]


def leases(sections: Sequence[Any], holder: str, expires: int) -> Iterator[Lease]:
    """Read the leases of a claim; *expires* is their end where they do not say another."""
    for kind, keys, records, tokens, *ends in sections:
        name = kind.decode()
        ended = [int(end) for end in ends[0]] if ends else [expires] * len(keys)
        numbers = (number for (number,) in _TOKEN.iter_unpack(tokens))
        for key, record, token, end in zip(keys, records, numbers, ended, strict=True):
            yield lease_of(TaskRef(name, key.decode()), record, token, holder, end)
