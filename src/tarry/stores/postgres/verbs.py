"""Verbs: the batch of a verb as the arguments of its function, and its answers back (pure).

Items are told in the order of their refs, so that two calls never wait for each other in a ring;
items of one ref keep their order. The same arguments serve a call of the store's own and a
statement in a caller's transaction.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import starmap
from typing import Any, TypeVar

import msgspec

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
from tarry.attempt import Dead, Done, Release, Retry, Skip, Snooze
from tarry.due import By, Due, In, resolve
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, OnConflict, Only, Request, Settlement
from tarry.stores.postgres.wire import Statement
from tarry.task import Task, TaskRef, TaskState

T = TypeVar("T")
A = TypeVar("A")
Values = list[Any]

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
_ALL_NEW_IN_ORDER, _ALL_NEW = 0, 1

_REFS = ("text[]", "int4[]", "text[]")
"""Kinds, whose of them each item is, keys."""
_CALL = ("text", "text", "int8")
"""Namespace, call, clock."""
TYPES: dict[str, tuple[str, ...]] = {
    "schedule": (
        *_CALL,
        "bool",
        *_REFS,
        *("int8[]", "bytea[]", "bytea[]", "int4[]", "int8[]", "int8[]"),
        *("text[]", "int8[]", "bool[]", "int8[]"),
    ),
    "reschedule": (*_CALL, *_REFS, "int8[]", "bool[]", "int4[]", "int8[]", "int8[]"),
    "cancel": (*_CALL, *_REFS, "int8[]", "bool[]"),
    "revive": (*_CALL, *_REFS, "int8[]"),
    "purge": (*_CALL, *_REFS, "int8[]"),
    "take_over": (
        *_CALL,
        "bool",
        *_REFS,
        *("int8[]", "int8[]", "int8[]", "int4[]", "int4[]", "int4[]", "int8[]", "bool[]", "bool[]"),
        *("int8[]", "text[]", "text[]", "bytea[]", "bytea[]"),
    ),
    "pause": (*_CALL, "text", "bool"),
    "renew": ("text", "int8", "int8", *_REFS, "int8[]"),
    "settle": (
        *_CALL,
        "bool",
        *_REFS,
        *("tid[]", "int8[]", "int4[]", "int8[]", "text[]", "int8[]", "int8[]"),
    ),
    "lanes_of": ("text", "text[]"),
    "claim": (
        *("text", "int8", "text[]", "int8[]", "text[]", "int4", "int8", "text", "int8", "int8"),
        *("int8", "int4", "bool"),
    ),
}

HOME = Statement(
    "home", "SELECT here.system_identifier, current_database()::text FROM pg_control_system() here"
)
"""Which cluster and database this is: a copy of a database has another name or cluster."""


@cache
def statement(name: str, schema: str) -> Statement:
    """Return the call of a verb's function."""
    types = TYPES[name]
    words = ", ".join(f"${place}" for place in range(1, len(types) + 1))
    shape = "* FROM " if name == "claim" else ""
    return Statement(name, f'SELECT {shape}"{schema}".{name}({words})', types)


@cache
def joined(name: str, schema: str) -> str:
    """Return the call of a verb's function in the style of a caller's driver.

    No row comes back, and nothing is called, unless cluster and database are those that are said
    behind the arguments: whatever name, address or pooler the caller came by.
    """
    words = ", ".join(f"%s::{kind}" for kind in TYPES[name])
    return (
        f'SELECT "{schema}".{name}({words}) FROM pg_control_system() here '
        "WHERE here.system_identifier = %s::int8 AND current_database() = %s::text"
    )


class Batch(msgspec.Struct, frozen=True):
    """The items of a call as they are told: in the order of their refs."""

    refs: list[TaskRef]
    order: list[int] | None
    """The place in the caller's batch of each item; None: it is the same."""
    kinds: list[str]
    which: list[int] | None
    keys: list[str]
    apart: bool
    """Whether no ref comes twice."""


def batch(refs: list[TaskRef]) -> Batch:
    """Return the refs of a call in order."""
    first = refs[0].kind
    if len(refs) == 1:
        return Batch(refs, None, [first], None, [refs[0].key], apart=True)
    order: list[int] | None = None
    if any(ref.kind != first for ref in refs):
        order = sorted(range(len(refs)), key=refs.__getitem__)
        refs = [refs[place] for place in order]
        keys = [ref.key for ref in refs]
        kinds = list(dict.fromkeys(ref.kind for ref in refs))
        places = {kind: place for place, kind in enumerate(kinds, 1)}
        which = [places[ref.kind] for ref in refs]
        return Batch(refs, order, kinds, which, keys, apart=len(set(refs)) == len(refs))
    keys = [ref.key for ref in refs]
    in_order = sorted(keys)
    if in_order != keys:
        order = sorted(range(len(keys)), key=keys.__getitem__)
        refs, keys = [refs[place] for place in order], in_order
    return Batch(refs, order, [first], None, keys, apart=len(set(keys)) == len(keys))


def arranged(items: Sequence[T], order: list[int] | None) -> Sequence[T]:
    """Return *items* as they are told."""
    return items if order is None else [items[place] for place in order]


def restored(answers: list[A], order: list[int] | None) -> list[A]:
    """Return *answers* in the caller's order."""
    if order is None:
        return answers
    found: list[Any] = [None] * len(answers)
    for place, answer in zip(order, answers, strict=True):
        found[place] = answer
    return found


def _told(due: Due) -> int:
    return -1 - due.delay_ms if isinstance(due, In) else due.instant


def _unless(values: list[Any], default: object) -> list[Any] | None:
    """Return *values*, None where all are the default."""
    return values if any(value != default for value in values) else None


def schedule(given: Batch, requests: Sequence[Request]) -> Values:
    """Return what is said of requests, behind namespace, call and clock."""
    items = arranged(requests, given.order)
    refs = (given.kinds, given.which, given.keys)
    dues = [_told(item.due) for item in items]
    payloads = [item.payload for item in items]
    if all(map(_is_plain, items)):
        return [given.apart, *refs, dues, payloads, *(None,) * 8]
    revisions = _unless([item.if_revision for item in items], None)
    return [
        given.apart and revisions is None,
        *refs,
        dues,
        payloads,
        _unless([item.headers for item in items], b""),
        _unless([_MODES[item.on_conflict] for item in items], 0),
        _unless([item.max_wait_ms for item in items], None),
        revisions,
        _unless([item.rule for item in items], ""),
        _unless([item.nominal for item in items], 0),
        _unless([item.declared for item in items], default=False),
        _unless([item.keep_ms for item in items], 0),
    ]


_REPLACE = OnConflict.REPLACE


def _is_plain(item: Request) -> bool:
    return (
        item.on_conflict is _REPLACE
        and not item.rule
        and not item.headers
        and not item.keep_ms
        and item.if_revision is None
        and not item.declared
    )


def scheduled(given: Batch, requests: Sequence[Request], answers: Sequence[int]) -> list[Scheduled]:
    """Return the answers to requests."""
    shape, now, *rest = answers
    created = ScheduleStatus.CREATED
    if shape in {_ALL_NEW, _ALL_NEW_IN_ORDER}:
        items = arranged(requests, given.order)
        revisions = range(rest[0], rest[0] + len(items)) if shape == _ALL_NEW_IN_ORDER else rest
        found = [
            Scheduled(item.ref, resolve(item.due, now), revision, created)
            for item, revision in zip(items, revisions, strict=True)
        ]
    else:
        rows = zip(given.refs, rest[0::3], rest[1::3], rest[2::3], strict=True)
        found = [Scheduled(ref, due, revision, _SCHEDULED[s]) for ref, s, due, revision in rows]
    return restored(found, given.order)


def reschedule(given: Batch, moves: Sequence[Move]) -> Values:
    """Return what is said of moves."""
    items = arranged(moves, given.order)
    dues = [item.due.shift_ms if isinstance(item.due, By) else _told(item.due) for item in items]
    return [
        given.kinds,
        given.which,
        given.keys,
        dues,
        _unless([isinstance(item.due, By) for item in items], default=False),
        _unless([_ONLY[item.only] for item in items], 0),
        _unless([item.if_revision for item in items], None),
        _unless([item.nominal for item in items], None),
    ]


def moved(given: Batch, answers: Sequence[int]) -> list[Moved]:
    """Return the answers to moves."""
    rows = zip(given.refs, answers[0::3], answers[1::3], answers[2::3], strict=True)
    found = [Moved(ref, due, revision, _MOVED[status]) for ref, status, due, revision in rows]
    return restored(found, given.order)


def cancel(given: Batch, cancellations: Sequence[Cancellation]) -> Values:
    """Return what is said of cancellations."""
    items = arranged(cancellations, given.order)
    return [
        given.kinds,
        given.which,
        given.keys,
        _unless([item.if_revision for item in items], None),
        _unless([item.only_running for item in items], default=False),
    ]


def cancelled(given: Batch, answers: Sequence[int]) -> list[CancelResult]:
    """Return the answers to cancellations."""
    return restored([_CANCELLED[answer] for answer in answers], given.order)


def letters(given: Batch, refs: Sequence[DeadRef]) -> Values:
    """Return what is said of dead letters."""
    revisions = [item.revision for item in arranged(refs, given.order)]
    return [given.kinds, given.which, given.keys, revisions]


def revived(given: Batch, answers: Sequence[int]) -> list[ReviveResult]:
    """Return the answers to a revive."""
    return restored([_REVIVED[answer] for answer in answers], given.order)


def take_over(given: Batch, tasks: Sequence[Task]) -> Values:
    """Return what is said of records of another store."""
    items = arranged(tasks, given.order)
    return [
        given.kinds,
        given.which,
        given.keys,
        _unless([item.ended if item.state is TaskState.DEAD else None for item in items], None),
        [item.due for item in items],
        [item.created for item in items],
        _unless([item.attempt for item in items], 0),
        _unless([item.snoozes for item in items], 0),
        _unless([item.lost for item in items], 0),
        _unless([item.nominal for item in items], 0),
        _unless([item.declared for item in items], default=False),
        _unless([item.cancelled for item in items], default=False),
        _unless([item.keep_ms for item in items], 0),
        _unless([item.rule for item in items], ""),
        _unless([_storable(item.reason) for item in items], ""),
        _unless([item.headers for item in items], b""),
        [item.payload for item in items],
    ]


def yes_or_no(given: Batch, answers: Sequence[int]) -> list[bool]:
    """Return the answers to a purge, and to records of another store."""
    return restored([bool(answer) for answer in answers], given.order)


def renew(given: Batch, leases: Sequence[Lease]) -> Values:
    """Return what is said of leases."""
    tokens = [lease.token for lease in arranged(leases, given.order)]
    return [given.kinds, given.which, given.keys, tokens]


def renewed(given: Batch, leases: Sequence[Lease], answers: Sequence[int]) -> list[RenewResult]:
    """Return the answers to a renewal."""
    if not given.apart:
        # A row is updated once, and only once told of.
        known: dict[int, int] = {}
        tokens = [lease.token for lease in arranged(leases, given.order)]
        for token, answer in zip(tokens, answers, strict=True):
            known[token] = min(answer, known.get(token, answer))
        answers = [known[token] for token in tokens]
    return restored([_RENEWED[answer] for answer in answers], given.order)


_OUTCOMES: dict[type, int] = {Done: 0, Skip: 1, Dead: 2, Retry: 3, Snooze: 4, Release: 5}
_ENDS_WELL = 1


def settle(
    given: Batch, settlements: Sequence[Settlement], places: Callable[[list[int]], object] = list
) -> Values:
    """Return what is said of settlements; *places* turns what leases note of rows into tids."""
    items = arranged(settlements, given.order)
    tokens = [item.lease.token for item in items]
    refs = (given.kinds, given.which, given.keys)
    where = places([item.lease.place for item in items])
    # A lease that is settled twice is lost the second time.
    if given.apart and all(map(_is_simple, items)):
        return [*refs, where, tokens, *(None,) * 5]
    reasons = [_storable(item.outcome.reason) for item in items]
    successors = [item.successor for item in items]
    return [
        *refs,
        where,
        tokens,
        [_OUTCOMES[type(item.outcome)] for item in items],
        [
            _told(item.outcome.due) if isinstance(item.outcome, Retry | Snooze) else None
            for item in items
        ],
        _unless(reasons, ""),
        _unless([None if one is None else one.due for one in successors], None),
        _unless([None if one is None else one.nominal for one in successors], None),
    ]


def _storable(text: str) -> str:
    """Return *text* without what PostgreSQL has no place for."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _is_simple(item: Settlement) -> bool:
    return (
        _OUTCOMES[type(item.outcome)] <= _ENDS_WELL
        and item.successor is None
        and not item.lease.task.keep_ms
    )


def settled(given: Batch, answers: Sequence[int]) -> list[SettleResult]:
    """Return the answers to settlements; none: all are settled."""
    if not answers:
        return [SettleResult.SETTLED] * len(given.refs)
    return restored([_SETTLED[answer] for answer in answers], given.order)


def tids(places: Sequence[int]) -> str:
    """Return what leases note of rows as the text of an array of tids."""
    words = starmap("({},{})".format, ((place >> 16, place & 0xFFFF) for place in places))
    return "{" + ",".join(f'"{word}"' for word in words) + "}"
