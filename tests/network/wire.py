"""Messages between SocketStore and its server: a length, then tarry's values as msgpack."""

import socket
import struct
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from tarry import answers, attempt, due, lease, request, task
from tarry.attempt import Outcome
from tarry.stores import store

_LENGTH = struct.Struct(">I")
_ASKED = (0x92, 0x94)
"""How msgpack begins what is asked for: a list of two or of four."""
_TEXT = 0xA0
"""How msgpack marks a short text."""
KNOWN: dict[str, Any] = {
    name: value
    for module in (answers, attempt, due, lease, request, task, store)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct | Enum | Outcome)
}


def frame(message: Any) -> bytes:
    """Return *message* as it travels."""
    body = msgspec.msgpack.encode(_plain(message))
    return _LENGTH.pack(len(body)) + body


def read(line: socket.socket) -> Any:
    """Return the next message; raises EOFError where the line ends instead."""
    (size,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    return _rich(msgspec.msgpack.decode(_exactly(line, size)))


def verb_of(request: bytes) -> str:
    """Return the verb of a request, of which a rule sees the beginning; empty if it is none."""
    message = request[_LENGTH.size :]
    if len(message) < 2 or message[0] not in _ASKED or message[1] & _TEXT != _TEXT:
        return ""
    return message[2 : 2 + (message[1] ^ _TEXT)].decode(errors="replace")


def _exactly(line: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = line.recv(min(size, 65_536))
        if not part:
            message = f"the line ended, {size} bytes too early"
            raise EOFError(message)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return {"": type(value).__name__, "value": value.value}
        case msgspec.Struct():
            return _named(value, {one: getattr(value, one) for one in value.__struct_fields__})
        case Outcome():
            return _named(value, vars(value))
        case Mapping():
            return {"": "dict", "items": [[key, _plain(one)] for key, one in value.items()]}
        case tuple():
            return {"": "tuple", "items": [_plain(one) for one in value]}
        case list():
            return [_plain(one) for one in value]
        case _:
            return value


def _named(value: object, fields: dict[str, Any]) -> dict[str, Any]:
    return {"": type(value).__name__, **{name: _plain(one) for name, one in fields.items()}}


def _rich(value: Any) -> Any:
    match value:
        case {"": "dict", "items": items}:
            return {key: _rich(one) for key, one in items}
        case {"": "tuple", "items": items}:
            return tuple(_rich(one) for one in items)
        case dict():
            fields = {str(one): _rich(what) for one, what in value.items()}
            return KNOWN[fields.pop("")](**fields)
        case list():
            return [_rich(one) for one in value]
        case _:
            return value
