"""What a worker makes of handlers and of what they return, raise and break."""

import asyncio
import contextvars
import sys
import threading
import traceback
from typing import Any

import msgspec
import pytest
from tests.worker.kit import LIMIT, Ears, declare

from tarry import Backoff, Context, Dead, Retry, Shift, Skip, Snooze, Tarry, TaskRef, TaskState
from tarry.attempt import RELEASE, Done
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import HandlerError
from tarry.events import UnknownFields
from tarry.request import Request

NOW_OR_NEVER = Backoff.fixed("1ms", times=0)
QUICKLY = Backoff.ladder(["10ms", "20ms"])


def state(app: Tarry, key: object = 0, kind: str = "k") -> TaskState | None:
    task = app.get(TaskRef(kind, str(key)))
    return None if task is None else task.state


def settled(app: Tarry, key: object = 0, kind: str = "k") -> TaskState | None:
    """Return the state once the attempt was recorded: an event comes a moment before that."""
    deadline = SYSTEM.elapsed() + LIMIT * 1_000_000_000
    while (found := state(app, key, kind)) is TaskState.LEASED and SYSTEM.elapsed() < deadline:
        threading.Event().wait(0.001)
    return found


# ---- handlers run


def test_a_handler_runs_with_its_arguments_and_context(app: Tarry, ears: Ears, colour: str) -> None:
    seen: list[tuple[Context, int]] = []
    task = declare(app, colour, lambda ctx, n: seen.append((ctx, n)))

    with app.worker():
        answer = task.using(headers={"trace": "7"}).schedule("20ms", n=3)
        [event] = ears.ended()

    [(ctx, n)] = seen
    assert n == 3
    assert (ctx.ref, ctx.due, ctx.revision) == (answer.ref, answer.due, answer.revision)
    assert (ctx.attempt, ctx.snoozes, ctx.lost) == (1, 0, 0)
    assert ctx.headers == {"trace": "7"}
    assert ctx.token
    assert not ctx.cancelled
    assert (event.ref, event.outcome, event.attempt) == (answer.ref, "done", 1)
    assert event.error is None
    assert app.get(answer.ref) is None


def test_defaults_of_the_handler_fill_in(app: Tarry, ears: Ears) -> None:
    seen: list[tuple[int, str]] = []

    @app.task()
    def mail(a: int, b: str = "default") -> None:
        seen.append((a, b))

    with app.worker():
        mail.schedule("now", 1)
        ears.ended()

    assert seen == [(1, "default")]


def test_tasks_run_in_the_order_of_their_due(app: Tarry, ears: Ears, colour: str) -> None:
    order: list[int] = []
    task = declare(app, colour, lambda ctx, n: order.append(n))
    answers = app.schedule_many(task.build(f"{50 + n}ms", n) for n in (30, 10, 40, 20, 0))

    with app.worker(concurrency=1):
        ears.ended(5)

    assert [answer.due - answers[4].due for answer in answers] == [30, 10, 40, 20, 0]
    assert order == [0, 10, 20, 30, 40]


def test_no_attempt_is_early_and_lateness_is_told(app: Tarry, ears: Ears, colour: str) -> None:
    started: list[tuple[int, int, float]] = []

    def body(ctx: Context, n: int) -> None:
        started.append((SYSTEM.now_us(), ctx.due, ctx.lateness))

    task = declare(app, colour, body)
    with app.worker():
        for n in range(40):
            task.schedule(f"{n}ms", n)
        events = ears.ended(40)

    assert len(started) == 40
    for now_us, due, lateness in started:
        real = now_us / 1_000 - due
        assert 0 <= lateness * 1_000 <= real + 1
    assert all(0 <= event.lateness_ms < 5_000 for event in events)
    assert all(event.run_ms >= 0 for event in events)


def test_a_task_on_the_loop_may_call_async_verbs(app: Tarry, ears: Ears) -> None:
    ran: list[int] = []

    @app.task(key="{n}")
    async def chain(n: int) -> None:
        ran.append(n)
        if n:
            await chain.aschedule("5ms", n - 1)

    with app.worker():
        chain.schedule("now", 3)
        ears.ended(4)

    assert ran == [3, 2, 1, 0]


def test_a_task_on_a_thread_may_call_blocking_verbs(app: Tarry, ears: Ears) -> None:
    ran: list[int] = []

    @app.task(key="{n}")
    def chain(n: int) -> None:
        ran.append(n)
        if n:
            chain.schedule("5ms", n - 1)

    with app.worker():
        chain.schedule("now", 3)
        ears.ended(4)

    assert ran == [3, 2, 1, 0]


# ---- failures and wishes


def test_failures_are_retried_by_the_policy_and_then_dead(
    app: Tarry, ears: Ears, colour: str
) -> None:
    attempts: list[int] = []

    def body(ctx: Context, n: int) -> None:
        attempts.append(ctx.attempt)
        raise ValueError(f"no {ctx.attempt}")

    task = declare(app, colour, body, retry=QUICKLY)
    with app.worker():
        task.schedule("now")
        outcomes = ears.outcomes(3)

    assert attempts == [1, 2, 3]
    assert outcomes == ["retry", "retry", "dead"]
    dead = app.get(TaskRef("k", "0"))
    assert dead is not None
    assert dead.state is TaskState.DEAD
    assert dead.reason == "failed too often (3): ValueError: no 3"


def test_an_exception_is_an_event_with_its_traceback_and_the_worker_goes_on(
    app: Tarry, ears: Ears, colour: str
) -> None:
    def body(ctx: Context, n: int) -> None:
        if n:
            raise ValueError("boom")

    task = declare(app, colour, body, retry=NOW_OR_NEVER)
    with app.worker(concurrency=1):
        for n in range(1, 6):
            task.schedule("now", n)
        events = ears.ended(5)
        task.schedule("now", 0)
        last = ears.ended(6)[-1]

    assert last.outcome == "done"
    for event in events:
        assert isinstance(event.error, ValueError)
        assert any(
            frame.name == "body" for frame in traceback.extract_tb(event.error.__traceback__)
        )


@pytest.mark.parametrize("how", ["returned", "raised"])
@pytest.mark.parametrize(
    ("wish", "outcomes", "facts"),
    [
        (Retry("10ms", "again"), ["retry", "done"], [(1, 0), (2, 0)]),
        (Snooze("10ms", "not yet"), ["snooze", "done"], [(1, 0), (1, 1)]),
        (Skip("paid"), ["skip"], [(1, 0)]),
        (Dead("broken"), ["dead"], [(1, 0)]),
        (Done("well"), ["done"], [(1, 0)]),
    ],
    ids=["retry", "snooze", "skip", "dead", "done"],
)
def test_a_wish_is_granted(
    app: Tarry,
    ears: Ears,
    colour: str,
    how: str,
    wish: Any,
    outcomes: list[str],
    facts: list[tuple[int, int]],
) -> None:
    seen: list[tuple[int, int]] = []

    def body(ctx: Context, n: int) -> Any:
        seen.append((ctx.attempt, ctx.snoozes))
        if len(seen) > 1:
            return None
        if how == "raised":
            raise wish
        return wish

    task = declare(app, colour, body, retry=QUICKLY)
    with app.worker():
        task.schedule("now")
        events = ears.ended(len(outcomes))

    assert [event.outcome for event in events] == outcomes
    assert events[0].reason == wish.reason
    assert seen == facts
    assert state(app) is (TaskState.DEAD if outcomes == ["dead"] else None)


class Speechless(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Mine(Snooze):
    def __init__(self) -> None:
        super().__init__("1h")


def explode(error: BaseException) -> None:
    raise error


RUBBISH: dict[str, Any] = {
    "a number": (lambda: 42, None),
    "an object": (object, None),
    "a generator": (lambda: (n for n in range(3)), None),
    "a class": (lambda: Retry, None),
    "a release": (lambda: RELEASE, None),
    "retry soon": (lambda: Retry("soon"), TaskState.DEAD),
    "retry None": (lambda: Retry(None), TaskState.DEAD),  # type: ignore[arg-type]
    "retry by a shift": (lambda: Retry(Shift("+1m")), TaskState.DEAD),  # type: ignore[arg-type]
    "snooze backwards": (lambda: explode(Snooze("-1m")), TaskState.DEAD),
    "a class of its own": (lambda: explode(Mine()), TaskState.SCHEDULED),
    "dead for a list": (lambda: Dead(["why"]), TaskState.DEAD),  # type: ignore[arg-type]
    "dead for nothing": (lambda: Dead(None), TaskState.DEAD),  # type: ignore[arg-type]
    "no words": (lambda: explode(Speechless()), TaskState.DEAD),
    "surrogates": (lambda: explode(OSError("\udcff.txt")), TaskState.DEAD),
    "a long story": (lambda: explode(ValueError("x" * 1_000_000)), TaskState.DEAD),
    "nul": (lambda: explode(ValueError("a\x00b")), TaskState.DEAD),
    "a group": (lambda: explode(ExceptionGroup("g", [ValueError()])), TaskState.DEAD),
    "sys.exit": (sys.exit, TaskState.DEAD),
    "SystemExit(3)": (lambda: explode(SystemExit(3)), TaskState.DEAD),
    "GeneratorExit": (lambda: explode(GeneratorExit()), TaskState.DEAD),
    "StopIteration": (lambda: explode(StopIteration()), TaskState.DEAD),
    "CancelledError": (lambda: explode(asyncio.CancelledError()), TaskState.DEAD),
    "a base exception": (lambda: explode(BaseException("bare")), TaskState.DEAD),
    "RecursionError": (lambda: explode(RecursionError()), TaskState.DEAD),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_ends_the_attempt_and_nothing_else(
    app: Tarry, ears: Ears, colour: str, name: str
) -> None:
    make, expected = RUBBISH[name]
    task = declare(app, colour, lambda ctx, n: make() if n else None, retry=NOW_OR_NEVER)

    with app.worker(concurrency=1):
        task.schedule("now", 1)
        ears.ended(1)
        assert settled(app, 1) is expected
        task.schedule("now", 0)
        last = ears.ended(2)[-1]

    assert (last.ref.key, last.outcome) == ("0", "done")


@pytest.mark.parametrize(
    "error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), ValueError("x")]
)
def test_rubbish_after_a_wait(app: Tarry, ears: Ears, error: BaseException) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.001)
        raise error

    task = declare(app, "async", lambda ctx, n: fail() if n else None, retry=NOW_OR_NEVER)

    with app.worker(concurrency=1):
        task.schedule("now", 1)
        ears.ended(1)
        assert settled(app, 1) is TaskState.DEAD
        task.schedule("now", 0)
        assert ears.ended(2)[-1].outcome == "done"


def test_a_keyboard_interrupt_of_a_plain_handler_is_a_failure(app: Tarry, ears: Ears) -> None:
    def body(ctx: Context, n: int) -> None:
        raise KeyboardInterrupt

    task = declare(app, "plain", body, retry=NOW_OR_NEVER)
    with app.worker():
        task.schedule("now")
        [event] = ears.ended()

    assert event.outcome == "dead"
    assert isinstance(event.error, KeyboardInterrupt)


def test_a_plain_function_that_returns_a_coroutine_is_told_so(app: Tarry, ears: Ears) -> None:
    async def work() -> None: ...

    @app.task(retry=NOW_OR_NEVER)
    def wrong() -> Any:
        return work()

    with app.worker():
        wrong.schedule("now")
        [event] = ears.ended()

    assert isinstance(event.error, HandlerError)
    assert "async def" in str(event.error)


def test_hints_that_cannot_be_read_fail_the_attempt(app: Tarry, ears: Ears, colour: str) -> None:
    task = declare(app, colour, lambda ctx, n: None, retry=NOW_OR_NEVER)
    task.__wrapped__.__annotations__["n"] = "Nowhere"

    with app.worker(concurrency=1):
        app.schedule("k", "now", key="1", payload={"n": 1})
        app.schedule("k", "now", key="2", payload={"n": 1})
        events = ears.ended(2)

    assert [event.outcome for event in events] == ["dead", "dead"]
    assert isinstance(events[0].error, HandlerError)


# ---- payloads


@pytest.mark.parametrize("payload", [{"n": "one"}, [1], "text", None, {"n": None}])
def test_a_payload_that_no_longer_fits_is_a_dead_letter_at_once(
    app: Tarry, ears: Ears, colour: str, payload: object
) -> None:
    ran: list[int] = []
    task = declare(app, colour, lambda ctx, n: ran.append(n), retry=Backoff.fixed("1ms"))
    data = msgspec.json.encode(payload)

    with app.worker():
        app.store.schedule([Request(TaskRef("k", "0"), In(0), data)])
        [event] = ears.ended()
        assert settled(app) is TaskState.DEAD
        assert event.outcome == "dead"
        assert event.reason.startswith("the payload no longer fits")
        assert ran == []
        task.schedule("now", 1)
        ears.ended(2)

    assert ran == [1]


def test_unknown_fields_are_ignored_with_an_event(app: Tarry, ears: Ears, colour: str) -> None:
    ran: list[int] = []
    declare(app, colour, lambda ctx, n: ran.append(n))

    with app.worker():
        app.schedule("k", "now", key="0", payload={"n": 5, "colour": "red", "size": 3})
        [event] = ears.wait(UnknownFields)
        ears.ended()

    assert ran == [5]
    assert event.fields == ("colour", "size")
    assert event.ref == TaskRef("k", "0")


class Sealed:
    """A codec that wants its seal back."""

    def encode(self, data: bytes) -> bytes:
        return b"sealed" + data[::-1]

    def decode(self, data: bytes) -> bytes:
        if not data.startswith(b"sealed"):
            raise ValueError("the seal is broken")
        return data[6:][::-1]


def test_a_payload_that_was_tampered_with_is_a_dead_letter(
    app: Tarry, ears: Ears, colour: str
) -> None:
    app.codec = Sealed()
    ran: list[int] = []
    task = declare(app, colour, lambda ctx, n: ran.append(n))

    with app.worker():
        app.store.schedule([Request(TaskRef("k", "0"), In(0), b'{"n":1}')])
        [event] = ears.ended()
        task.schedule("now", 7)
        ears.ended(2)

    assert ran == [7]
    assert event.outcome == "dead"
    assert "the seal is broken" in event.reason


def test_broken_headers_are_a_dead_letter(app: Tarry, ears: Ears, colour: str) -> None:
    declare(app, colour, lambda ctx, n: None)

    with app.worker():
        app.store.schedule([Request(TaskRef("k", "0"), In(0), headers=b"{broken")])
        [event] = ears.ended()
        assert event.outcome == "dead"


def test_what_is_too_late_is_dropped_where_it_is_declared(
    app: Tarry, ears: Ears, colour: str
) -> None:
    ran: list[str] = []
    strict = declare(app, colour, lambda ctx, n: ran.append("strict"), "strict", drop_after="30ms")
    patient = declare(app, colour, lambda ctx, n: ran.append("patient"), "patient")
    strict.schedule("now")
    patient.schedule("now")
    threading.Event().wait(0.05)

    with app.worker():
        outcomes = sorted((event.ref.kind, event.outcome) for event in ears.ended(2))

    assert outcomes == [("patient", "done"), ("strict", "dead")]
    assert ran == ["patient"]
    assert app.get(TaskRef("strict", "0")).reason.startswith("expired")  # type: ignore[union-attr]


def test_an_alias_keeps_old_tasks_running(app: Tarry, ears: Ears) -> None:
    ran: list[str] = []

    @app.task("new", aliases=["old"])
    def handler(ctx: Context) -> None:
        ran.append(ctx.ref.kind)

    with app.worker():
        app.schedule("old", "now", payload={})
        handler.schedule("now")
        ears.ended(2)

    assert sorted(ran) == ["new", "old"]


# ---- what an attempt runs in


STAIN: contextvars.ContextVar[int] = contextvars.ContextVar("STAIN", default=0)


def test_each_attempt_has_a_context_of_its_own(app: Tarry, ears: Ears, colour: str) -> None:
    seen: list[int] = []

    async def stain(n: int) -> None:
        seen.append(STAIN.get())
        STAIN.set(n)
        await asyncio.sleep(0)
        assert STAIN.get() == n

    def body(ctx: Context, n: int) -> Any:
        if colour == "async":
            return stain(n)
        seen.append(STAIN.get())
        STAIN.set(n)
        return None

    task = declare(app, colour, body)
    with app.worker(concurrency=1):
        for n in range(1, 6):
            task.schedule("now", n)
        outcomes = ears.outcomes(5)

    assert outcomes == ["done"] * 5
    assert seen == [0] * 5


def test_structured_concurrency_works_inside_handlers(app: Tarry, ears: Ears) -> None:
    notes: list[str] = []

    async def fail() -> None:
        raise ValueError("child")

    async def body(n: int) -> None:
        try:
            async with asyncio.timeout(0.005):
                await asyncio.sleep(60)
        except TimeoutError:
            notes.append("timeout")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.sleep(60)
        except* ValueError:
            notes.append("group")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        await asyncio.wait_for(asyncio.sleep(0), 1)
        await asyncio.shield(asyncio.sleep(0))
        await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(int))
        notes.append("end")

    task = declare(app, "async", lambda ctx, n: body(n), retry=NOW_OR_NEVER)
    with app.worker(concurrency=1):
        for n in range(3):
            task.schedule("now", n)
        outcomes = ears.outcomes(3)

    assert outcomes == ["done"] * 3
    assert notes == ["timeout", "group", "end"] * 3


def test_a_cancellation_that_a_handler_swallowed_does_not_follow_the_next_one(
    app: Tarry, ears: Ears
) -> None:
    left: list[int] = []
    caught: list[str] = []

    async def fail() -> None:
        raise ValueError("child")

    async def body(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        left.append(task.cancelling())
        if n == 0:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.sleep(60)
        except* ValueError:
            caught.append("group")

    task = declare(app, "async", lambda ctx, n: body(n), timeout="50ms", retry=NOW_OR_NEVER)
    with app.worker(concurrency=1):
        task.schedule("now", 0)
        ears.ended(1)
        task.schedule("now", 1)
        assert ears.outcomes(2)[1] == "done"

    assert left == [0, 0]
    assert caught == ["group"]
