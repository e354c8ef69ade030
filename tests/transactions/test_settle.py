"""ctx.settle(tx=…): the handler's writes and the end of its task are one commit."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from tests.transactions import ways

from tarry import Backoff, Context, Event, Retry, Snooze, Tarry, TaskRef
from tarry.answers import SettleResult
from tarry.errors import LeaseLostError, UnsupportedError
from tarry.events import AttemptEnded, LeaseLost
from tarry.request import Cancellation

Orders = Callable[[], list[Any]]
REF = TaskRef("order.close", "42")
SOON = Backoff.fixed("1ms", times=3)


class Heard:
    """The events of an app, and a way to wait for the last of them."""

    def __init__(self, app: Tarry, attempts: int) -> None:
        self.events: list[Event] = []
        self.enough = threading.Event()
        self._attempts = attempts
        app.listen(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        if len(self.outcomes) >= self._attempts:
            self.enough.set()

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.events if isinstance(event, AttemptEnded)]

    @property
    def lost(self) -> int:
        return sum(isinstance(event, LeaseLost) for event in self.events)


def run(app: Tarry, handler: Callable[..., Any], attempts: int = 1) -> Heard:
    """Run one task until it was attempted so often and all is settled."""
    app.task("order.close", key="{order_id}", retry=SOON)(handler)
    heard = Heard(app, attempts)
    with app.worker():
        app.schedule("order.close", "now", key="42", payload={"order_id": 42})
        assert heard.enough.wait(20)
    return heard


def test_one_commit_ends_the_task(app: Tarry, path: Path, orders: Orders) -> None:
    def close(ctx: Context, order_id: int) -> None:
        with ways.bare(path) as (tx, execute):
            execute(f"INSERT INTO orders VALUES ({order_id})")
            assert ctx.settle(tx=tx) is SettleResult.SETTLED

    heard = run(app, close)

    assert (heard.outcomes, heard.lost) == (["done"], 0)
    assert orders() == [42]
    assert app.get(REF) is None


def test_what_fails_behind_the_commit_changes_nothing(
    app: Tarry, path: Path, orders: Orders
) -> None:
    def close(ctx: Context, order_id: int) -> None:
        with ways.bare(path) as (tx, execute):
            execute(f"INSERT INTO orders VALUES ({order_id})")
            ctx.settle(tx=tx)
        raise RuntimeError

    heard = run(app, close)

    assert heard.lost == 0
    assert orders() == [42]
    assert app.get(REF) is None


def test_a_rollback_leaves_the_task_to_its_policy(app: Tarry, path: Path, orders: Orders) -> None:
    def close(ctx: Context, order_id: int) -> None:
        with ways.bare(path) as (tx, execute):
            execute(f"INSERT INTO orders VALUES ({ctx.attempt})")
            ctx.settle(tx=tx)
            if ctx.attempt == 1:
                raise RuntimeError

    heard = run(app, close, attempts=2)

    assert (heard.outcomes, heard.lost) == (["retry", "done"], 0)
    assert orders() == [2]
    assert app.get(REF) is None


def test_a_quiet_rollback_is_settled_by_what_was_said(app: Tarry, path: Path) -> None:
    def close(ctx: Context, order_id: int) -> None:
        with closing(sqlite3.connect(path)) as db:
            ctx.settle(tx=db)
            db.rollback()

    assert run(app, close).outcomes == ["done"]
    assert app.get(REF) is None


def test_other_outcomes_commit_too(app: Tarry, path: Path) -> None:
    outcomes: list[Any] = [Snooze("1ms"), Retry("1ms")]

    def close(ctx: Context, order_id: int) -> None:
        with ways.bare(path) as (tx, _):
            ctx.settle(*([outcomes.pop(0)] if outcomes else []), tx=tx)

    heard = run(app, close, attempts=3)

    assert (heard.outcomes, heard.lost) == (["snooze", "retry", "done"], 0)
    assert app.get(REF) is None


def test_a_series_goes_on(app: Tarry, path: Path) -> None:
    heard = Heard(app, 1)

    @app.task("report", every="1h")
    def report(ctx: Context) -> None:
        with ways.bare(path) as (tx, _):
            ctx.settle(tx=tx)

    with app.worker():
        first = report.get()
        report.run_now()
        assert heard.enough.wait(20)

    following = report.get()
    assert first is not None
    assert following is not None
    assert following.revision > first.revision
    assert following.rule == first.rule


def test_a_lost_lease_rolls_the_writes_back(app: Tarry, path: Path, orders: Orders) -> None:
    errors: list[Exception] = []

    def close(ctx: Context, order_id: int) -> None:
        if ctx.attempt > 1:
            return
        # Somebody else has ended the attempt meanwhile.
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE task SET token = token + 1")
        try:
            with ways.bare(path) as (tx, execute):
                execute(f"INSERT INTO orders VALUES ({order_id})")
                ctx.settle(tx=tx)
        except LeaseLostError as error:
            errors.append(error)
            raise

    heard = run(app, close)

    assert "order.close/42" in str(errors[0])
    assert orders() == []
    assert heard.lost == 1


def test_a_statement_that_fails_settles_nothing(app: Tarry, path: Path) -> None:
    held: list[object] = []

    def close(ctx: Context, order_id: int) -> None:
        with closing(sqlite3.connect(path, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
            with closing(sqlite3.connect(path, timeout=0)) as db:
                try:
                    ctx.settle(tx=db)
                except sqlite3.OperationalError:
                    held.append(ctx.settles.joined)  # type: ignore[union-attr]

    heard = run(app, close)

    assert (held, heard.outcomes, heard.lost) == ([None], ["done"], 0)


def test_a_newer_revision_runs_afterwards(app: Tarry, path: Path) -> None:
    answers: list[SettleResult] = []

    def close(ctx: Context, order_id: int) -> None:
        if not answers:
            app.schedule("order.close", "now", key="42", payload={"order_id": 42})
        with ways.bare(path) as (tx, _):
            answers.append(ctx.settle(tx=tx))

    heard = run(app, close, attempts=2)

    assert answers == [SettleResult.SUPERSEDED, SettleResult.SETTLED]
    assert heard.lost == 0


def test_coroutines_settle_too(app: Tarry, path: Path) -> None:
    async def close(ctx: Context, order_id: int) -> None:
        async with ways.awaited_session(path) as session:
            await session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order_id})
            await ctx.asettle(tx=session)

    heard = run(app, close)

    assert (heard.outcomes, heard.lost) == (["done"], 0)
    assert app.get(REF) is None


def test_a_cancelled_attempt_ends_with_its_commit(app: Tarry, path: Path) -> None:
    def close(ctx: Context, order_id: int) -> None:
        app.store.cancel([Cancellation(REF)])
        with Session(create_engine(f"sqlite:///{path}")) as session, session.begin():
            ctx.settle(Retry("1ms"), tx=session)

    assert run(app, close).lost == 0
    assert app.get(REF) is None


def test_the_lease_of_a_committed_attempt_is_not_missed(app: Tarry, path: Path) -> None:
    """A handler that goes on behind its commit is not told that its lease is lost."""
    said: list[bool] = []

    async def close(ctx: Context, order_id: int) -> None:
        async with ways.awaited_bare(path) as tx:
            await ctx.asettle(tx=tx)
        await asyncio.sleep(0.3)
        said.append(ctx.cancelled)

    app.task("order.close", key="{order_id}")(close)
    heard = Heard(app, 1)
    with app.worker(lease="150ms"):
        app.schedule("order.close", "now", key="42", payload={"order_id": 42})
        assert heard.enough.wait(20)

    assert (said, heard.lost) == ([False], 0)


def test_a_plain_call_settles_nothing() -> None:
    ctx = Context(ref=REF)

    assert ctx.settle(tx=object()) is SettleResult.SETTLED
    assert asyncio.run(ctx.asettle(tx=object())) is SettleResult.SETTLED


def test_a_store_that_cannot_join_fails_the_attempt() -> None:
    errors: list[Exception] = []

    def close(ctx: Context, order_id: int) -> None:
        try:
            ctx.settle(tx=object())
        except UnsupportedError as error:
            errors.append(error)

    with Tarry("memory:") as app:
        run(app, close)

    assert "memory" in str(errors[0])
