"""`tarry list`: tasks by due."""

from collections.abc import Iterator, Sequence

import click

from tarry.app import Tarry
from tarry.cli.exits import talk
from tarry.cli.options import json_option, tz_option, with_app
from tarry.cli.output import Table, absolute, described, put, relative
from tarry.due import At, parse_when
from tarry.stores.store import Filter, Store
from tarry.task import Task, TaskState, check_kind

PAGE = 200


@click.command("list")
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, help="Only this kind; may be repeated."
)
@click.option(
    "--state",
    type=click.Choice([state.value for state in TaskState]),
    help="Without it, all that wait or run; done and cancelled exist only where history is kept.",
)
@click.option("--due-before", metavar="WHEN", help="Due before then: 10m is within ten minutes.")
@click.option("--due-after", metavar="WHEN", help="Due then or later.")
@click.option("--key-prefix", metavar="TEXT", default="", help="Keys that begin so.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@tz_option
@json_option
@with_app()
def list_(
    app: Tarry,
    kinds: tuple[str, ...],
    state: str | None,
    due_before: str | None,
    due_after: str | None,
    key_prefix: str,
    limit: int,
    tz: str | None,
    as_json: bool,
) -> None:
    """List tasks by due; dead and kept ones in the order of their end.

    \b
    tarry list --due-before 10m
    tarry list --kind order.cancel --key-prefix order: --limit 20
    tarry list --state dead --json | jq -r .key
    """
    now = app.clock.now()
    where = Filter(
        TaskState(state) if state else None,
        tuple(check_kind(kind) for kind in kinds),
        key_prefix,
        None if due_before is None else _instant(due_before, now),
        None if due_after is None else _instant(due_after, now),
    )
    shown = tell(pages(app.store, where, limit + 1), limit, tz, as_json=as_json)
    if shown > limit:
        talk(f"these are the first {limit}; for more: --limit {limit * 10}")
    elif not shown and not as_json:
        talk("no tasks")


def _instant(when: str, now: int) -> int:
    """Return the instant, which may well be in the past."""
    due = parse_when(when, now)
    return due.instant if isinstance(due, At) else now + due.delay_ms


def pages(store: Store, where: Filter, limit: int) -> Iterator[Sequence[Task]]:
    """Yield up to *limit* tasks, page by page."""
    cursor = None
    while limit > 0:
        page = store.scan(where, cursor=cursor, limit=min(limit, PAGE))
        if page.tasks:
            yield page.tasks
        limit -= len(page.tasks)
        cursor = page.cursor
        if cursor is None:
            return


def tell(
    found: Iterator[Sequence[Task]],
    limit: int,
    tz: str | None,
    *,
    as_json: bool,
    dead: bool = False,
) -> int:
    """Print up to *limit* of the tasks; returns how many were found."""
    last = "REASON" if dead else "ATTEMPT"
    table = Table("STATE", "KIND", "KEY", "DUE", "IN", "REVISION", last, right=["REVISION"])
    count = 0
    for page in found:
        part = page[: max(0, limit - count)]
        count += len(page)
        if as_json:
            for task in part:
                put(described(task, tz))
        elif part:
            table.rows([_row(task, tz, dead=dead) for task in part])
    return count


def _row(task: Task, tz: str | None, *, dead: bool) -> list[object]:
    away = relative(task.due).removeprefix("in ")
    end = task.reason if dead else task.attempt
    ref = task.ref
    due = absolute(task.due, tz)
    return [task.state.value, ref.kind, ref.key, due, away, task.revision, end]
