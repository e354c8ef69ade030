"""Payloads are checked when they are scheduled and decoded when they run."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import msgspec
import pytest

from tarry.errors import HandlerError, PayloadError
from tarry.payload import (
    PAYLOAD_LIMIT,
    Arguments,
    Plain,
    check_size,
    decode_headers,
    encode,
    encode_headers,
)

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Colour(Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    name: str
    points: list[Point]


def arguments(fn: Callable[..., object]) -> Arguments:
    return Arguments(fn, skip_first=False)


def order(order_id: int, reason: str = "unpaid") -> None: ...


# ---- binding


@pytest.mark.parametrize(
    ("args", "kwargs", "values"),
    [
        ((1,), {}, {"order_id": 1}),
        ((1, "late"), {}, {"order_id": 1, "reason": "late"}),
        ((1,), {"reason": "late"}, {"order_id": 1, "reason": "late"}),
        ((), {"order_id": 1}, {"order_id": 1}),
        ((), {"reason": "late", "order_id": 1}, {"order_id": 1, "reason": "late"}),
    ],
)
def test_arguments_are_bound_by_name(
    args: tuple[object, ...], kwargs: dict[str, object], values: dict[str, object]
) -> None:
    assert arguments(order).bind(args, kwargs) == values


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "needs order_id"),
        ((), {"reason": "x"}, "needs order_id"),
        ((1, "x", 3), {}, "takes 2 arguments, 3 given"),
        ((1,), {"order_id": 1}, "'order_id' twice"),
        ((), {"order_id": 1, "x": 1}, "no argument 'x'; it takes order_id, reason"),
        ((1,), {"x": 1}, "no argument 'x'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(PayloadError, match=message):
        arguments(order).bind(args, kwargs)


def test_a_keyword_only_argument_is_not_bound_by_place() -> None:
    def fn(a: int, *, b: int) -> None: ...

    assert arguments(fn).bind((1,), {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(PayloadError, match="takes 1 arguments"):
        arguments(fn).bind((1, 2), {})


def test_a_function_without_arguments_takes_none() -> None:
    assert arguments(lambda: None).bind((), {}) == {}
    with pytest.raises(PayloadError, match="it takes none"):
        arguments(lambda: None).bind((), {"x": 1})


def test_arguments_without_a_name_are_refused() -> None:
    def stars(*args: int) -> None: ...
    def doubles(**kwargs: int) -> None: ...
    def nameless(x: int, /) -> None: ...

    for fn in (stars, doubles, nameless):
        with pytest.raises(HandlerError, match="names"):
            arguments(fn)


# ---- checking


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("42", "order_id"),
        (1.5, "order_id"),
        (None, "order_id"),
        (True, "order_id"),
        ([1], "order_id"),
    ],
)
def test_a_wrong_type_is_refused_by_the_name_of_its_field(value: object, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        arguments(order).encode({"order_id": value})


class Opaque: ...


@pytest.mark.parametrize("value", [Opaque(), {1j: 2}, lambda: 0, {"a": Opaque()}, "\ud800"])
def test_what_json_cannot_keep_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match="nothing was written"):
        encode({"x": value})


def test_what_never_ends_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(PayloadError):
        encode(endless)


HINTS = [
    (int, 2**53),
    (int, -1),
    (float, 1.5),
    (float, 2.0),
    (str, "zürich ✓"),
    (bool, True),
    (bytes, b"\x00\xff"),
    (None, None),
    (Optional[int], None),  # noqa: UP045
    (int | str, "x"),
    (list[int], [1, 2]),
    (dict[str, int], {"a": 1}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (datetime, datetime(2030, 1, 1, tzinfo=UTC)),
    (timedelta, timedelta(seconds=90)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Literal["a", "b"], "a"),
    (Point, Point(1, 2)),
    (Box, Box("b", [Point(1)])),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (Any, {"free": [1]}),
]


@pytest.mark.parametrize(("hint", "value"), HINTS, ids=lambda item: str(item)[:30])
@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
def test_arguments_come_back_as_they_were(hint: Any, value: object, optional: bool) -> None:
    def fn(x: Any = None) -> None: ...
    def needed(x: Any) -> None: ...

    chosen = fn if optional else needed
    chosen.__annotations__["x"] = hint
    kept = arguments(chosen)

    assert kept.decode(kept.encode({"x": value})) == ({"x": value}, ())


def test_arguments_without_hints_are_whatever_json_can_keep() -> None:
    def fn(a, b=7):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        ...

    kept = arguments(fn)

    assert kept.decode(kept.encode({"a": [1, "x"]})) == ({"a": [1, "x"]}, ())
    assert kept.decode(kept.encode({"a": 1, "b": None})) == ({"a": 1, "b": None}, ())


def test_a_default_is_left_to_the_function() -> None:
    kept = arguments(order)

    assert kept.encode({"order_id": 1}) == b'{"order_id":1}'
    assert kept.decode(b'{"order_id":1}') == ({"order_id": 1}, ())


def test_a_number_that_is_none_is_refused_where_a_number_is_asked_for() -> None:
    def fn(x: float) -> None: ...

    with pytest.raises(PayloadError):
        arguments(fn).encode({"x": math.nan})


def test_hints_that_cannot_be_read_are_an_error_of_the_handler() -> None:
    def fn(x: "Unknown") -> None: ...

    with pytest.raises(HandlerError, match="hints cannot be read"):
        arguments(fn).encode({"x": 1})


def test_hints_that_json_cannot_keep_are_an_error_of_the_handler() -> None:
    def fn(x: dict[int, int] | dict[str, str]) -> None: ...

    with pytest.raises(HandlerError, match="fn"):
        arguments(fn).encode({"x": {}})


# ---- decoding


def test_unknown_fields_are_left_out_and_named() -> None:
    found = arguments(order).decode(b'{"order_id":1,"colour":"red","size":{"a":1}}')

    assert found == ({"order_id": 1}, ("colour", "size"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b'"text"',
        b"{}",
        b'{"order_id":"1"}',
        b'{"order_id":null}',
        b'{"order_id":1,"reason":7}',
        b'{"order_id":1,"reason":"\xff"}',
        b"\x80\x04pickle",
        b'{"order_id":' + b"[" * 100_000,
    ],
)
def test_a_payload_that_no_longer_fits_is_an_error(data: bytes) -> None:
    with pytest.raises(PayloadError, match="no longer fits"):
        arguments(order).decode(data)


# ---- headers and sizes


def test_headers_are_text_to_text() -> None:
    assert encode_headers(None) == encode_headers({}) == b""
    assert decode_headers(b"") == {}
    assert decode_headers(encode_headers({"a": "b", "ü": "✓"})) == {"a": "b", "ü": "✓"}


@pytest.mark.parametrize(
    "headers",
    [
        {"a": 1},
        {1: "a"},
        {"a": None},
        {"a": "\ud800"},
        pytest.param({"a": 10**5_000}, id="a number too long to print"),
    ],
)
def test_other_headers_are_refused(headers: Any) -> None:
    with pytest.raises(PayloadError, match="nothing was written"):
        encode_headers(headers)


def test_payload_and_headers_together_have_a_limit() -> None:
    check_size(b"x" * 60, b"y" * 40, 100)

    with pytest.raises(PayloadError, match="101 bytes, more than the 100 allowed"):
        check_size(b"x" * 60, b"y" * 41, 100)


def test_the_plain_codec_changes_nothing() -> None:
    assert Plain().decode(Plain().encode(b"{}")) == b"{}"


@pytest.mark.parametrize("data", [b"\xff", b"{", b"[]", b'{"a":1}', b'{"a":"\xff"}'])
def test_headers_that_cannot_be_read_are_an_error(data: bytes) -> None:
    with pytest.raises(PayloadError, match="the headers cannot be read"):
        decode_headers(data)


def test_a_task_may_have_256_kibibytes() -> None:
    assert PAYLOAD_LIMIT == 262_144


# ---- what a handler takes


def test_the_context_is_no_argument() -> None:
    def fn(ctx: Any, order_id: int) -> None: ...

    assert Arguments(fn, skip_first=True).names == ("order_id",)


def test_what_the_handler_does_not_know_is_refused_when_it_is_scheduled() -> None:
    with pytest.raises(PayloadError, match="colour"):
        arguments(order).encode({"order_id": 1, "colour": "red"})


def test_a_hint_with_a_limit_is_held_to_it() -> None:
    def fn(x: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...

    with pytest.raises(PayloadError, match="x"):
        arguments(fn).encode({"x": -1})


def test_a_required_argument_may_stand_behind_an_optional_one() -> None:
    def fn(a: int = 1, *, b: int) -> None: ...

    assert arguments(fn).decode(b'{"b":2}') == ({"b": 2}, ())
    assert arguments(fn).decode(b'{"b":2,"c":3}') == ({"b": 2}, ("c",))


def test_a_payload_that_is_nested_too_deeply_does_not_fit() -> None:
    def fn(x: Any) -> None: ...

    with pytest.raises(PayloadError, match="no longer fits"):
        arguments(fn).decode(b'{"x":' + b"[" * 100_000)
