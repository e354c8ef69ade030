"""Keys, headers, payload limits, codecs, history and series, as an app declares them."""

import hashlib
import hmac
import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.kit import Tap

from tarry import CancelResult, Context, PayloadError, Tarry, TaskRef, TaskState
from tarry.answers import RenewResult
from tarry.attempt import DONE, Dead
from tarry.clock import SYSTEM
from tarry.errors import HandlerError
from tarry.lease import Lease
from tarry.outcome import decide
from tarry.payload import PAYLOAD_LIMIT
from tarry.recurrence import Rule
from tarry.request import Settlement
from tarry.stores.store import Filter
from tarry.testing.clock import ManualClock
from tarry.worker.claim import place_series

Say = Callable[..., Any]
HOUR = 3_600_000


def claim(app: Tarry) -> list[Lease]:
    kinds = app.registry.kinds()
    return app.store.claim(kinds, limit=10, lease_ms=60_000, holder="test").leases


def settle(app: Tarry, lease: Lease, outcome: Any = DONE) -> None:
    now = SYSTEM.now()
    app.store.settle([Settlement(lease, outcome, decide.successor(lease.task, now))])


def place(app: Tarry) -> None:
    place_series(app.store, app.registry, app.registry.kinds(), app.codec)


# ---- keys


def test_a_fresh_key_is_a_uuid_of_version_7(app: Tarry, say: Say) -> None:
    before = SYSTEM.now()

    key = uuid.UUID(say(app.schedule, "k", "1h").ref.key)

    assert key.version == 7
    assert key.variant == uuid.RFC_4122
    assert before <= key.int >> 80 <= SYSTEM.now()


def test_fresh_keys_are_unique_and_sorted_by_time() -> None:
    clock = ManualClock()
    app = Tarry("memory:", clock=clock)
    keys = []
    for _ in range(200):
        keys.append(app.build("k", "1h").ref.key)
        clock.advance(1)

    assert keys == sorted(keys)
    assert len({app.build("k", "1h").ref.key for _ in range(1_000)}) == 1_000


def test_a_template_names_arguments_of_its_handler(app: Tarry) -> None:
    with pytest.raises(HandlerError, match="'order'"):

        @app.task(key="order:{order}")
        def bad(order_id: int) -> None: ...

    assert app.registry.kinds() == ()


def test_a_template_may_format(app: Tarry) -> None:
    @app.task(key="{order_id:06d}/{reason:.3}")
    def close(order_id: int, reason: str = "unpaid") -> None: ...

    assert close.schedule("1h", 42).ref.key == "000042/unp"
    assert close.cancel(order_id=42) is CancelResult.CANCELLED


def test_a_key_function_makes_the_key_of_every_verb(app: Tarry, say: Say) -> None:
    def key(shop: str, order_id: int) -> str:
        return f"{shop}#{order_id}"

    @app.task(key=key)
    def close(order_id: int, shop: str, note: str = "") -> None: ...

    assert say(close.schedule, "1h", 42, "berlin", note="x").ref.key == "berlin#42"
    assert say(close.get, "berlin", 42) is not None
    assert say(close.run_now, order_id=42, shop="berlin")
    assert say(close.cancel, "berlin", 42) is CancelResult.CANCELLED


def test_a_kind_is_declared_once(app: Tarry) -> None:
    @app.task()
    def close() -> None: ...

    with pytest.raises(HandlerError, match="already"):
        app.task("close")(lambda: None)
    assert close.kind == "close"


# ---- payloads


def test_a_payload_that_is_too_large_is_refused(url: str, say: Say) -> None:
    with Tarry(url, payload_limit=100) as app:

        @app.task()
        def mail(text: str) -> None: ...

        say(mail.schedule, "1h", "x" * 80)
        with pytest.raises(PayloadError, match="more than the 100 allowed"):
            say(mail.schedule, "1h", "x" * 100)
        with pytest.raises(PayloadError, match="more than the 100 allowed"):
            say(mail.using(headers={"trace": "y" * 50}).schedule, "1h", "x" * 50)
        with pytest.raises(PayloadError, match="more than the 100 allowed"):
            say(app.schedule, "mail", "1h", payload={"text": "x" * 100})
        assert app.store.counts()["mail"].scheduled == 1


def test_256_kib_are_allowed_by_default(app: Tarry) -> None:
    app.schedule("k", "1h", payload="x" * (PAYLOAD_LIMIT - 2))

    with pytest.raises(PayloadError):
        app.schedule("k", "1h", payload="x" * (PAYLOAD_LIMIT - 1))


@pytest.mark.parametrize("payload", [object(), {"x": lambda: 0}, {"x": 1j}])
def test_what_cannot_be_encoded_is_refused(app: Tarry, say: Say, payload: object) -> None:
    with pytest.raises(PayloadError):
        say(app.schedule, "k", "1h", payload=payload)
    assert app.store.counts() == {}


def test_headers_travel_with_the_task(app: Tarry, say: Say) -> None:
    @app.task(key="{n}")
    def mail(ctx: Context, n: int) -> None: ...

    say(mail.using(headers={"trace": "a", "ü": "✓"}).schedule, "now", 1)

    [lease] = claim(app)
    context = Context.of(lease.task, token=lease.token, lateness_ms=0, asked_to_stop=lambda: False)
    assert context.headers == {"trace": "a", "ü": "✓"}
    with pytest.raises(PayloadError):
        mail.using(headers={"a": 1})  # type: ignore[dict-item]


class Toy:
    """Encrypts (like a toy) and notices tampering."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def _stream(self, nonce: bytes, size: int) -> bytes:
        blocks = (
            hashlib.sha256(self._key + nonce + bytes([n])).digest() for n in range(size // 32 + 1)
        )
        return b"".join(blocks)[:size]

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")

    def encode(self, data: bytes) -> bytes:
        nonce = os.urandom(8)
        stream = self._stream(nonce, len(data))
        kept = nonce + bytes(a ^ b for a, b in zip(data, stream, strict=True))
        return self._mac(kept) + kept

    def decode(self, data: bytes) -> bytes:
        mac, kept = data[:32], data[32:]
        if not hmac.compare_digest(mac, self._mac(kept)):
            raise ValueError("tampered with")
        nonce, hidden = kept[:8], kept[8:]
        return bytes(a ^ b for a, b in zip(hidden, self._stream(nonce, len(hidden)), strict=True))


def test_a_codec_keeps_payloads_from_being_read(url: str, say: Say) -> None:
    with Tarry(url, codec=Toy()) as app:

        @app.task(key="{n}")
        def mail(n: int, text: str) -> None: ...

        say(mail.schedule, "now", 1, text="a very secret text")
        say(app.schedule, "mail", "now", key="2", payload={"n": 2, "text": "a very secret text"})

        tasks = app.store.scan(Filter()).tasks
        assert len(tasks) == 2
        for task in tasks:
            assert b"secret" not in task.payload
            assert app.codec.decode(task.payload).endswith(b'"a very secret text"}')


# ---- history


def test_history_is_kept_where_it_is_declared(app: Tarry) -> None:
    @app.task(key="{n}", keep="7d")
    def kept(n: int) -> None: ...

    @app.task(key="{n}")
    def gone(n: int) -> None: ...

    kept.schedule("now", 1)
    gone.schedule("now", 1)
    app.schedule("kept", "now", key="2", payload={"n": 2})
    for lease in claim(app):
        settle(app, lease)
    kept.schedule("1h", 3)
    kept.cancel(3)

    states = [kept.get(n).state for n in (1, 2, 3)]  # type: ignore[union-attr]
    assert states == [TaskState.DONE, TaskState.DONE, TaskState.CANCELLED]
    assert gone.get(1) is None


# ---- series that belong to the code


@pytest.fixture
def hourly(app: Tarry) -> Any:
    @app.task(every="1h")
    def hourly(depth: int = 1) -> None: ...

    place(app)
    return hourly


def test_a_declared_series_is_placed_once(app: Tarry, hourly: Any) -> None:
    first = hourly.get()

    place(app)

    assert hourly.get() == first
    assert first.declared
    assert first.ref == TaskRef("hourly", "hourly")
    assert first.due == first.nominal > SYSTEM.now()


def test_cancelling_a_declared_series_skips_one_occurrence(
    app: Tarry, hourly: Any, say: Say
) -> None:
    first = hourly.get()

    assert say(hourly.cancel) is CancelResult.CANCELLED

    task = hourly.get()
    assert task.due == task.nominal == first.nominal + HOUR
    assert say(app.cancel, task.ref, if_revision=first.revision) is CancelResult.CONFLICT
    assert say(app.cancel, task.ref, if_revision=task.revision) is CancelResult.CANCELLED
    assert hourly.get().due == first.nominal + 2 * HOUR


def test_cancelling_counts_from_the_occurrence_not_from_where_it_was_moved(
    hourly: Any, say: Say
) -> None:
    first = hourly.get()
    say(hourly.reschedule, "5m")

    say(hourly.cancel)

    assert hourly.get().due == first.nominal + HOUR


def test_cancelling_follows_the_clock_of_the_store(say: Say) -> None:
    clock = ManualClock()
    app = Tarry("memory:", clock=clock)

    @app.task(every="1h")
    def hourly() -> None: ...

    place(app)
    first = hourly.get()
    assert first is not None

    say(hourly.cancel)

    task = hourly.get()
    assert task is not None
    assert task.due == first.due + HOUR


def test_a_declared_series_goes_on_when_it_is_cancelled_while_it_runs(
    app: Tarry, hourly: Any, say: Say
) -> None:
    first = hourly.get()
    hourly.run_now()
    [lease] = claim(app)

    assert say(hourly.cancel) is CancelResult.RUNNING
    settle(app, lease, Dead("stopped"))

    task = hourly.get()
    assert task.state is TaskState.SCHEDULED
    assert task.nominal == first.nominal + HOUR


def test_a_declared_series_goes_on_when_its_occurrence_ends_while_it_is_cancelled(
    app: Tarry, hourly: Any, say: Say
) -> None:
    hourly.run_now()
    [lease] = claim(app)
    tap = Tap(app, "cancel")
    leases = [lease]
    tap.before = lambda _verb, _items: settle(app, leases.pop()) if leases else None

    assert say(hourly.cancel) is CancelResult.CANCELLED

    task = hourly.get()
    assert (task.state, task.declared) == (TaskState.SCHEDULED, True)
    assert task.nominal == lease.task.nominal + 2 * HOUR, "the next one was skipped"


def test_what_runs_is_cancelled_too_where_another_revision_waits_behind_it(
    app: Tarry, hourly: Any, say: Say
) -> None:
    hourly.run_now()
    [lease] = claim(app)
    say(hourly.schedule, "5m", 2)

    assert say(hourly.cancel) is CancelResult.RUNNING

    assert app.store.renew([lease], lease_ms=1_000) == [RenewResult.CANCELLED]
    settle(app, lease)
    task = hourly.get()
    assert (task.state, task.declared) == (TaskState.SCHEDULED, True)
    assert task.nominal == lease.task.nominal + HOUR


def test_a_series_goes_on_where_its_occurrence_waited_behind_what_is_none(
    app: Tarry, say: Say
) -> None:
    @app.task(every="1h")
    def hourly(depth: int = 1) -> None: ...

    app.schedule("hourly", "now", key="hourly")
    [lease] = claim(app)
    place(app)
    first = hourly.get()
    assert first is not None
    assert (first.state, first.declared) == (TaskState.SCHEDULED, True)

    assert say(hourly.cancel) is CancelResult.RUNNING
    settle(app, lease)

    task = hourly.get()
    assert task is not None
    assert (task.declared, task.nominal) == (True, first.nominal + HOUR)


def test_a_changed_rule_moves_the_series(app: Tarry, hourly: Any, url: str) -> None:
    del hourly
    changed = Tarry(url)
    changed.swap(app.store, SYSTEM)
    changed.task("hourly", every="1m")(lambda: None)

    place(changed)

    task = app.get(TaskRef("hourly", "hourly"))
    assert task is not None
    assert Rule.parse(task.rule).every_ms == 60_000
    assert task.due <= SYSTEM.now() + 60_000


def test_an_extra_run_of_a_declared_kind_has_a_key_of_its_own(hourly: Any, say: Say) -> None:
    extra = hourly.using(key="extra")

    say(extra.schedule, "5m", depth=3)

    assert extra.get().rule == ""
    assert not extra.get().declared
    assert say(extra.cancel) is CancelResult.CANCELLED
    assert hourly.get() is not None


def test_a_series_with_a_key_is_found_by_it(app: Tarry, say: Say) -> None:
    @app.task(every="1h", key="depth:{depth}")
    def tidy(depth: int = 1) -> None: ...

    place(app)

    assert say(tidy.get).ref.key == "depth:1"
    assert say(tidy.cancel) is CancelResult.CANCELLED
    assert say(tidy.get) is not None


# ---- series that belong to their caller


@pytest.fixture
def ping(app: Tarry) -> Any:
    @app.task()
    def ping(host: str) -> None: ...

    return ping


def test_a_series_of_a_caller_goes_on(app: Tarry, ping: Any, say: Say) -> None:
    series = ping.using(key="a", every="1h")
    first = say(series.schedule, "now", "a")

    [lease] = claim(app)
    settle(app, lease)

    task = say(series.get)
    assert task.due == task.nominal == first.due + HOUR
    assert not task.declared


def test_a_series_of_a_caller_is_ended_by_cancel(app: Tarry, ping: Any, say: Say) -> None:
    series = ping.using(key="a", every="1h")
    say(series.schedule, "1h", "a")

    assert say(series.cancel) is CancelResult.CANCELLED
    assert say(series.get) is None


def test_a_series_of_a_caller_is_ended_by_cancel_while_it_runs(
    app: Tarry, ping: Any, say: Say
) -> None:
    series = ping.using(key="a", cron="0 3 * * *", tz="Europe/Berlin")
    say(series.schedule, "now", "a")
    [lease] = claim(app)

    assert say(series.cancel) is CancelResult.RUNNING
    settle(app, lease)

    assert say(series.get) is None


def test_a_series_of_a_caller_needs_a_key(ping: Any) -> None:
    with pytest.raises(HandlerError, match="using"):
        ping.using(every="1h").schedule("now", "a")


def test_a_series_by_name(app: Tarry, say: Say) -> None:
    say(app.schedule, "ping", "1h", key="a", every="1h", payload={"host": "a"})
    say(app.schedule, "ping", "1h", key="b", cron="0 3 * * *", tz="UTC", payload={"host": "b"})

    assert app.get(TaskRef("ping", "a")).rule == Rule.make(every="1h").text()  # type: ignore[union-attr]
    assert say(app.cancel, TaskRef("ping", "a")) is CancelResult.CANCELLED
    assert app.get(TaskRef("ping", "a")) is None
    with pytest.raises(HandlerError):
        app.schedule("ping", "1h", key="a", every="1h", cron="0 3 * * *")


def test_a_declaration_without_parentheses_is_refused() -> None:
    app = Tarry("memory:")

    with pytest.raises(HandlerError, match="parentheses"):

        @app.task  # type: ignore[call-overload]
        def forgot() -> None: ...
