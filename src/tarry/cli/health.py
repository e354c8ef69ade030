"""`tarry health`: tell a probe whether tasks are attempted on time."""

import click

from tarry import config
from tarry.app import Tarry
from tarry.cli.exits import FAILED, OK, code_of, explain
from tarry.cli.options import json_option, namespace_option, opened, store_option
from tarry.cli.output import put
from tarry.due import duration_ms, format_duration
from tarry.errors import StoreError


@click.command()
@click.option("--max-overdue", metavar="DURATION", help="How late a task may be; 60s without it.")
@store_option
@namespace_option
@json_option
def health(
    max_overdue: str | None,
    store: str | None,
    namespace: str | None,
    as_json: bool,
) -> None:
    """Exit 0 if the store answers and no task is overdue for too long; paused kinds may be.

    \b
    tarry health --max-overdue 5m || echo "is a worker running?"
    """
    flags = {"store": store, "namespace": namespace, "max_overdue": max_overdue}
    settings = config.load(flags)
    try:
        with opened(settings) as app:
            late = _late(app, duration_ms(settings.max_overdue))
    except StoreError as error:
        if as_json:
            put({"ok": False, "store": str(error), "overdue": {}})
        explain(error)
        raise click.exceptions.Exit(code_of(error)) from None
    if as_json:
        put({"ok": not late, "store": "answers", "overdue": late})
    else:
        for kind, text in late.items():
            click.echo(f"overdue: {kind}  since {text}")
        if not late:
            click.echo("ok")
    raise click.exceptions.Exit(FAILED if late else OK)


def _late(app: Tarry, limit_ms: int) -> dict[str, str]:
    """Return for how long the oldest task of each late kind has been due."""
    now = app.clock.now()
    return {
        kind: format_duration((now - counts.oldest_due) // 1_000 * 1_000)
        for kind, counts in sorted(app.store.counts().items())
        if not counts.paused
        and counts.oldest_due is not None
        and now - counts.oldest_due > limit_ms
    }
