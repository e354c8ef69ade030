"""`tarry show`: everything about one task."""

from collections.abc import Iterator

import click
import msgspec

from tarry.app import Tarry
from tarry.cli.exits import NOT_FOUND, fail
from tarry.cli.options import json_option, tz_option, with_app
from tarry.cli.output import both, clean, described, headers_of, pairs, payload_of, put
from tarry.task import Task, check_ref


@click.command()
@click.argument("kind")
@click.argument("key")
@tz_option
@json_option
@with_app()
def show(
    app: Tarry,
    kind: str,
    key: str,
    tz: str | None,
    as_json: bool,
) -> None:
    """Show the task KIND/KEY: the one that waits, else runs, else ended last.

    \b
    tarry show order.cancel 42
    tarry show order.cancel 42 --json | jq .due
    """
    ref = check_ref(kind, key)
    task = app.get(ref)
    if task is None:
        fail(f"there is no task {clean(str(ref))} in namespace {app.namespace}", NOT_FOUND)
    if as_json:
        put(described(task, tz))
    else:
        pairs(dict(_facts(task, tz)))


def _facts(task: Task, tz: str | None) -> Iterator[tuple[str, object]]:
    payload = payload_of(task)
    yield "task", task.ref
    yield "state", f"{task.state.value}{', asked to stop' if task.cancelled else ''}"
    yield "due", both(task.due, tz)
    yield "revision", task.revision
    yield "attempt", f"{task.attempt}, lost {task.lost}, snoozes {task.snoozes}"
    yield "created", both(task.created, tz)
    yield "payload", bytes(payload).decode() if isinstance(payload, msgspec.Raw) else payload
    headers = headers_of(task)
    if isinstance(headers, str):
        yield "headers", f"{headers} (they cannot be read)"
    else:
        for name, value in headers.items():
            yield f"header {name}", value
    if task.rule:
        owner = "declared by the code" if task.declared else "made by a caller"
        yield "rule", f"{task.rule} ({owner})"
        yield "occurrence", both(task.nominal, tz)
    if task.ended:
        yield "ended", both(task.ended, tz)
    if task.reason:
        yield "reason", task.reason
