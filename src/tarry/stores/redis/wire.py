"""Wire: from batches to the words the scripts take, and from their answers back (pure).

A batch is cut by shard and, within a shard, by kind: items of one ref stay in their order, and a
script finds the tasks of a kind side by side.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, repeat
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

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
from tarry.stores.redis.records import fixed_tail, later_tail, lease_of, record_of
from tarry.task import Task, TaskRef, TaskState

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
_CARE = Struct(">qqq")
_MOVE = Struct(">BBqqq")
_END = Struct(">BBqqq")
_WHICH = Struct(">Bq")
_TOKEN = Struct(">q")
_RELATIVE, _MAX_WAIT, _IF_REVISION, _CAREFUL = 1, 2, 4, 8
_BY, _NOMINAL = 2, 8
_ONE, _ONLY_RUNNING = 1, 2
_SUCCESSOR, _REASON = 2, 8
_DONE, _DEAD, _RETRY, _SNOOZE, _RELEASE = range(5)
_ALL_NEW = 255

Words: TypeAlias = list[Any]


class Verb(NamedTuple, Generic[I]):
    """How the items of a verb are told to its script."""

    ref: Callable[[I], TaskRef]
    is_plain: Callable[[I], bool]
    """Whether an item needs nothing looked at: plain ones of a kind are told together, in short."""
    say: Callable[[Sequence[I], bool, int], Words]
    """Returns what is said of items of one kind, behind its name and their number: in short, if all
    are plain and no key comes twice. Told last is how many items of the shard came before."""
    shortens: bool = False
    """Whether its script has a short way for a call of plain items of one kind."""


class Part:
    """What one shard is asked of a batch: the items' places in the batch, and the words."""

    __slots__ = ("is_whole", "places", "shard", "words")

    def __init__(self, shard: int, places: list[int], words: Words) -> None:
        self.shard = shard
        self.places = places
        self.words = words
        self.is_whole = False
        """Whether it is the whole batch, in its order."""


def parts(items: Sequence[I], shards: int, verb: Verb[I]) -> list[Part]:
    """Cut a batch by shard and kind, and what is plain from what is not."""
    ref = verb.ref
    if len(items) == 1:
        name = ref(items[0])
        words = [name.kind, 1, *verb.say(items, verb.is_plain(items[0]), 0)]
        _shorten(verb, words)
        alone = Part(shard_of(name, shards) if shards > 1 else 0, [0], words)
        alone.is_whole = True
        return [alone]
    groups: dict[tuple[int, str], list[int]] = {}
    refs = [ref(item) for item in items]
    kinds = {name.kind for name in refs}
    if shards == 1 and len(kinds) == 1:
        groups[0, kinds.pop()] = list(range(len(items)))
    else:
        for place, name in enumerate(refs):
            groups.setdefault((shard_of(name, shards), name.kind), []).append(place)
    by_shard: dict[int, Part] = {}
    for (shard, kind), places in groups.items():
        part = by_shard.setdefault(shard, Part(shard, [], []))
        for some, plain in _sorted(items, refs, places, verb):
            told = items if len(some) == len(items) else [items[place] for place in some]
            part.words += (kind, len(some), *verb.say(told, plain, len(part.places)))
            part.places += some
            if len(places) == len(items) == len(some):
                part.is_whole = True
                _shorten(verb, part.words)
    return list(by_shard.values())


def _shorten(verb: Verb[I], words: Words) -> None:
    """Say of a call that has only plain items of one kind that it has."""
    if verb.shortens and words[2] == 1:
        words[2] = 2


def _sorted(
    items: Sequence[I], refs: list[TaskRef], places: list[int], verb: Verb[I]
) -> Iterator[tuple[list[int], bool]]:
    """Yield the plain items and the others; all in their order where a key comes twice."""
    if len({refs[place].key for place in places}) < len(places):
        yield places, False
        return
    plain = [verb.is_plain(items[place]) for place in places]
    if all(plain):
        yield places, True
        return
    some = list(compress(places, plain))
    if some:
        yield some, True
    yield [place for place, is_plain in zip(places, plain, strict=True) if not is_plain], False


def plain_parts(items: Sequence[DeadRef | Task], shards: int) -> list[Part]:
    """Cut a batch of dead letters, or of tasks to take over, by shard; each is told by itself."""
    by_shard: dict[int, Part] = {}
    for place, item in enumerate(items):
        shard = shard_of(item.ref, shards)
        part = by_shard.setdefault(shard, Part(shard, [], []))
        part.places.append(place)
        part.words += (item.ref.kind, item.ref.key, *_plainly(item))
    return list(by_shard.values())


def _plainly(item: DeadRef | Task) -> tuple[int | bytes, ...]:
    if isinstance(item, DeadRef):
        return (item.revision,)
    return int(item.state is TaskState.DEAD), record_of(item)


def in_order(count: int, parts: Sequence[Part], answers: Sequence[Sequence[A]]) -> list[A]:
    """Return the answers of all parts in the order of the batch."""
    ordered: list[Any] = [None] * count
    for part, some in zip(parts, answers, strict=True):
        for place, answer in zip(part.places, some, strict=True):
            ordered[place] = answer
    return ordered


# ---- what the items say


def _ref(item: Request | Move | Cancellation | Lease) -> TaskRef:
    return item.ref


def _keys(items: Sequence[Request | Move | Cancellation | Lease]) -> list[str]:
    return [item.ref.key for item in items]


def _is_plain_request(request: Request) -> bool:
    return not (
        request.rule
        or request.nominal
        or request.if_revision is not None
        or request.max_wait_ms is not None
    )


def _say_requests(requests: Sequence[Request], plain: bool, before: int) -> Words:  # noqa: FBT001 - see Verb
    keeps = int(any(request.keep_ms for request in requests))
    keys = _keys(requests)
    if plain:
        hows = b""
        if any(request.on_conflict is not OnConflict.REPLACE for request in requests):
            hows = b"".join(bytes((0, _MODES[each.on_conflict])) for each in requests)
        dues = [request.due for request in requests]
        if all(isinstance(due, At) for due in dues):
            fixed = [due.instant for due in cast("list[At]", dues)]
            tails = map(fixed_tail, fixed, count(before), requests)
            return [1, keeps, hows, min(fixed), max(fixed), *keys, *map(str, fixed), *tails]
        tails = map(later_tail, count(before), requests)
        texts = [_due_text(request.due) for request in requests]
        return [1, keeps, hows, b"", b"", *keys, *texts, *tails]
    hows = b"".join(bytes((_care_flags(each), _MODES[each.on_conflict])) for each in requests)
    careful = [_care(request) + later_tail(0, request) for request in requests]
    texts = [_due_text(request.due) for request in requests]
    return [0, keeps, hows, b"", b"", *keys, *texts, *careful]


def _due_text(due: Due) -> str:
    return str(due.instant) if isinstance(due, At) else f"+{max(0, due.delay_ms)}"


def _care_flags(request: Request) -> int:
    if _is_plain_request(request):
        return 0
    flags = _CAREFUL
    if request.max_wait_ms is not None:
        flags |= _MAX_WAIT
    if request.if_revision is not None:
        flags |= _IF_REVISION
    return flags


def _care(request: Request) -> bytes:
    if _is_plain_request(request):
        return b""
    return _CARE.pack(request.max_wait_ms or 0, request.if_revision or 0, request.nominal)


def _say_moves(moves: Sequence[Move], distinct: bool, _before: int) -> Words:  # noqa: FBT001 - see Verb
    return [int(distinct), b"".join(map(_move, moves)), *_keys(moves)]


def _move(move: Move) -> bytes:
    if isinstance(move.due, By):
        flags, value = _BY, move.due.shift_ms
    else:
        flags, value = _due(move.due)
    if move.if_revision is not None:
        flags |= _IF_REVISION
    if move.nominal is not None:
        flags |= _NOMINAL
    only = _ONLY[move.only]
    return _MOVE.pack(flags, only, value, move.if_revision or 0, move.nominal or 0)


def _say_cancellations(
    cancellations: Sequence[Cancellation],
    plain: bool,  # noqa: FBT001 - see Verb
    _before: int,
) -> Words:
    return [b"" if plain else b"".join(map(_which, cancellations)), *_keys(cancellations)]


def _which(cancellation: Cancellation) -> bytes:
    wanted = cancellation.if_revision
    flags = _ONLY_RUNNING if cancellation.only_running else 0
    if wanted is not None:
        flags |= _ONE
    return _WHICH.pack(flags, wanted or 0)


def _say_leases(leases: Sequence[Lease], _plain: bool, _before: int) -> Words:  # noqa: FBT001 - see Verb
    return [b"".join(_TOKEN.pack(lease.token) for lease in leases), *_keys(leases)]


def _is_plainly_over(settlement: Settlement) -> bool:
    """Say whether nothing is kept of a task and nothing comes after it."""
    return (
        isinstance(settlement.outcome, Done | Skip)
        and settlement.successor is None
        and not settlement.lease.task.keep_ms
    )


def _say_settlements(settlements: Sequence[Settlement], plain: bool, _before: int) -> Words:  # noqa: FBT001 - see Verb
    tokens = b"".join([_TOKEN.pack(each.lease.token) for each in settlements])
    keys = [each.lease.task.ref.key for each in settlements]
    if plain:
        return [1, tokens, b"", *keys]
    reasons = [each.outcome.reason for each in settlements if each.outcome.reason]
    return [0, tokens, b"".join(map(_end, settlements)), *keys, *reasons]


def _end(settlement: Settlement) -> bytes:
    outcome, successor = settlement.outcome, settlement.successor
    flags, value = 0, 0
    match outcome:
        case Done() | Skip():
            number = _DONE
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
    if outcome.reason:
        flags |= _REASON
    return _END.pack(flags, number, value, due, nominal)


def _due(due: Due) -> tuple[int, int]:
    if isinstance(due, At):
        return 0, due.instant
    return _RELATIVE, due.delay_ms


def _always(_item: object) -> bool:
    return True


SCHEDULE = Verb[Request](_ref, _is_plain_request, _say_requests, shortens=True)
RESCHEDULE = Verb[Move](_ref, _always, _say_moves)
CANCEL = Verb[Cancellation](
    _ref, lambda item: item.if_revision is None and not item.only_running, _say_cancellations
)
RENEW = Verb[Lease](_ref, _always, _say_leases)
SETTLE = Verb[Settlement](
    lambda item: item.lease.task.ref, _is_plainly_over, _say_settlements, shortens=True
)


# ---- what the scripts answer


def scheduled(requests: Sequence[Request], reply: bytes) -> list[Scheduled]:
    """Read the answers to a schedule."""
    status, now, revision = _ANSWER.unpack_from(reply)
    if status == _ALL_NEW:
        created = ScheduleStatus.CREATED
        dues = [
            due.instant if isinstance(due, At) and due.instant >= now else resolve(due, now)
            for due in [request.due for request in requests]
        ]
        refs = [request.ref for request in requests]
        return list(map(Scheduled, refs, dues, count(revision), repeat(created)))
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


def yes_or_no(reply: bytes) -> list[bool]:
    """Read the answers to a purge, or of what was to be taken over."""
    return [bool(byte) for byte in reply]


def revived(reply: bytes) -> list[ReviveResult]:
    """Read the answers to a revival."""
    return [_REVIVED[byte] for byte in reply]


def leases(
    sections: Sequence[Any], holder: str, expires: int, tokens: Iterator[int]
) -> Iterator[Lease]:
    """Read the leases of a claim; *expires* and *tokens* are theirs unless they say others."""
    for kind, keys, records, *old in sections:
        name = kind.decode()
        ends: Iterable[int] = repeat(expires)
        if old:
            tokens = (number for (number,) in _TOKEN.iter_unpack(old[0]))
            ends = map(int, old[1])
        # The tokens last: they go on with the next kind.
        for key, record, end, token in zip(keys, records, ends, tokens, strict=False):
            yield lease_of(TaskRef(name, key.decode()), record, token, holder, end)
