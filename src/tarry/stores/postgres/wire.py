"""Wire: from Python's values to the binary form of PostgreSQL's types, and back (pure).

Arrays go over the wire as one string of bytes, packed here in one step: a list that the driver
adapts item by item costs several times as much.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct, pack, unpack_from
from typing import Any

_INT8 = Struct(">q")
_INT4 = Struct(">i")
_HEAD = Struct(">iiIii")
_LENGTH = Struct(">i")
_OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int4": 23,
    "text": 25,
    "tid": 27,
    "int8[]": 1016,
    "int4[]": 1007,
    "text[]": 1009,
    "bytea[]": 1001,
    "bool[]": 1000,
    "tid[]": 1010,
}


def _numbers(oid: int, code: str, size: int) -> Callable[[Sequence[Any]], bytes]:
    """Return what packs an array of numbers of one size; None in it is NULL."""

    def dump(values: Sequence[Any]) -> bytes:
        count = len(values)
        if None in values:
            one = Struct(f">i{code}")
            parts = [b"\xff\xff\xff\xff" if v is None else one.pack(size, v) for v in values]
            return _HEAD.pack(1, 1, oid, count, 1) + b"".join(parts)
        flat: list[Any] = [size] * (2 * count)
        flat[1::2] = values
        return _HEAD.pack(1, 0, oid, count, 1) + pack(f">{f'i{code}' * count}", *flat)

    return dump


def _strings(oid: int) -> Callable[[Sequence[bytes | None]], bytes]:
    def dump(values: Sequence[bytes | None]) -> bytes:
        length = _LENGTH.pack
        parts = [b"\xff\xff\xff\xff" if v is None else length(len(v)) + v for v in values]
        return _HEAD.pack(1, int(None in values), oid, len(values), 1) + b"".join(parts)

    return dump


_bytes_array = _strings(_OIDS["bytea"])
_text_array = _strings(_OIDS["text"])
_tid_array = _strings(_OIDS["tid"])

_DUMPS: Mapping[str, Callable[[Any], bytes]] = {
    "bool": lambda value: b"\1" if value else b"\0",
    "bytea": bytes,
    "int8": _INT8.pack,
    "int4": _INT4.pack,
    "text": str.encode,
    "int8[]": _numbers(_OIDS["int8"], "q", 8),
    "int4[]": _numbers(_OIDS["int4"], "i", 4),
    "bool[]": _numbers(_OIDS["bool"], "?", 1),
    "bytea[]": _bytes_array,
    "text[]": lambda values: _text_array([None if v is None else v.encode() for v in values]),
    "tid[]": lambda values: _tid_array([v.to_bytes(6) for v in values]),
}


class Statement:
    """A statement with a name, under which a connection prepares it once."""

    __slots__ = ("_dumps", "formats", "name", "oids", "sql")

    def __init__(self, name: str, sql: str, types: Sequence[str] = ()) -> None:
        self.name = name.encode()
        self.sql = sql.encode()
        self.oids = [_OIDS[kind] for kind in types]
        self.formats = [1] * len(types)
        self._dumps = [_DUMPS[kind] for kind in types]

    def words(self, values: Sequence[Any]) -> list[bytes | None]:
        """Return *values* as they go over the wire."""
        return [
            None if value is None else dump(value)
            for dump, value in zip(self._dumps, values, strict=True)
        ]


def numbers(array: bytes) -> tuple[int, ...]:
    """Return the numbers of an int8[]; none of them is NULL."""
    if len(array) <= 12:  # noqa: PLR2004 - the head of an empty array has no dimension
        return ()
    (count,) = _LENGTH.unpack_from(array, 12)
    return unpack_from(f">{'4xq' * count}", array, 20)
