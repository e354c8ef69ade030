"""Joined writes on SQLite stay right beside those of the store itself."""

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tarry.answers import SettleResult
from tarry.attempt import DONE, Dead, Retry
from tarry.due import At, By, In
from tarry.lease import Lease
from tarry.request import (
    Cancellation,
    Move,
    OnConflict,
    Only,
    Request,
    Settlement,
    Successor,
)
from tarry.stores.joining import Steps
from tarry.stores.memory import MemoryStore
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.transactions.joining import Joined

REF = TaskRef("order.cancel", "42")
LEASE_MS = 30_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    store = SqliteStore(f"{tmp_path}/tarry.db", sync="normal", clock=clock)
    yield store
    store.close()


def joined(store: SqliteStore, verb: Callable[[Any], Steps[Any]], *, commit: bool = True) -> Any:
    with closing(sqlite3.connect(store.path)) as db:
        answers = Joined(store, db).run(verb)
        if commit:
            db.commit()
        return answers


def requests(*keys: str) -> list[Request]:
    return [Request(TaskRef("order.cancel", key), In(60_000)) for key in keys]


def test_revisions_grow_over_joined_and_own_writes(store: SqliteStore) -> None:
    def own(*keys: str) -> list[int]:
        return [answer.revision for answer in store.schedule(requests(*keys))]

    def in_tx(*keys: str, commit: bool = True) -> list[int]:
        answers = joined(store, lambda s: s.join_schedule(requests(*keys)), commit=commit)
        return [answer.revision for answer in answers]

    seen = [*own("a"), *own("b"), *in_tx("c", "d"), *own("e"), *own("f", "g")]
    in_tx("h", commit=False)
    seen += [*own("i"), *in_tx("j")]
    with closing(SqliteStore(store.path, sync="normal")) as another:
        seen += [answer.revision for answer in another.schedule(requests("k"))]
    seen += [*in_tx("l", "a"), *own("b")]

    assert seen == sorted(set(seen))
    assert store.get([TaskRef("order.cancel", "h")]) == [None]


def test_a_kind_that_was_rolled_back_leaves_no_trace(store: SqliteStore) -> None:
    new = Request(TaskRef("never.heard", "1"), In(60_000))
    other = Request(TaskRef("another", "1"), In(60_000))

    joined(store, lambda s: s.join_schedule([new]), commit=False)
    store.schedule([other])
    joined(store, lambda s: s.join_schedule([new]))

    assert set(store.counts()) == {"another", "never.heard"}
    assert store.check() == []


def test_other_writers_wait_for_the_caller(store: SqliteStore) -> None:
    store.schedule(requests("warm"))
    answers: list[Any] = []
    with closing(sqlite3.connect(store.path)) as db:
        [first] = Joined(store, db).run(lambda s: s.join_schedule(requests("42")))
        writer = threading.Thread(target=lambda: answers.extend(store.schedule(requests("43"))))
        writer.start()
        # Also the caller itself goes on meanwhile: nothing it needs is held by who waits for it.
        [second] = Joined(store, db).run(lambda s: s.join_schedule(requests("44")))
        db.commit()
        writer.join(20)

    assert first.revision < second.revision < answers[0].revision


def test_doubt_is_healed_before_anything_is_promised(store: SqliteStore) -> None:
    store.schedule(requests("warm"))
    store._connections.doubt.begin()

    joined(store, lambda s: s.join_cancel([Cancellation(REF)]), commit=False)

    assert not store._connections.doubt.stands()


def test_a_lost_lease_is_said(store: SqliteStore, clock: ManualClock) -> None:
    store.schedule([Request(REF, In(0))])
    [lease] = claimed(store)
    clock.advance(LEASE_MS + 1_000)
    claimed(store)

    [answer] = joined(store, lambda s: s.join_settle([Settlement(lease, DONE)]))

    assert answer is SettleResult.LEASE_LOST


def claimed(store: Any) -> list[Lease]:
    leases: list[Lease] = store.claim(
        ["order.cancel"], limit=2, lease_ms=LEASE_MS, holder="w"
    ).leases
    return leases


class Pair:
    """The same is said to a store by joined statements, and to the model by its verbs."""

    def __init__(self, store: SqliteStore, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.model = MemoryStore(clock=clock)
        self.clock = clock
        self.chance = random.Random(seed)
        self.leases: list[tuple[Lease, Lease]] = []

    def step(self) -> None:
        chance = self.chance
        ref = TaskRef("order.cancel", chance.choice("abc"))
        due: Any = chance.choice([In(0), In(5_000), At(self.clock.now() + 9_000)])
        match chance.choice(["schedule", "schedule", "move", "cancel", "claim", "settle", "wait"]):
            case "schedule":
                mode = chance.choice(list(OnConflict))
                rule = chance.choice(["", "", '{"every":60000}'])
                self.say(
                    "schedule", Request(ref, due, b"{}", b"", mode, 8_000, rule=rule, keep_ms=10**9)
                )
            case "move":
                to: Any = chance.choice([due, By(-3_000), By(3_000)])
                self.say("reschedule", Move(ref, to, chance.choice(list(Only))))
            case "cancel":
                self.say("cancel", Cancellation(ref))
            case "claim":
                pairs = zip(
                    sorted(claimed(self.store), key=_key),
                    sorted(claimed(self.model), key=_key),
                    strict=True,
                )
                self.leases += list(pairs)
            case "settle":
                self.settle()
            case _:
                self.clock.advance(chance.choice([1, 4_000, LEASE_MS + 1_000]))

    def settle(self) -> None:
        if not self.leases:
            return
        ours, models = self.leases.pop(self.chance.randrange(len(self.leases)))
        outcome: Any = self.chance.choice([DONE, Retry(In(2_000), "later"), Dead("broken")])
        after = self.clock.now() + 60_000
        following = Successor(after, after) if ours.task.rule else None
        [said] = self.model.settle([Settlement(models, outcome, following)])
        [answer] = joined(
            self.store, lambda s: s.join_settle([Settlement(ours, outcome, following)])
        )
        assert answer is said

    def say(self, verb: str, item: Any) -> None:
        [said] = getattr(self.model, verb)([item])
        # What is rolled back has not been said.
        joined(self.store, lambda s: getattr(s, f"join_{verb}")([item]), commit=False)
        [answer] = joined(self.store, lambda s: getattr(s, f"join_{verb}")([item]))
        assert _told(answer) == _told(said)

    def seen(self, store: Any) -> list[Any]:
        found = store.get([TaskRef("order.cancel", key) for key in "abc"])
        return [task and _without_revision(task) for task in found]


def _key(lease: Lease) -> str:
    return lease.ref.key


def _told(answer: Any) -> Any:
    return getattr(answer, "status", answer), getattr(answer, "due", 0)


def _without_revision(task: Any) -> Any:
    return {name: getattr(task, name) for name in task.__struct_fields__ if name != "revision"}


@pytest.mark.parametrize("seed", range(6))
def test_joined_verbs_do_what_the_model_does(
    store: SqliteStore, clock: ManualClock, seed: int
) -> None:
    pair = Pair(store, clock, seed)

    for _ in range(60):
        pair.step()
        assert pair.seen(store) == pair.seen(pair.model)

    assert store.check() == []
