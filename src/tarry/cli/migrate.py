"""`tarry migrate`: bring a store to this version's layout."""

import click

from tarry.app import Tarry
from tarry.cli.options import json_option, with_app
from tarry.cli.output import put


@click.command()
@json_option
@with_app(create=True)
def migrate(app: Tarry, as_json: bool) -> None:
    """Bring the store to the layout of this version; makes it if it is not there.

    A worker or command does the same when it opens the store: this is for doing it beforehand.

    \b
    tarry migrate --store sqlite:////var/lib/shop/tarry.db
    """
    done = app.store.migrate()
    layout = app.store.facts().get("layout")
    if as_json:
        put({"applied": done, "layout": layout})
        return
    for step in done:
        click.echo(f"applied: {step}")
    click.echo(f"current: layout {layout or 'needs none'}")
