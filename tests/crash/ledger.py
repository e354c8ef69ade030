"""The ledger: what really happened, line by line, outside of the store; and its checker.

Every process appends whole lines with one O_APPEND write each, so that the order of lines is the
order of events whoever dies. A line is a JSON list: what, key, and the facts.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec


class Line(msgspec.Struct, frozen=True):
    """One event. Facts that do not belong to it are 0 or empty."""

    what: str
    """ask, acked, asked_cancel, cancelled, start, done, lost, killed."""
    key: str = ""
    revision: int = 0
    due: int = 0
    now: int = 0
    token: int = 0
    attempt: int = 0
    lost: int = 0
    pid: int = 0
    status: str = ""


class Ledger:
    """An append-only file that many processes write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._read = 0
        self._lines: list[Line] = []

    def write(self, what: str, key: str = "", **facts: Any) -> None:
        """Append one line, in one write."""
        line = Line(what, key, pid=facts.pop("pid", None) or os.getpid(), **facts)
        os.write(self._fd, json.dumps(msgspec.to_builtins(line)).encode() + b"\n")

    def lines(self) -> list[Line]:
        """Return all that was written so far; what was read once is not read again."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
        return self._lines

    def of(self, *whats: str) -> list[Line]:
        """Return the lines of some events."""
        return [line for line in self.lines() if line.what in whats]

    def close(self) -> None:
        os.close(self._fd)


class Broken(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    promise: str
    key: str
    lines: tuple[Line, ...]


def check(lines: Iterable[Line]) -> list[Broken]:
    """Return every broken promise of a history that has been drained to its end.

    Each key belongs to one producer, which asks for one thing after the other. What was asked for
    and not answered (its producer was killed) may have happened or not.
    """
    by_key: dict[str, list[Line]] = {}
    killed: set[int] = set()
    lost_tokens: set[int] = set()
    for line in lines:
        if line.what == "killed":
            killed.add(line.pid)
        else:
            by_key.setdefault(line.key, []).append(line)
        if line.what == "lost":
            lost_tokens.add(line.token)
    return [
        Broken(promise, key, tuple(history))
        for key, history in by_key.items()
        for promise in _judge(history, killed, lost_tokens)
    ]


def _judge(history: list[Line], killed: set[int], lost_tokens: set[int]) -> list[str]:
    return [
        *(["lost"] if _is_lost(history) else []),
        *(["early"] if _is_early(history) else []),
        *(["after a cancel"] if _is_after_cancel(history) else []),
        *(["stale"] if _is_stale(history) else []),
        *(["twice without a fault"] if _is_double(history, killed, lost_tokens) else []),
        *(["never asked for"] if _is_invented(history) else []),
    ]


def _is_lost(history: list[Line]) -> bool:
    """The last acknowledged revision was neither done, nor replaced, nor cancelled."""
    acked = [line for line in history if line.what == "acked"]
    if not acked:
        return False
    last = max(acked, key=lambda line: line.revision)
    if any(line.what == "done" and line.revision >= last.revision for line in history):
        return False
    after = history[history.index(last) :]
    # An unanswered cancel may have happened; a RUNNING one lets the attempt be its last.
    answers = [line for line in after if line.what in {"asked_cancel", "cancelled"}]
    return not answers


def _is_early(history: list[Line]) -> bool:
    dues = {line.revision: line.due for line in history if line.what == "acked"}
    starts = [line for line in history if line.what == "start"]
    return any(line.now < max(line.due, dues.get(line.revision, 0)) for line in starts)


def _is_after_cancel(history: list[Line]) -> bool:
    newest = 0
    gone = 0
    for line in history:
        if line.what == "acked":
            newest = max(newest, line.revision)
        elif line.what == "cancelled" and line.status == "cancelled":
            gone = newest
        elif line.what == "start" and line.revision <= gone:
            return True
    return False


def _is_stale(history: list[Line]) -> bool:
    """A revision started after another one had taken its waiting place.

    An older one may still run: it was claimed before, and what waits behind it was replaced.
    """
    newest = 0
    replaced: set[int] = set()
    for line in history:
        if line.what == "acked":
            if line.status in {"replaced", "moved"}:
                replaced.add(newest)
            newest = line.revision
        elif line.what == "start" and line.revision in replaced:
            return True
    return False


def _is_double(history: list[Line], killed: set[int], lost_tokens: set[int]) -> bool:
    starts: dict[int, Line] = {}
    for line in history:
        if line.what != "start":
            continue
        before = starts.get(line.revision)
        if before is not None:
            explained = before.pid in killed or before.token in lost_tokens
            if not explained or line.lost <= before.lost or line.token == before.token:
                return True
        starts[line.revision] = line
    return False


def _is_invented(history: list[Line]) -> bool:
    """Something ran that nobody asked for before."""
    first = history[0].what
    return first not in {"ask", "killed"}


def starts_of(lines: Iterable[Line]) -> Counter[str]:
    """Count how often each key was started."""
    return Counter(line.key for line in lines if line.what == "start")
