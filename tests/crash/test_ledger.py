"""The checker finds each kind of broken promise, and nothing in a history that is sound."""

from pathlib import Path

import pytest
from tests.crash.ledger import Ledger, Line, check

K = "async.work/1"
ASK = Line("ask", K)
ACKED = Line("acked", K, revision=5, due=100, status="created")
START = Line("start", K, revision=5, due=100, now=100, token=1, attempt=1, pid=7)
DONE = Line("done", K, revision=5, token=1, pid=7)
CANCEL = Line("asked_cancel", K)
CANCELLED = Line("cancelled", K, status="cancelled")
KILLED = Line("killed", pid=7)
AGAIN = Line("start", K, revision=5, due=100, now=900, token=2, attempt=2, lost=1, pid=8)
REPLACED = Line("acked", K, revision=6, due=100, status="replaced")
NEWER = Line("start", K, revision=6, due=100, now=100, token=3, attempt=1, pid=7)
NEWER_DONE = Line("done", K, revision=6, token=3, pid=7)
BEHIND = Line("acked", K, revision=6, due=100, status="created")
NEWEST = Line("acked", K, revision=7, due=100, status="replaced")
NEWEST_DONE = Line("done", K, revision=7, token=4, pid=7)


@pytest.mark.parametrize(
    "history",
    [
        [ASK],
        [ASK, ACKED, START, DONE],
        [ASK, START, ACKED, DONE],
        [ASK, START, DONE, KILLED],
        [ASK, ACKED, CANCEL, CANCELLED],
        [ASK, ACKED, CANCEL, KILLED],
        [ASK, ACKED, START, CANCEL, Line("cancelled", K, status="running")],
        [ASK, ACKED, START, KILLED, AGAIN, DONE],
        [ASK, ACKED, START, DONE, KILLED, AGAIN, DONE],
        [ASK, ACKED, START, Line("lost", K, token=1, pid=7), AGAIN, DONE],
        [ASK, ACKED, ASK, REPLACED, NEWER, NEWER_DONE],
        [ASK, ACKED, START, DONE, ASK, BEHIND, NEWER, NEWER_DONE],
        [ASK, ACKED, ASK, BEHIND, ASK, NEWEST, START, DONE, NEWEST_DONE],
        [ASK, ACKED, ASK, NEWER, NEWER_DONE, KILLED],
    ],
)
def test_a_sound_history_has_no_fault(history: list[Line]) -> None:
    assert check(history) == []


@pytest.mark.parametrize(
    ("promise", "history"),
    [
        ("lost", [ASK, ACKED]),
        ("lost", [ASK, ACKED, START, KILLED]),
        ("lost", [ASK, ACKED, START, DONE, ASK, REPLACED]),
        ("lost", [ASK, ACKED, CANCEL, CANCELLED, ASK, REPLACED]),
        ("early", [ASK, ACKED, Line("start", K, revision=5, due=100, now=99), DONE]),
        ("early", [ASK, ACKED, Line("start", K, revision=5, due=90, now=95), DONE]),
        ("after a cancel", [ASK, ACKED, CANCEL, CANCELLED, START, DONE]),
        ("after a cancel", [ASK, ACKED, START, KILLED, CANCEL, CANCELLED, AGAIN, DONE]),
        ("stale", [ASK, ACKED, ASK, REPLACED, START, NEWER, NEWER_DONE]),
        ("stale", [ASK, ACKED, START, ASK, BEHIND, ASK, NEWEST, NEWER, NEWEST_DONE]),
        ("twice without a fault", [ASK, ACKED, START, AGAIN, DONE]),
        ("twice without a fault", [ASK, ACKED, START, KILLED, START, DONE]),
        ("never asked for", [START, DONE]),
    ],
)
def test_a_broken_promise_is_found(promise: str, history: list[Line]) -> None:
    assert promise in {broken.promise for broken in check(history)}


def test_what_was_written_is_read_line_by_line(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")

    ledger.write("ask", "a")
    assert [line.what for line in ledger.lines()] == ["ask"]
    other.write("acked", "a", revision=3)
    ledger.write("killed", pid=12)

    assert [(line.what, line.revision) for line in ledger.lines()] == [
        ("ask", 0),
        ("acked", 3),
        ("killed", 0),
    ]
    assert ledger.of("killed")[0].pid == 12
    ledger.close()
    other.close()
