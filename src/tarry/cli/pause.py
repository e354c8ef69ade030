"""`tarry pause` and `tarry resume`: stop a kind from being attempted, and let it go on."""

import click

from tarry.app import Tarry
from tarry.cli.exits import talk
from tarry.cli.options import json_option, with_app
from tarry.cli.output import put
from tarry.task import check_kind


@click.command()
@click.argument("kind")
@json_option
@with_app()
def pause(app: Tarry, kind: str, as_json: bool) -> None:
    """Let no worker begin a task of KIND any more; kept in the store until `tarry resume`.

    \b
    tarry pause payment.notify
    """
    _tell("paused", kind, app.pause(check_kind(kind)), "it was paused already", as_json)


@click.command()
@click.argument("kind")
@json_option
@with_app()
def resume(app: Tarry, kind: str, as_json: bool) -> None:
    """Let tasks of KIND be attempted again; what became due meanwhile is due now.

    \b
    tarry resume payment.notify
    """
    _tell("resumed", kind, not app.resume(check_kind(kind)), "it was not paused", as_json)


def _tell(status: str, kind: str, already: bool, why: str, as_json: bool) -> None:
    if as_json:
        put({"status": status, "kind": kind, "changed": not already})
        return
    click.echo(f"{status}: {kind}")
    if already:
        talk(why)
