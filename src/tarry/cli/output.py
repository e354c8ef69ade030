"""What commands print: tables, times, JSON and progress."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from tarry.clock import SYSTEM
from tarry.due import format_duration, format_instant, zone_of
from tarry.errors import PayloadError
from tarry.payload import decode_headers
from tarry.task import Task

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS = (
    (_DAY, _HOUR),
    (_HOUR, _MINUTE),
    (_MINUTE, _SECOND),
    (_SECOND, 100),
)
_JUST_NOW = 100
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def put(value: object) -> None:
    """Print one line of JSON."""
    click.echo(msgspec.json.encode(value).decode())


def clean(text: str) -> str:
    """Return *text* in one line that cannot steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Table:
    """Prints rows in aligned columns, part by part; a later part may widen the columns."""

    def __init__(self, *heads: str, right: Iterable[str] = ()) -> None:
        self._heads = heads
        self._right = [head in set(right) for head in heads]
        self._widths = [len(head) for head in heads]
        self._headed = False

    def rows(self, rows: Sequence[Sequence[object]]) -> None:
        """Print *rows*, and the heads before the first of them."""
        texts = [[clean(str(cell)) for cell in row] for row in rows]
        for text in texts:
            self._widths = [max(w, len(cell)) for w, cell in zip(self._widths, text, strict=True)]
        if not self._headed:
            self._headed = True
            texts.insert(0, list(self._heads))
        for text in texts:
            click.echo(self._line(text))

    def _line(self, cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        ]
        return "  ".join(parts).rstrip()


def pairs(facts: Mapping[str, object]) -> None:
    """Print names and values below each other."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name.ljust(width)}  {clean(str(value))}")


def absolute(instant: int, tz: str | None = None) -> str:
    """Return the instant in UTC, or in the time zone *tz*."""
    if tz is None:
        return format_instant(instant)
    moment = (_EPOCH + timedelta(milliseconds=instant)).astimezone(zone_of(tz))
    return moment.isoformat(timespec="milliseconds")


def relative(instant: int, now: int | None = None) -> str:
    """Return how far away the instant is: "in 30m", "5s ago", "now"."""
    away = instant - (SYSTEM.now() if now is None else now)
    if -_JUST_NOW < away <= 0:
        return "now"
    text = format_duration(_rounded(abs(away)))
    return f"in {text}" if away > 0 else f"{text} ago"


def _rounded(ms: int) -> int:
    """Return *ms* with two units or so: nobody reads the seconds of a week."""
    for size, step in _STEPS:
        if ms >= size:
            return (ms + step // 2) // step * step
    return ms


def both(instant: int, tz: str | None = None) -> str:
    """Return the instant and how far away it is."""
    return f"{absolute(instant, tz)} ({relative(instant)})"


def payload_of(task: Task) -> object:
    """Return the payload as JSON has it, or a word about bytes that cannot be read so."""
    try:
        msgspec.json.decode(task.payload)
        task.payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"<{len(task.payload)} bytes that are no JSON>"
    except RecursionError:
        return f"<{len(task.payload)} bytes that are nested too deeply>"
    # On one line, whatever hand wrote it.
    return msgspec.Raw(msgspec.json.format(task.payload, indent=-1))


def rule_of(task: Task) -> object:
    """Return the rule as JSON has it, or the text of one that cannot be read."""
    if not task.rule:
        return None
    try:
        msgspec.json.decode(task.rule)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return task.rule
    return msgspec.Raw(task.rule.encode())


def headers_of(task: Task) -> dict[str, str] | str:
    """Return the headers, or the text of those that cannot be read."""
    try:
        return decode_headers(task.headers)
    except PayloadError:
        return task.headers.decode(errors="backslashreplace")


def described(task: Task, tz: str | None = None) -> dict[str, Any]:
    """Return *task* as `--json` shows it."""

    def instant(value: int) -> str | None:
        return absolute(value, tz) if value else None

    return {
        "kind": task.ref.kind,
        "key": task.ref.key,
        "state": task.state.value,
        "due": absolute(task.due, tz),
        "revision": task.revision,
        "attempt": task.attempt,
        "snoozes": task.snoozes,
        "lost": task.lost,
        "created": absolute(task.created, tz),
        "payload": payload_of(task),
        "headers": headers_of(task),
        "rule": rule_of(task),
        "nominal": instant(task.nominal),
        "declared": task.declared,
        "cancelled": task.cancelled,
        "reason": task.reason or None,
        "ended": instant(task.ended),
    }


@contextmanager
def progress(length: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr if a person watches; the block calls what it gets with each step."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=max(1, length), label=label, file=sys.stderr) as bar:
        yield bar.update


def blocks(count: int, most: int, width: int = 40) -> str:
    """Return a bar for *count*, as long as *width* for *most*."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    full = "█" if encoding.startswith("utf") else "#"
    return full * max(1, round(count / most * width)) if count else ""
