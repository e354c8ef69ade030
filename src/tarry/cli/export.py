"""`tarry export`: waiting tasks and dead letters as lines of JSON."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from tarry.app import Tarry
from tarry.cli import ndjson
from tarry.cli.exits import USAGE, fail, talk
from tarry.cli.ndjson import LineError, Mark
from tarry.cli.options import json_option, with_app
from tarry.cli.output import progress, put
from tarry.stores.store import Filter
from tarry.task import TaskState, check_kind

PAGE = 500
_STATES = (TaskState.SCHEDULED, TaskState.DEAD)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, help="Only this kind; may be repeated."
)
@click.option(
    "--state",
    type=click.Choice([state.value for state in _STATES]),
    help="Only what waits, or only dead letters; without it both.",
)
@click.option("--resume", is_flag=True, help="Go on where an export to FILE was interrupted.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@json_option
@with_app()
def export(
    app: Tarry,
    file: str,
    kinds: tuple[str, ...],
    state: str | None,
    resume: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write waiting tasks and dead letters to FILE (- for stdout), one line of JSON for each.

    `tarry import` reads them into any other store. What runs at the moment is left out, and
    counted: stop the workers first if nothing may be missed. The store is not changed.

    \b
    tarry export tasks.ndjson
    tarry export tasks.ndjson --resume
    tarry export - --kind order.cancel | gzip > tasks.ndjson.gz
    """
    where = [
        Filter(each, tuple(check_kind(kind) for kind in kinds))
        for each in _STATES
        if state in (None, each.value)
    ]
    counts = app.store.counts(list(kinds) or None)
    total = sum(found.scheduled + found.dead for found in counts.values())
    if file == "-":
        if resume:
            fail("what went to stdout cannot be resumed; nothing was written", USAGE)
        done = _write(app, sys.stdout.buffer, where, Mark(tarry="page"), total)
    else:
        done = _to_file(app, Path(file), where, total, resume=resume, force=force)
    running = sum(found.leased for found in counts.values())
    summary = {"exported": done, "running": running}
    if as_json and file != "-":
        put(summary)
    elif file != "-":
        click.echo(f"exported {done:,} tasks to {file}")
    if running:
        talk(f"{running:,} attempts were running: they are not in the export")


def _to_file(
    app: Tarry, path: Path, where: Sequence[Filter], total: int, *, resume: bool, force: bool
) -> int:
    if resume:
        start, size = _reached(path)
    else:
        start, size = Mark(tarry="page"), 0
        if path.exists() and not force:
            fail(f"{path} is there already: --resume, --force, or another name", USAGE)
    with path.open("r+b" if resume else "wb") as out:
        out.truncate(size)
        out.seek(size)
        if start.tarry == "end":
            talk(f"{path} is finished already")
            return start.tasks
        done = _write(app, out, where, start, total)
        out.flush()
        os.fsync(out.fileno())
    return done


def _reached(path: Path) -> tuple[Mark, int]:
    """Return the last mark of an interrupted export, and where it ends."""
    found, size, end = Mark(tarry="page"), 0, 0
    with path.open("rb") as lines:
        for line in lines:
            size += len(line)
            if line.startswith(b'{"tarry"') and line.endswith(b"\n"):
                try:
                    mark = ndjson.read(line, 0)
                except LineError:
                    break
                if isinstance(mark, Mark) and mark.tarry != "export":
                    found, end = mark, size
    return found, end


def _write(app: Tarry, out: BinaryIO, where: Sequence[Filter], start: Mark, total: int) -> int:
    """Write what is left from *start* on; every page ends with a mark to go on from."""
    done = start.tasks
    if not start.state:
        out.write(_line(Mark(tarry="export", namespace=app.namespace)))
    try:
        with progress(total, "export") as step:
            step(done)
            for lines, mark in _pages(app, where, start):
                done += len(lines)
                mark.tasks = done
                out.write(b"".join([*lines, _line(mark)]))
                out.flush()
                step(len(lines))
    except KeyboardInterrupt:
        message = f"exported {done:,} tasks so far; --resume goes on with a file"
        raise KeyboardInterrupt(message) from None
    out.write(_line(Mark(tarry="end", tasks=done)))
    return done


def _pages(app: Tarry, where: Sequence[Filter], start: Mark) -> Iterator[tuple[list[bytes], Mark]]:
    waiting = [each for each in where if each.state is not None]
    skip = bool(start.state)
    cursor = start.cursor
    for each in waiting:
        assert each.state is not None  # noqa: S101 - chosen so
        if skip and each.state.value != start.state:
            continue
        skipped, skip = skip, False
        if skipped and cursor is None:
            continue
        while True:
            page = app.store.scan(each, cursor=cursor, limit=PAGE)
            cursor = page.cursor
            lines = [ndjson.written(task) + b"\n" for task in page.tasks]
            yield lines, Mark(tarry="page", state=each.state.value, cursor=cursor)
            if cursor is None:
                break


def _line(mark: Mark) -> bytes:
    return msgspec.json.encode(mark) + b"\n"
