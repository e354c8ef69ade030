"""Handlers are checked when they are declared."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tarry
from tarry import Backoff, Context
from tarry.backoff import DEFAULT
from tarry.errors import HandlerError, PayloadError, RefError, WhenError
from tarry.handler import Handler, Registry, wants_context
from tarry.recurrence import Rule


def order(ctx: Context, order_id: int, reason: str = "unpaid") -> None: ...


async def aorder(order_id: int) -> None: ...


# ---- what is declared


def test_the_kind_defaults_to_the_functions_name() -> None:
    assert Handler(order).kind == "order"
    assert Handler(order, kind="order.cancel").kind == "order.cancel"


def test_defaults_are_the_documented_ones() -> None:
    handler = Handler(order)

    assert handler.retry == DEFAULT == Backoff.exponential("10s", 2, max="1h", times=5)
    assert handler.timeout_ms is handler.drop_after_ms is handler.concurrency is None
    assert handler.keep_ms == 0
    assert not handler.is_async
    assert Handler(aorder).is_async


def test_durations_are_read_when_declared() -> None:
    handler = Handler(order, timeout="10s", drop_after=3600, keep="7d")

    assert (handler.timeout_ms, handler.drop_after_ms, handler.keep_ms) == (
        10_000,
        3_600_000,
        604_800_000,
    )
    with pytest.raises(WhenError):
        Handler(order, timeout="soon")


@pytest.mark.parametrize("kind", ["with space", "ü", "x" * 129, "a/b"])
def test_a_kind_that_is_not_allowed_is_refused(kind: str) -> None:
    with pytest.raises(RefError):
        Handler(order, kind=kind)
    with pytest.raises(RefError):
        Handler(order, aliases=[kind])


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_kind_runs_at_least_once_at_a_time(concurrency: int) -> None:
    with pytest.raises(HandlerError, match="at least 1"):
        Handler(order, concurrency=concurrency)


def test_a_handler_that_yields_is_refused() -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def loop() -> AsyncIterator[int]:
        yield 1

    for fn in (plain, loop):
        with pytest.raises(HandlerError, match="yields"):
            Handler(fn)


def test_a_recurring_handler_needs_no_arguments() -> None:
    rule = Rule.make(every="1h")

    with pytest.raises(HandlerError, match="order_id"):
        Handler(order, rule=rule)

    def fine(ctx: Context, depth: int = 1) -> None: ...

    assert Handler(fine, rule=rule).series_key == "fine"
    assert Handler(fine, rule=rule, key="all").series_key == "all"
    assert Handler(fine, rule=rule, key="depth:{depth}").series_key == "depth:1"


# ---- the context


def with_text(ctx: "Context", x: int) -> None: ...
def with_path(ctx: "tarry.Context", x: int) -> None: ...
def with_other(ctx: int, x: int) -> None: ...
def second(x: int, ctx: Context) -> None: ...
def bare(ctx, x):  # type: ignore[no-untyped-def]  # noqa: ANN001
    ...


@pytest.mark.parametrize(
    ("fn", "wants"),
    [
        (order, True),
        (with_text, True),
        (with_path, True),
        (with_other, False),
        (second, False),
        (bare, False),
        (lambda: None, False),
    ],
)
def test_a_first_parameter_annotated_as_context_gets_one(
    fn: Callable[..., object], wants: bool
) -> None:
    assert wants_context(fn) is wants


# ---- keys


def made(key: Any, *args: object, **kwargs: object) -> str:
    return Handler(order, key=key).key.of_call(args, kwargs)


def test_a_template_makes_keys() -> None:
    assert made("order:{order_id}", 42) == "order:42"
    assert made("order:{order_id}", order_id=42) == "order:42"
    assert made("{order_id}/{reason}", 42) == "42/unpaid"
    assert made("{order_id}/{reason}", 42, reason="late") == "42/late"
    assert made("{order_id}-{order_id}", 42) == "42-42"
    assert made("all") == "all"
    assert made("{{{order_id}}}", 42) == "{42}"


def test_a_template_may_have_a_format() -> None:
    assert made("{order_id:05d}", 42) == "00042"
    assert made("{reason!r:>6}", reason="x") == "   'x'"


@pytest.mark.parametrize(
    "template",
    [
        "{order}",
        "{}",
        "{0}",
        "{order_id.real}",
        "{order_id[0]}",
        "{ctx}",
        "{",
        "}{",
        "{order_id:{width}}",
    ],
)
def test_a_template_that_cannot_work_is_refused_when_declared(template: str) -> None:
    with pytest.raises(HandlerError, match="the key of order"):
        Handler(order, key=template)


def test_a_key_that_cannot_be_formatted_is_refused() -> None:
    with pytest.raises(PayloadError, match="order_id"):
        made("{order_id:05d}", "forty-two")


@pytest.mark.parametrize("value", ["", "x" * 513, "a\nb", "\ud800"])
def test_a_key_that_is_not_allowed_is_refused(value: str) -> None:
    with pytest.raises(RefError):
        made("{reason}", reason=value)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, 2), {}), ((), {"order_id": 1, "x": 1}), ((), {}), ((1,), {"reason": ""})],
)
def test_a_key_is_made_of_its_fields_only(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    with pytest.raises(PayloadError):
        made("order:{order_id}", *args, **kwargs)


def test_a_field_is_given_once() -> None:
    with pytest.raises(PayloadError, match="twice"):
        made("order:{order_id}", 1, order_id=2)


def test_a_function_makes_keys() -> None:
    def key(order_id: int) -> str:
        return f"#{order_id}"

    assert made(key, 42) == made(key, order_id=42) == "#42"


def test_a_key_functions_own_default_is_used() -> None:
    def key(order_id: int, reason: str = "any") -> str:
        return f"{order_id}:{reason}"

    handler = Handler(order, key=key)

    assert handler.key.of_call((42,), {}) == handler.key.make({"order_id": 42})


def test_a_key_functions_default_fills_in_where_the_handler_has_none() -> None:
    def key(reason: str, order_id: int = 0) -> str:
        return f"{order_id}:{reason}"

    assert made(key, "late") == "0:late"
    assert made(key) == "0:unpaid"


def test_a_key_function_takes_arguments_of_the_handler() -> None:
    def key(shop: str) -> str:
        return shop

    with pytest.raises(HandlerError, match="shop"):
        Handler(order, key=key)


def test_a_key_function_returns_text() -> None:
    with pytest.raises(RefError, match="text"):
        made(lambda order_id: order_id, 42)


def test_without_a_key_one_has_to_be_named() -> None:
    with pytest.raises(PayloadError, match="using"):
        made(None, 42)


# ---- the registry


def test_a_kind_has_one_handler() -> None:
    registry = Registry()
    registry.add(Handler(order, aliases=["old"]))

    with pytest.raises(HandlerError, match="has a handler already"):
        registry.add(Handler(order))
    with pytest.raises(HandlerError, match="has a handler already"):
        registry.add(Handler(aorder, kind="old"))
    with pytest.raises(HandlerError, match="has a handler already"):
        registry.add(Handler(aorder, aliases=["order"]))
    assert registry.kinds() == ("order", "old")


def test_a_kind_is_not_its_own_alias() -> None:
    registry = Registry()

    registry.add(Handler(order, aliases=["order"]))

    assert registry.kinds() == ("order",)


def test_aliases_find_their_handler() -> None:
    registry = Registry()
    handler = Handler(order, kind="new", aliases=["old"])
    registry.add(handler)

    assert registry.find("new") is registry.find("old") is handler
    assert registry.find("none") is None
    assert list(registry) == [handler]
