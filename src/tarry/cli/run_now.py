"""`tarry run-now`: make a waiting task due now."""

import click

from tarry.app import Tarry
from tarry.cli.options import json_option, with_app
from tarry.cli.reschedule import tell
from tarry.task import check_ref


@click.command("run-now")
@click.argument("kind")
@click.argument("key")
@json_option
@with_app()
def run_now(
    app: Tarry,
    kind: str,
    key: str,
    as_json: bool,
) -> None:
    """Make the waiting task KIND/KEY due now; a dead one is revived.

    \b
    tarry run-now order.cancel 42
    """
    tell(app.run_now(check_ref(kind, key)), as_json=as_json)
