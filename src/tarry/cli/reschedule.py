"""`tarry reschedule`: move a waiting task."""

import re
from typing import NoReturn

import click

from tarry.answers import Moved, MoveStatus
from tarry.api.function import move_due
from tarry.app import Tarry
from tarry.cli.exits import NOT_FOUND, OK, TOO_LATE, talk
from tarry.cli.options import json_option, revision_option, with_app
from tarry.cli.output import absolute, both, clean, put
from tarry.due import Shift
from tarry.request import Move, Only
from tarry.task import check_ref

_MASK = "\N{INVISIBLE SEPARATOR}"
_SHIFT = re.compile(r"-(\d+[a-z]\w*|P\w[\w.,]*)")
_CODES = {
    MoveStatus.MOVED: OK,
    MoveStatus.ABSENT: NOT_FOUND,
    MoveStatus.RUNNING: TOO_LATE,
    MoveStatus.CONFLICT: TOO_LATE,
    MoveStatus.UNCHANGED: TOO_LATE,
}
_WHY = {
    MoveStatus.ABSENT: "nothing of that name waits",
    MoveStatus.RUNNING: "too late: it is being attempted; nothing was changed",
    MoveStatus.CONFLICT: "another revision waits; nothing was changed; see `tarry show`",
    MoveStatus.UNCHANGED: "its due already fits --only; nothing was changed",
}


class Masked(click.ParamType[str]):
    """Text, from which the mask of a shift is taken off again."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return *value* as it was typed."""
        del param, ctx
        return value.removeprefix(_MASK)


class TakesShifts(click.Command):
    """A command to which -15m and -1h are arguments, not options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Mask what looks like a shift, so that click passes it on."""
        masked = [_MASK + arg if _SHIFT.fullmatch(arg) else arg for arg in args]
        return super().parse_args(ctx, masked)


@click.command(cls=TakesShifts)
@click.argument("kind", type=Masked())
@click.argument("key", type=Masked())
@click.argument("when", type=Masked())
@click.option(
    "--only", type=click.Choice(["earlier", "later"]), help="Move in this direction only."
)
@revision_option
@json_option
@with_app()
def reschedule(
    app: Tarry,
    kind: str,
    key: str,
    when: str,
    only: str | None,
    if_revision: int | None,
    as_json: bool,
) -> None:
    """Move the waiting task KIND/KEY to WHEN; +15m or -15m shifts its present due.

    \b
    tarry reschedule order.cancel 42 2h
    tarry reschedule order.cancel 42 +15m
    tarry reschedule order.cancel 42 10m --only earlier
    """
    due, _ = move_due(Shift(when) if when[:1] in ("+", "-") else when, app.clock)
    ref = check_ref(kind, key)
    [moved] = app.client.reschedule([Move(ref, due, Only(only or "any"), if_revision)])
    tell(moved, as_json=as_json)


def tell(moved: Moved, *, as_json: bool) -> NoReturn:
    """Print what became of a move, and exit by it."""
    waits = moved.revision != 0
    if as_json:
        put(
            {
                "status": moved.status.value,
                "kind": moved.ref.kind,
                "key": moved.ref.key,
                "due": absolute(moved.due) if waits else None,
                "revision": moved.revision or None,
            }
        )
    else:
        line = f"{moved.status.value}: {clean(str(moved.ref))}"
        click.echo(f"{line}  due {both(moved.due)}  revision {moved.revision}" if waits else line)
        if moved.status in _WHY:
            talk(_WHY[moved.status])
    raise click.exceptions.Exit(_CODES[moved.status])
