"""`tarry migrate`: bring a store to this version's layout."""

import click

from tarry import config
from tarry.cli.options import json_option, namespace_option, opened, store_option
from tarry.cli.output import put
from tarry.stores.connect import plan


@click.command()
@click.option("--status", is_flag=True, help="Only tell the layout, and what is left to apply.")
@click.option("--sql", "as_sql", is_flag=True, help="Only print the SQL of what is left to apply.")
@json_option
@store_option
@namespace_option
def migrate(
    status: bool, as_sql: bool, as_json: bool, store: str | None, namespace: str | None
) -> None:
    """Bring the store to the layout of this version; makes it if it is not there.

    A worker or command makes what is not there, too: this is for doing it beforehand, and for a
    newer version. --status and --sql change nothing; the SQL can be run by whoever may.

    \b
    tarry migrate --store sqlite:////var/lib/shop/tarry.db
    tarry migrate --store postgresql://localhost/shop --sql | psql shop
    """
    settings = config.load({"store": store, "namespace": namespace})
    if status or as_sql:
        _tell(settings.store, as_sql=as_sql, as_json=as_json)
        return
    with opened(settings, create=True) as app:
        done = app.store.migrate()
        layout = app.store.facts().get("layout")
    if as_json:
        put({"applied": done, "layout": layout})
        return
    for step in done:
        click.echo(f"applied: {step}")
    click.echo(f"current: layout {layout or 'needs none'}")


def _tell(url: str, *, as_sql: bool, as_json: bool) -> None:
    present, left = plan(url)
    if as_json:
        put({"layout": present, "pending": [name for name, _ in left]})
    elif as_sql:
        for _, text in left:
            click.echo(text)
    else:
        click.echo(f"current: layout {present or 'none'}")
        for name, _ in left:
            click.echo(f"pending: {name}")
