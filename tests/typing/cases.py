"""What the type checkers must find (lines that end in ``# E: code``), and what they must not.

The code is mypy's; pyright has to report the same line, whatever it calls the mistake.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from tarry import Backoff, CancelResult, Context, Dead, Earlier, Later, Moved, Retry, Scheduled
from tarry import Shift, Skip, Snooze, Tarry, Task, TaskRef
from tarry.answers import MoveStatus, ScheduleStatus
from tarry.request import Request
from tarry.worker.worker import Worker

app = Tarry("memory:")


# ---- handlers of every shape


@app.task("order.cancel", key="order:{order_id}", retry=Backoff.fixed("1m"), timeout="10s")
async def cancel_order(ctx: Context, order_id: int, reason: str = "unpaid") -> None: ...


@app.task()
async def remind(user: str, *, times: int) -> str:
    return user * times


@app.task("order.ship")
def ship(ctx: Context, order_id: int) -> int:
    return order_id


@app.task()
def tidy(folder: str, depth: int = 1) -> Skip | None: ...


@app.task(every="1h")
def hourly() -> None: ...


@app.task(cron="0 3 * * *", tz="Europe/Berlin")
async def nightly(ctx: Context) -> None: ...


def order_key(order_id: int) -> str:
    return f"order:{order_id}"


def pair_key(shop: str, order_id: int = 0) -> str:
    return f"{shop}/{order_id}"


@app.task("order.close", key=order_key)
async def close_order(ctx: Context, order_id: int, reason: str = "") -> None: ...


@app.task("order.pair", key=pair_key)
def pair(shop: str, order_id: int = 0, note: str = "") -> None: ...


def bad_key(order_id: int) -> int:
    return order_id


app.task("bad", key=bad_key)  # E: arg-type
app.task("bad", key=7)  # E: call-overload
app.task("bad", retry="1m")  # E: call-overload
app.task("bad", timeout=[1])  # E: call-overload
app.task("bad", unknown=1)  # E: call-overload
app.task(7)  # E: call-overload
app.task("bad", every="1h", catch_up="some")  # E: call-overload
app.task("bad", concurrency="many")  # E: call-overload
app.task("good", concurrency=2, drop_after=3600, keep=timedelta(days=7), aliases=["old"])


# ---- schedule: an async handler with a context

assert_type(cancel_order.schedule("30m", order_id=42), Scheduled)
cancel_order.schedule("30m", 42)
cancel_order.schedule("30m", 42, "late")
cancel_order.schedule("30m", 42, reason="late")
cancel_order.schedule(1800, 42)
cancel_order.schedule(0.5, 42)
cancel_order.schedule(timedelta(minutes=30), 42)
cancel_order.schedule(datetime(2030, 1, 1, tzinfo=UTC), 42)
cancel_order.schedule("30m", order_id="42")  # E: arg-type
cancel_order.schedule("30m", "42")  # E: arg-type
cancel_order.schedule("30m")  # E: call-arg
cancel_order.schedule("30m", reason="late")  # E: call-arg
cancel_order.schedule("30m", order_id=42, order=1)  # E: call-arg
cancel_order.schedule("30m", 42, "late", 3)  # E: call-arg
cancel_order.schedule("30m", 42, order_id=42)  # E: misc
cancel_order.schedule("30m", order_id=None)  # E: arg-type
cancel_order.schedule("30m", order_id=42, reason=7)  # E: arg-type
cancel_order.schedule(order_id=42)  # E: call-arg
cancel_order.schedule(None, order_id=42)  # E: arg-type
cancel_order.schedule(["30m"], order_id=42)  # E: arg-type
cancel_order.schedule(b"30m", order_id=42)  # E: arg-type
cancel_order.schedule(Shift("+1m"), order_id=42)  # E: arg-type
cancel_order.schedule(when="30m", order_id=42)  # E: call-arg

# ---- schedule: a plain handler, with and without a context

ship.schedule("now", order_id=1)
ship.schedule("now", order_id=1.5)  # E: arg-type
ship.schedule("now")  # E: call-arg
ship.schedule("now", 1, 2)  # E: call-arg
tidy.schedule("1d", "/tmp")
tidy.schedule("1d", folder="/tmp", depth=2)
tidy.schedule("1d", folder=1)  # E: arg-type
tidy.schedule("1d")  # E: call-arg
tidy.schedule("1d", "/tmp", breadth=2)  # E: call-arg
tidy.schedule({}, "/tmp")  # E: arg-type
remind.schedule("1h", "eve", times=2)
remind.schedule("1h", "eve")  # E: call-arg
remind.schedule("1h", "eve", 2)  # E: call-arg
remind.schedule("1h", "eve", times="2")  # E: arg-type
hourly.schedule("now")
hourly.schedule("now", 1)  # E: call-arg
nightly.schedule("now")
nightly.schedule("now", order_id=1)  # E: call-arg

# ---- build

assert_type(cancel_order.build("48h", order_id=1), Request)
assert_type(
    app.schedule_many(cancel_order.build("48h", order_id=i) for i in range(3)), list[Scheduled]
)
cancel_order.build("48h", order_id="1")  # E: arg-type
cancel_order.build("48h")  # E: call-arg
cancel_order.build("48h", order_id=1, extra=2)  # E: call-arg
cancel_order.build(object(), order_id=1)  # E: arg-type
tidy.build("1h", folder="/tmp")
tidy.build("1h", 7)  # E: arg-type
tidy.build("1h")  # E: call-arg
tidy.build("1h", "/tmp", where=2)  # E: call-arg
app.schedule_many([cancel_order])  # E: list-item
app.schedule_many(cancel_order.build("1h", 1))  # E: arg-type


# ---- aschedule


async def schedules() -> None:
    assert_type(await cancel_order.aschedule("30m", order_id=42), Scheduled)
    await cancel_order.aschedule("30m", 42, reason="late")
    await cancel_order.aschedule("30m", order_id="42")  # E: arg-type
    await cancel_order.aschedule("30m")  # E: call-arg
    await cancel_order.aschedule("30m", 42, why="late")  # E: call-arg
    await cancel_order.aschedule(None, 42)  # E: arg-type
    await tidy.aschedule("1d", "/tmp")
    await tidy.aschedule("1d", 1)  # E: arg-type
    await tidy.aschedule("1d")  # E: call-arg
    await tidy.aschedule("1d", "/tmp", wide=1)  # E: call-arg
    await remind.aschedule("1d", "eve", times=1)
    await remind.aschedule("1d", "eve")  # E: call-arg
    (await cancel_order.aschedule("30m", 42)).moved  # E: attr-defined
    cancel_order.aschedule("30m", 42).status  # E: attr-defined
    assert_type(await app.aschedule_many([cancel_order.build("1h", 1)]), list[Scheduled])
    await cancel_order.schedule("30m", 42)  # E: misc


# ---- verbs typed by a key function

assert_type(close_order.cancel(order_id=42), CancelResult)
close_order.cancel(42)
close_order.cancel("42")  # E: arg-type
close_order.cancel()  # E: call-arg
close_order.cancel(order_id=42, reason="")  # E: call-arg
close_order.cancel(order=42)  # E: call-arg
assert_type(close_order.reschedule("2h", order_id=42), Moved)
close_order.reschedule(Shift("+15m"), 42)
close_order.reschedule(Earlier("2h"), order_id=42)
close_order.reschedule(Later(datetime(2030, 1, 1, tzinfo=UTC)), order_id=42)
close_order.reschedule("2h", order_id="42")  # E: arg-type
close_order.reschedule("2h")  # E: call-arg
close_order.reschedule("2h", 42, 43)  # E: call-arg
close_order.reschedule("2h", order_id=42, reason="")  # E: call-arg
close_order.reschedule(None, order_id=42)  # E: arg-type
close_order.reschedule(order_id=42)  # E: call-arg
assert_type(close_order.get(order_id=42), Task | None)
close_order.get("42")  # E: arg-type
close_order.get()  # E: call-arg
close_order.get(order_id=42, x=1)  # E: call-arg
assert_type(close_order.run_now(42), Moved)
close_order.run_now(order_id="42")  # E: arg-type
close_order.run_now()  # E: call-arg
close_order.run_now(42, x=1)  # E: call-arg
assert_type(close_order.ref(42), TaskRef)
close_order.ref("42")  # E: arg-type
close_order.schedule("1h", order_id=42, reason="late")
close_order.schedule("1h", order_id="42")  # E: arg-type
pair.cancel("berlin")
pair.cancel("berlin", 7)
pair.cancel("berlin", order_id="7")  # E: arg-type
pair.cancel(order_id=7)  # E: call-arg
pair.get(shop="berlin", order_id=7)
pair.get("berlin", note="")  # E: call-arg
pair.schedule("1h", "berlin", note="x")
pair.schedule("1h", "berlin", nota="x")  # E: call-arg


async def keyed() -> None:
    assert_type(await close_order.acancel(42), CancelResult)
    assert_type(await close_order.areschedule("2h", 42), Moved)
    assert_type(await close_order.aget(42), Task | None)
    assert_type(await close_order.arun_now(42), Moved)
    await close_order.acancel("42")  # E: arg-type
    await close_order.acancel()  # E: call-arg
    await close_order.acancel(42, reason="")  # E: call-arg
    await close_order.areschedule("2h", "42")  # E: arg-type
    await close_order.areschedule("2h")  # E: call-arg
    await close_order.areschedule({}, 42)  # E: arg-type
    await close_order.aget(None)  # E: arg-type
    await close_order.aget()  # E: call-arg
    await close_order.arun_now(1.5)  # E: arg-type
    await close_order.arun_now(order=42)  # E: call-arg
    await pair.aget("berlin")
    await pair.aget(7)  # E: arg-type


# ---- verbs of a template are checked at run time only; their times are not

cancel_order.cancel(order_id=42)
cancel_order.get(42)
cancel_order.reschedule("2h", order_id=42)
cancel_order.reschedule(None, order_id=42)  # E: arg-type
cancel_order.reschedule(order_id=42)  # E: call-arg

# ---- what the answers are

answer = cancel_order.schedule("30m", 42)
assert_type(answer.status, ScheduleStatus)
assert_type(answer.due, int)
assert_type(answer.revision, int)
assert_type(answer.ref, TaskRef)
answer.state  # E: attr-defined
answer.due = 7  # E: misc
late: str = answer.due  # E: assignment
moved = close_order.reschedule("2h", 42)
assert_type(moved.status, MoveStatus)
assert_type(bool(moved), bool)
moved.moved  # E: attr-defined
known: bool = moved  # E: assignment
assert_type(bool(close_order.cancel(42)), bool)
close_order.cancel(42).status  # E: attr-defined
found = close_order.get(42)
found.due  # E: union-attr
if found is not None:
    assert_type(found.due, int)

# ---- a plain call is the function itself

context = Context(ref=TaskRef("order.ship", "1"))
assert_type(ship(context, 1), int)
assert_type(ship(context, order_id=1), int)
ship(1)  # E: call-arg
ship(context)  # E: call-arg
ship(context, "1")  # E: arg-type
ship("context", 1)  # E: arg-type
ship(context, 1, 2)  # E: call-arg
ship(context, order_id=1, x=2)  # E: call-arg
assert_type(tidy("/tmp"), Skip | None)
tidy(context, "/tmp")  # E: arg-type
tidy()  # E: call-arg
hourly(context)  # E: call-arg
Context(ref="order/1")  # E: arg-type
Context()  # E: call-arg


async def calls() -> None:
    assert_type(await cancel_order(context, 42), None)
    assert_type(await remind("eve", times=2), str)
    wrong: int = await remind("eve", times=2)  # E: assignment
    await remind("eve")  # E: call-arg
    await remind("eve", times="2")  # E: arg-type
    await cancel_order(42)  # E: call-arg
    await cancel_order(context, "42")  # E: arg-type
    await ship(context, 1)  # E: misc
    number: int = ship(context, 1)
    text: str = remind("eve", times=1)  # E: assignment


running: Coroutine[Any, Any, str] = remind("eve", times=2)
asyncio.run(running)

# ---- options

assert_type(cancel_order.using(key="k").schedule("30m", 42), Scheduled)
optional = cancel_order.using(
    on_conflict="latest", max_wait="1h", if_revision=7, headers={"a": "b"}
)
optional.schedule("30m", order_id=42)
optional.schedule("30m", order_id="42")  # E: arg-type
optional.schedule("30m")  # E: call-arg
optional.build("30m", 42, nothing=1)  # E: call-arg
optional(42)  # E: call-arg
cancel_order.using(key=42)  # E: arg-type call-overload
cancel_order.using(on_conflict="kep")  # E: arg-type call-overload
cancel_order.using(on_conflict=True)  # E: arg-type call-overload
cancel_order.using(max_wait=None).schedule("1m", 1)
cancel_order.using(max_wait=[])  # E: arg-type call-overload
cancel_order.using(if_revision="7")  # E: arg-type call-overload
cancel_order.using(headers={"a": 1})  # E: dict-item call-overload
cancel_order.using(every=[1])  # E: arg-type call-overload
cancel_order.using(catch_up="never")  # E: arg-type call-overload
cancel_order.using(colour="red")  # E: call-arg call-overload
cancel_order.using("k")  # E: call-overload
close_order.using(if_revision=7).cancel(42)
close_order.using(if_revision=7).cancel("42")  # E: arg-type
close_order.using(if_revision=7).cancel()  # E: call-arg
close_order.using(key="k").cancel()
close_order.using(key="k").reschedule("1h")
close_order.using(key="k").cancel(42)  # E: call-arg
close_order.using(key="k").using(if_revision=7).cancel()

# ---- by name and by ref

ref = TaskRef("order.cancel", "order:42")
assert_type(
    app.schedule("order.cancel", "30m", key="order:42", payload={"order_id": 42}), Scheduled
)
app.schedule("order.cancel")  # E: call-arg
app.schedule(7, "30m")  # E: arg-type
app.schedule("order.cancel", None)  # E: arg-type
app.schedule("order.cancel", "30m", key=7)  # E: arg-type
app.schedule("order.cancel", "30m", colour="red")  # E: call-arg
app.schedule("order.cancel", "30m", on_conflict="kep")  # E: arg-type
app.build("order.cancel", "30m", on_conflict="keep", max_wait="1h", if_revision=3, headers={})
app.build("order.cancel", "30m", on_conflict="kep")  # E: arg-type
app.build("order.cancel", "30m", headers=[])  # E: arg-type
assert_type(app.get(ref), Task | None)
assert_type(app.cancel(ref, if_revision=1), CancelResult)
assert_type(app.reschedule(ref, Shift("-5m")), Moved)
assert_type(app.run_now(ref), Moved)
app.get("order:42")  # E: arg-type
app.cancel("order.cancel", "order:42")  # E: call-arg arg-type
app.reschedule(ref)  # E: call-arg
app.reschedule(ref, None)  # E: arg-type


async def by_ref() -> None:
    assert_type(await app.aget(ref), Task | None)
    assert_type(await app.acancel(ref), CancelResult)
    assert_type(await app.areschedule(ref, "1h"), Moved)
    assert_type(await app.arun_now(ref), Moved)
    assert_type(await app.aschedule("order.cancel", "1h", payload={}), Scheduled)
    await app.aschedule("order.cancel", "1h", clef="k")  # E: call-arg
    await app.aget(7)  # E: arg-type


# ---- outcomes and workers


@app.task()
async def wishes(n: int) -> Retry | Snooze | Dead | None:
    return Snooze(timedelta(hours=1)) if n else Retry("5m", "again")


Retry()  # E: call-arg
Retry(None)  # E: arg-type
Snooze(b"5m")  # E: arg-type
Dead(reason=7)  # E: arg-type
assert_type(app.worker(concurrency=5), AbstractContextManager[Worker])
assert_type(app.aworker(), AbstractAsyncContextManager[Worker])
span: Callable[[object], AbstractAsyncContextManager[None]] = app.lifespan(worker=True)
