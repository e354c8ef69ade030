"""Campaigns find what is planted, and say how to see it again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.crash.conftest import lacking

from tarry.stores.memory import MemoryStore
from tarry.stores.store import Store
from tarry.task import Task, TaskRef
from tarry.testing.clock import ManualClock
from tarry.testing.proof import campaigns, ground, syscalls
from tarry.testing.proof.campaign import FILE, Slice
from tarry.testing.proof.ground import Ground
from tarry.testing.simulation import Bench


class Blind(MemoryStore):
    """A store with a planted mistake: it shows nothing."""

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        return [None for _ in refs]


def test_a_store_that_differs_from_the_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lodge(_url: str, clock: ManualClock) -> Store:
        return Blind(clock=clock)

    monkeypatch.setattr(campaigns, "lodge", lodge)

    tally = campaigns.model(17, 10, FILE)

    [found] = tally.broken
    assert found.rule == "differs from the model"
    assert found.replay == "tarry prove --only model --first 17 --budget 1s"


def test_a_history_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_store(*_: object) -> Store:
        raise RuntimeError("no room")

    @contextmanager
    def nowhere(_url: str) -> Iterator[Ground]:
        yield Ground(Bench(store=no_store))

    monkeypatch.setattr(ground, "ground", nowhere)

    tally = campaigns.simulation(4, 2, "memory:")

    assert tally.tried == 2
    assert [found.said for found in tally.broken] == ["RuntimeError: no room"] * 2
    assert [found.replay for found in tally.broken] == [
        "tarry prove --seed 4",
        "tarry prove --seed 5",
    ]


def test_a_history_that_breaks_a_promise_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    control = ground.of_control("two-step-claim")

    @contextmanager
    def there(_url: str) -> Iterator[Ground]:
        yield control

    monkeypatch.setattr(ground, "ground", there)

    tally = campaigns.simulation(0, 5, "sqlite:///disk.db")

    assert "double start" in {found.rule for found in tally.broken}
    assert all(found.replay.endswith(" --store URL") for found in tally.broken)
    assert tally.counts["attempts"] > 0


def test_controls_are_numbered_and_come_to_an_end() -> None:
    count = len(ground.controls())

    last = campaigns.controls(count - 1, 1, "memory:")
    beyond = campaigns.controls(count, 1, "memory:")

    assert isinstance(last, Slice)
    [(name, caught)] = last.caught.items()
    assert name == ground.controls()[-1].name
    assert caught is not None
    assert caught.rule in ground.controls()[-1].rules
    assert beyond.tried == 0


def test_every_way_to_fail_is_tried_in_turn() -> None:
    if why := syscalls.unavailable():
        lacking(why)

    tally = campaigns.system_calls(3, 3, FILE)

    assert tally.tried == 3
    assert {name.split()[0] for name in tally.counts} == {"kill", "EIO", "ENOSPC", "acknowledged"}
    assert tally.broken == []
