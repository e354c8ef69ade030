"""Records: from tasks to the strings Redis keeps, and back.

Their layout is written in ``scripts/parts/records.lua``.
"""

from struct import Struct

from tarry.lease import Lease
from tarry.life import Life
from tarry.request import Request
from tarry.task import Task, TaskRef, TaskState

_HEAD = Struct(">qqqHIIHB")
_PLACE = Struct(">H")
_DUE_AND_PLACE = Struct(">qH")
_PLAIN_FROM_DUE = Struct(">qH11x")
_MORE = Struct(">qqqH")
_LENGTH = Struct(">H")
_HEADERS = Struct(">I")
_DECLARED, _CANCELLED, _HAS_MORE, _HAS_HEADERS, _GAVE_UP = 1, 2, 4, 8, 16
_UNTRIED = bytes(10)
_PLAIN = bytes(11)


def tail(request: Request) -> bytes:
    """Return a new task's record from its counters on; what is before them is put there later."""
    if not (request.rule or request.keep_ms or request.headers or request.declared):
        return _PLAIN + request.payload
    flags = _DECLARED if request.declared else 0
    parts = [b"", b"", b""]
    if request.rule or request.keep_ms:
        flags |= _HAS_MORE
        rule = request.rule.encode()
        parts[0] = _MORE.pack(0, request.keep_ms, 0, len(rule)) + rule + _LENGTH.pack(0)
    if request.headers:
        flags |= _HAS_HEADERS
        parts[1] = _HEADERS.pack(len(request.headers)) + request.headers
    parts[2] = request.payload
    return b"".join((_UNTRIED, bytes((flags,)), *parts))


def fixed_tail(due: int, place: int, request: Request) -> bytes:
    """Return the record from its due on; *place* counts the new ones of a call."""
    if not (request.rule or request.keep_ms or request.headers or request.declared):
        return _PLAIN_FROM_DUE.pack(due, place) + request.payload
    return _DUE_AND_PLACE.pack(due, place) + tail(request)


def later_tail(place: int, request: Request) -> bytes:
    """Return the record from behind its due on, which the server is to reckon."""
    return _PLACE.pack(place) + tail(request)


def record_of(task: Task) -> bytes:
    """Return the record of a task that another store has shown; its revision is the server's."""
    flags = (_DECLARED if task.declared else 0) | _HAS_MORE
    rule, reason = task.rule.encode(), task.reason.encode()[: (1 << 16) - 1]
    more = _MORE.pack(task.nominal, task.keep_ms, task.ended, len(rule)) + rule
    headers = b""
    if task.headers:
        flags |= _HAS_HEADERS
        headers = _HEADERS.pack(len(task.headers)) + task.headers
    head = _HEAD.pack(
        0, task.created, task.due, 0, task.attempt, task.snoozes, min(task.lost, 65_535), flags
    )
    return b"".join((head, more, _LENGTH.pack(len(reason)), reason, headers, task.payload))


def task_of(ref: TaskRef, record: bytes, state: TaskState, tries: int = 0) -> Task:
    """Return the task of a record; *tries*: attempts the record does not count yet."""
    base, created, due, place, attempt, snoozes, lost, flags = _HEAD.unpack_from(record)
    revision = base + place
    if not flags:
        return Task(
            ref=ref,
            due=due,
            revision=revision,
            created=created,
            payload=record[_HEAD.size :],
            attempt=attempt + tries,
            snoozes=snoozes,
            lost=lost,
            state=state,
        )
    at = _HEAD.size
    nominal = keep_ms = ended = 0
    rule, reason, headers = b"", b"", b""
    if flags & _HAS_MORE:
        nominal, keep_ms, ended, size = _MORE.unpack_from(record, at)
        at += _MORE.size
        rule = record[at : at + size]
        at += size
        (size,) = _LENGTH.unpack_from(record, at)
        at += _LENGTH.size
        reason = record[at : at + size]
        at += size
    if flags & _HAS_HEADERS:
        (size,) = _HEADERS.unpack_from(record, at)
        at += _HEADERS.size
        headers = record[at : at + size]
        at += size
    if flags & _GAVE_UP:
        state = TaskState.CANCELLED
    return Task(
        ref=ref,
        due=due,
        revision=revision,
        created=created,
        payload=record[at:],
        headers=headers,
        attempt=attempt + tries,
        snoozes=snoozes,
        lost=lost,
        rule=rule.decode(),
        nominal=nominal,
        declared=bool(flags & _DECLARED),
        keep_ms=keep_ms,
        reason=reason.decode(),
        cancelled=bool(flags & _CANCELLED),
        state=state,
        ended=ended,
    )


def lease_of(ref: TaskRef, record: bytes, token: int, holder: str, expires: int) -> Lease:
    """Return the lease on the task of a record."""
    task = task_of(ref, record, TaskState.LEASED, tries=1)
    return Lease(task=task, token=token, holder=holder, expires=expires)


def life_of(
    ref: TaskRef,
    front: bytes | None,
    token: bytes | None,
    expires: bytes | None,
    behind: bytes | None,
) -> Life:
    """Return both slots of a ref, as ``look.lua`` shows them."""
    if front is None:
        return Life()
    if token is None or expires is None:
        return Life(task_of(ref, front, TaskState.SCHEDULED))
    waiting = None if behind is None else task_of(ref, behind, TaskState.SCHEDULED)
    number = int.from_bytes(token[:8])
    return Life(waiting, lease_of(ref, front, number, "", int(float(expires))))
