"""`tarry cancel`: a task is no longer wanted."""

import click

from tarry.answers import CancelResult
from tarry.app import Tarry
from tarry.cli.exits import NOT_FOUND, OK, TOO_LATE, talk
from tarry.cli.options import json_option, revision_option, with_app
from tarry.cli.output import absolute, both, clean, put
from tarry.request import Cancellation
from tarry.task import Task, TaskState, check_ref

_CODES = {
    CancelResult.CANCELLED: OK,
    CancelResult.ACCEPTED: OK,
    CancelResult.ABSENT: NOT_FOUND,
    CancelResult.RUNNING: TOO_LATE,
    CancelResult.CONFLICT: TOO_LATE,
}
_WHY = {
    CancelResult.ABSENT: "nothing of that name waits",
    CancelResult.RUNNING: "too late to stop this attempt; it was told, and there will be no other",
    CancelResult.CONFLICT: "another revision waits; nothing was changed; see `tarry show`",
    CancelResult.ACCEPTED: "the medium cannot verify it: it may still run",
}


@click.command()
@click.argument("kind")
@click.argument("key")
@revision_option
@json_option
@with_app()
def cancel(
    app: Tarry,
    kind: str,
    key: str,
    if_revision: int | None,
    as_json: bool,
) -> None:
    """Cancel the task KIND/KEY; of a series that the code declares, the next occurrence.

    \b
    tarry cancel order.cancel 42
    tarry cancel order.cancel 42 --if-revision 7
    """
    ref = check_ref(kind, key)
    answer = app.client.skip(Cancellation(ref, if_revision))
    following = _following(app.get(ref)) if answer is CancelResult.CANCELLED else None
    if as_json:
        due = absolute(following.due) if following else None
        put({"status": answer.value, "kind": kind, "key": key, "next": due})
    else:
        click.echo(f"{answer.value}: {clean(str(ref))}")
        if answer in _WHY:
            talk(_WHY[answer])
        if following:
            talk(f"the code declares this series: it goes on at {both(following.due)}")
    raise click.exceptions.Exit(_CODES[answer])


def _following(task: Task | None) -> Task | None:
    """Return the occurrence that a series goes on with."""
    waits = task is not None and task.declared and task.state is TaskState.SCHEDULED
    return task if waits else None
