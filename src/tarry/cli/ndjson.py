"""Lines of an export: one task in each, and a few that tell of the export itself."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import Any, Literal

import msgspec

from tarry.due import At, format_instant, parse_when
from tarry.errors import HandlerError, PayloadError, TarryError
from tarry.payload import PAYLOAD_LIMIT, check_size, decode_headers, encode_headers
from tarry.recurrence import Rule
from tarry.task import Task, TaskState, check_ref

_EMPTY = msgspec.Raw(b"{}")
_NULL = msgspec.Raw(b"null")


class Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A task as a line has it; what is left out is as it is for a new task."""

    kind: str
    key: str
    due: str
    state: Literal["scheduled", "dead"] = "scheduled"
    payload: msgspec.Raw = _EMPTY
    payload_base64: str = ""
    headers: dict[str, str] = {}
    headers_base64: str = ""
    rule: msgspec.Raw = _NULL
    nominal: str = ""
    declared: bool = False
    keep_ms: int = 0
    created: str = ""
    attempt: int = 0
    snoozes: int = 0
    lost: int = 0
    revision: int = 0
    reason: str = ""
    ended: str = ""


class Mark(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line about the export: its begin, how far it has come, its end."""

    tarry: Literal["export", "page", "end"]
    layout: int = 1
    namespace: str = ""
    state: str = ""
    cursor: str | None = None
    tasks: int = 0


class LineError(TarryError, ValueError):
    """A line that is no task."""


def written(task: Task) -> bytes:
    """Return the line of *task*."""
    line = Line(
        kind=task.ref.kind,
        key=task.ref.key,
        due=format_instant(task.due),
        state="dead" if task.state is TaskState.DEAD else "scheduled",
        declared=task.declared,
        keep_ms=task.keep_ms,
        created=format_instant(task.created),
        attempt=task.attempt,
        snoozes=task.snoozes,
        lost=task.lost,
        revision=task.revision,
        reason=task.reason,
        rule=msgspec.Raw(task.rule.encode()) if task.rule else _NULL,
        nominal=format_instant(task.nominal) if task.nominal else "",
        ended=format_instant(task.ended) if task.ended else "",
    )
    if _is_line(task.payload):
        line.payload = msgspec.Raw(task.payload)
    else:
        line.payload_base64 = b64encode(task.payload).decode()
    if task.headers:
        line.headers_base64 = b64encode(task.headers).decode()
        with suppress(PayloadError):
            headers = decode_headers(task.headers)
            if encode_headers(headers) == task.headers:
                line.headers, line.headers_base64 = headers, ""
    return msgspec.json.encode(line)


def _is_line(data: bytes) -> bool:
    """Say whether bytes can stand in a line as the JSON they are, and come out of it the same."""
    try:
        msgspec.json.decode(data)
        return data.decode() == data.strip().decode() and b"\n" not in data and b"\r" not in data
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def read(text: bytes, now: int) -> Task | Mark:
    """Return what a line says; raises LineError with what is wrong with it."""
    try:
        if text.lstrip().startswith(b'{"tarry"'):
            return msgspec.json.decode(text, type=Mark)
        return _task(msgspec.json.decode(text, type=Line), now)
    except (msgspec.MsgspecError, TarryError, UnicodeError, RecursionError, Base64Error) as error:
        raise LineError(str(error)) from error


def _task(line: Line, now: int) -> Task:
    payload, headers = bytes(line.payload), encode_headers(line.headers) if line.headers else b""
    if line.payload_base64:
        payload = b64decode(line.payload_base64, validate=True)
    if line.headers_base64:
        headers = b64decode(line.headers_base64, validate=True)
    check_size(payload, headers, PAYLOAD_LIMIT)
    numbers: dict[str, Any] = {
        name: getattr(line, name) for name in ("keep_ms", "attempt", "snoozes", "lost")
    }
    if min(numbers.values()) < 0:
        message = f"{min(numbers, key=lambda name: numbers[name])} is below zero"
        raise PayloadError(message)
    dead = line.state == "dead"
    due = _instant(line.due, now)
    rule = Rule.parse(bytes(line.rule).decode()).text() if bytes(line.rule) != bytes(_NULL) else ""
    return Task(
        ref=check_ref(line.kind, line.key),
        due=due,
        revision=line.revision,
        created=_instant(line.created, now) if line.created else now,
        payload=payload,
        headers=headers,
        rule=rule,
        nominal=_instant(line.nominal, now) if line.nominal else (due if rule else 0),
        declared=line.declared,
        reason=line.reason,
        state=TaskState.DEAD if dead else TaskState.SCHEDULED,
        ended=(_instant(line.ended, now) if line.ended else now) if dead else 0,
        **numbers,
    )


def _instant(text: str, now: int) -> int:
    """Return an instant; a delay would count from another moment each time the line is read."""
    due = parse_when(text, now)
    if not isinstance(due, At):
        message = f"{text!r} is a delay; a line has an instant, such as {format_instant(now)}"
        raise HandlerError(message)
    return due.instant
