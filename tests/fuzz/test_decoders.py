"""Whatever bytes a store hands back, they are decoded or refused; so is what callers hand in."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.errors import PayloadError
from tarry.payload import Arguments, decode_headers, encode, encode_headers


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


def order(order_id: int, reason: str = "unpaid") -> None: ...
def anything(x: Any = None) -> None: ...
def shapes(points: list[Point], at: datetime | None = None, tags: dict[str, int] = {}) -> None: ...  # noqa: B006
def nothing() -> None: ...


HANDLERS = [Arguments(fn, skip_first=False) for fn in (order, anything, shapes, nothing)]
PARTS = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b" ", b"\\", b"\x00", b"\xff", b"\xc0\x80"),
    *(b'"order_id"', b'"reason"', b'"x"', b'"points"', b'"at"', b'"\\ud800"', b'"\\u0000"'),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"-0", b"0x1", b"1.", b"9" * 400),
    *(b'{"order_id":1}', b'{"x":', b'"2025-13-01T00:00:00Z"', b"\xef\xbb\xbf", b"\xed\xa0\x80"),
]
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(PARTS), max_size=20).map(b"".join),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(
                st.sampled_from(["order_id", "reason", "x", "y", "points", "at", "tags", "é"]),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=10,
    ).map(msgspec.json.encode),
)


@given(BYTES)
@settings(max_examples=1_000, deadline=None)
def test_bytes_are_arguments_or_refused(data: bytes) -> None:
    for arguments in HANDLERS:
        try:
            values, unknown = arguments.decode(data)
        except PayloadError as error:
            assert "no longer fits" in str(error)  # noqa: PT017 - refused, and says so
            continue
        assert values.keys() <= set(arguments.names)
        assert not set(unknown) & set(arguments.names)


@given(BYTES)
@settings(max_examples=500, deadline=None)
def test_bytes_are_headers_or_refused(data: bytes) -> None:
    try:
        headers = decode_headers(data)
    except PayloadError:
        return
    assert all(isinstance(part, str) for pair in headers.items() for part in pair)


MEGABYTES = 10_000_000
HOSTILE = {
    "deep lists": b"[" * MEGABYTES,
    "deep objects": b'{"x":' * 1_000_000,
    "deep argument": b'{"order_id":' + b"[" * 100_000,
    "deep and whole": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep unknown field": b'{"order_id":1,"y":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not a number": b'{"order_id":NaN,"x":NaN}',
    "infinite": b'{"order_id":1e400}',
    "huge integer": b'{"order_id":' + b"9" * MEGABYTES + b"}",
    "huge exponent": b'{"order_id":1e' + b"9" * 1_000_000 + b"}",
    "half a surrogate": b'{"order_id":1,"reason":"\\ud800"}',
    "bad UTF-8": b'{"order_id":1,"reason":"\xff"}',
    "bad UTF-8 in a name": b'{"order_id":1,"\xff":1}',
    "no end": b'{"order_id":1,"reason":"' + b"a" * MEGABYTES,
    "a tail": b'{"order_id":1}\x00',
    "mark of order": b'\xef\xbb\xbf{"order_id":1}',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.timeout(20)
def test_hostile_json_does_not_fit(data: bytes) -> None:
    with pytest.raises(PayloadError):
        HANDLERS[0].decode(data)
    with pytest.raises(PayloadError):
        decode_headers(data)


def test_a_field_that_comes_twice_counts_as_it_came_last() -> None:
    assert HANDLERS[0].decode(b'{"order_id":1,"order_id":2}') == ({"order_id": 2}, ())
    assert decode_headers(b'{"a":"1","a":"2"}') == {"a": "2"}


def test_ten_megabytes_of_text_are_read() -> None:
    text = "a" * MEGABYTES

    assert HANDLERS[0].decode(encode({"order_id": 1, "reason": text}))[0]["reason"] == text


VALUES = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers()),
        *(st.text(st.characters(), max_size=5), st.binary(max_size=5), st.datetimes()),
        *(
            st.decimals(),
            st.uuids(),
            st.builds(object),
            st.integers(5_000, 5_003).map(lambda n: 10**n),
            st.just(print),
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=6,
)


@given(VALUES)
@settings(max_examples=500, deadline=None)
def test_a_value_is_kept_as_json_or_refused(value: object) -> None:
    try:
        data = encode({"x": value})
    except PayloadError as error:
        assert "nothing was written" in str(error)  # noqa: PT017 - refused, and says so
        return
    HANDLERS[1].decode(data)


@given(st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), VALUES, max_size=3))
@settings(deadline=None)
def test_headers_come_back_as_they_were_or_are_refused(headers: Any) -> None:
    try:
        data = encode_headers(headers)
    except PayloadError:
        return
    assert decode_headers(data) == headers
