"""Metrics are made from events; the health port tells them and how the worker is."""

import asyncio
import threading

import pytest

from tarry import TaskRef
from tarry.errors import StoreUnavailableError
from tarry.events import AttemptEnded, LeaseLost, SlotLost, StoreBack, StoreLost, WorkerStarted
from tarry.observe import health
from tarry.observe.health import Health
from tarry.observe.metrics import Metrics


def attempt(kind: str = "a", outcome: str = "done", late: float = 1.5) -> AttemptEnded:
    return AttemptEnded(
        ref=TaskRef(kind, "k"),
        revision=1,
        attempt=1,
        token=7,
        due=0,
        outcome=outcome,
        reason="",
        lateness_ms=late,
        run_ms=1.0,
    )


def test_attempts_are_counted_by_kind_and_outcome() -> None:
    metrics = Metrics()

    for outcome in ("done", "done", "retry"):
        metrics.on(attempt(outcome=outcome))
    metrics.on(attempt("b"))

    lines = metrics.text().splitlines()
    assert 'tarry_attempts_total{kind="a",outcome="done"} 2' in lines
    assert 'tarry_attempts_total{kind="a",outcome="retry"} 1' in lines
    assert 'tarry_attempts_total{kind="b",outcome="done"} 1' in lines


def test_lateness_is_a_cumulative_histogram_in_seconds() -> None:
    metrics = Metrics()

    for late in (1.0, 1.5, 700.0, 400_000.0):
        metrics.on(attempt(late=late))
    metrics.on(attempt(outcome="release", late=5.0))

    lines = metrics.text().splitlines()
    assert 'tarry_lateness_seconds_bucket{kind="a",le="0.001"} 1' in lines
    assert 'tarry_lateness_seconds_bucket{kind="a",le="0.002"} 2' in lines
    assert 'tarry_lateness_seconds_bucket{kind="a",le="1"} 3' in lines
    assert 'tarry_lateness_seconds_bucket{kind="a",le="+Inf"} 4' in lines
    assert 'tarry_lateness_seconds_sum{kind="a"} 400.702500' in lines
    assert 'tarry_lateness_seconds_count{kind="a"} 4' in lines


def test_lost_leases_slots_and_stores_are_told() -> None:
    metrics = Metrics()

    metrics.on(LeaseLost(ref=TaskRef("a", "k"), token=1))
    metrics.on(SlotLost(ref=TaskRef("a", "k"), lost=3))
    metrics.on(StoreLost(error=StoreUnavailableError("x"), again_ms=5))

    assert 'tarry_lease_lost_total{kind="a"} 1\n' in metrics.text()
    assert "tarry_slots_lost 3\n" in metrics.text()
    assert "tarry_store_up 0\n" in metrics.text()
    metrics.on(StoreBack(after_ms=5))
    assert "tarry_store_up 1\n" in metrics.text()


def test_every_family_has_help_and_type() -> None:
    lines = Metrics().text().splitlines()

    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert helped == typed
    assert len(set(helped)) == 5


def test_a_worker_is_ready_once_it_started_and_while_it_can_work() -> None:
    ready = [True]
    with Health(0, ready=lambda: ready[0]) as port:
        assert port.answer("/readyz")[0] == 503
        assert port.answer("/livez")[0] == 200

        async def start() -> None:
            port.on(WorkerStarted(holder="h", kinds=("a",)))

        with asyncio.Runner() as loop:
            loop.run(start())
            assert port.answer("/readyz?x=1")[0] == 200
            ready[0] = False
            assert port.answer("/readyz")[0] == 503


def test_a_loop_that_does_not_turn_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_TURN_SECONDS", 0.05)
    answers: list[int] = []

    async def stuck(port: Health) -> None:
        port.on(WorkerStarted(holder="h", kinds=("a",)))
        probe = threading.Thread(target=lambda: answers.append(port.answer("/livez")[0]))
        probe.start()
        probe.join()

    with Health(0, ready=lambda: True) as port:
        asyncio.run(stuck(port))
        assert answers == [503]
        assert port.answer("/livez")[0] == 503
