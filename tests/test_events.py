"""Events are values, and one line of the log is made from each."""

import logging

import pytest

from tarry import Event, Tarry, TaskRef
from tarry.errors import StoreUnavailableError
from tarry.events import (
    AttemptEnded,
    LeaseLost,
    SlotLost,
    StoreBack,
    StoreLost,
    UnknownFields,
    WorkerStarted,
    WorkerStopped,
)
from tarry.observe.logs import attach, write

REF = TaskRef("order.cancel", "42")


def ended(outcome: str = "done", attempt: int = 1, **facts: object) -> AttemptEnded:
    given = {
        "ref": REF,
        "revision": 7,
        "attempt": attempt,
        "token": 7,
        "due": 1_000,
        "outcome": outcome,
        "reason": "",
        "lateness_ms": 1.25,
        "run_ms": 10.0,
        "error": None,
    }
    return AttemptEnded(**{**given, **facts})  # type: ignore[arg-type]


def line(caplog: pytest.LogCaptureFixture, event: Event) -> logging.LogRecord:
    caplog.set_level(logging.DEBUG, logger="tarry")
    caplog.clear()
    write(event)
    [record] = caplog.records
    assert record.name == "tarry"
    return record


@pytest.mark.parametrize(
    ("outcome", "attempt", "level"),
    [
        ("done", 1, logging.DEBUG),
        ("done", 2, logging.INFO),
        ("skip", 1, logging.INFO),
        ("snooze", 1, logging.INFO),
        ("release", 1, logging.INFO),
        ("retry", 1, logging.WARNING),
        ("dead", 3, logging.WARNING),
    ],
)
def test_an_attempt_is_one_line(
    caplog: pytest.LogCaptureFixture, outcome: str, attempt: int, level: int
) -> None:
    record = line(caplog, ended(outcome, attempt))

    assert record.levelno == level
    assert record.getMessage() == (
        f"{outcome} order.cancel/42: attempt {attempt}, 1.2 ms late, ran 10.0 ms"
    )


def test_a_failure_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("no")

    record = line(caplog, ended("retry", reason="ValueError: no", error=error))

    assert record.getMessage().endswith(": ValueError: no")
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_line_nobody_reads_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="tarry")

    write(ended())

    assert caplog.records == []


class Unheard(Event, frozen=True, kw_only=True):
    fact: int


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (LeaseLost(ref=REF, token=1), logging.WARNING, "lease lost: order.cancel/42"),
        (UnknownFields(ref=REF, fields=("a", "b")), logging.WARNING, "ignored: a, b"),
        (SlotLost(ref=REF, lost=3), logging.WARNING, "(3 so far)"),
        (
            StoreLost(error=StoreUnavailableError("gone"), again_ms=50),
            logging.WARNING,
            "gone; again in 50 ms",
        ),
        (StoreBack(after_ms=70), logging.WARNING, "after 70 ms"),
        (WorkerStarted(holder="h", kinds=("a", "b")), logging.INFO, "worker h serves a, b"),
        (
            WorkerStopped(holder="h", attempts=5, released=2),
            logging.INFO,
            "worker h stopped after 5 attempts, 2 given back",
        ),
        (Unheard(fact=7), logging.INFO, "fact=7"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_each_event_is_one_line(
    caplog: pytest.LogCaptureFixture, event: Event, level: int, text: str
) -> None:
    record = line(caplog, event)

    assert record.levelno == level
    assert text in record.getMessage()


def test_events_are_values() -> None:
    assert ended() == ended()
    assert ended() != ended(attempt=2)
    with pytest.raises(AttributeError):
        ended().outcome = "dead"  # type: ignore[misc]


def test_an_app_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    app = Tarry("memory:")
    attach(app)
    attach(app)

    caplog.set_level(logging.DEBUG, logger="tarry")
    app.emit(ended())

    assert len(caplog.records) == 1


def test_a_listener_hears_until_it_is_undone() -> None:
    app = Tarry("memory:")
    heard: list[Event] = []
    undo = app.listen(heard.append)
    app.emit(ended())

    undo()
    app.emit(ended())

    assert heard == [ended()]


def test_a_listener_that_fails_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Tarry("memory:")
    heard: list[Event] = []

    def bad(_: Event) -> None:
        raise ValueError("bad ear")

    app.listen(bad)
    app.listen(heard.append)
    app.emit(ended())

    assert heard == [ended()]
    assert "a listener failed on AttemptEnded" in caplog.text


def test_a_listener_may_undo_itself_while_it_hears() -> None:
    app = Tarry("memory:")
    heard: list[str] = []

    def once(_: Event) -> None:
        heard.append("once")
        undo()

    undo = app.listen(once)
    app.listen(lambda _: heard.append("always"))
    app.emit(ended())
    app.emit(ended())

    assert heard == ["once", "always", "always"]
