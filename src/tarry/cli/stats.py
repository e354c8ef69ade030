"""`tarry stats`: how many tasks of each kind there are, and when they come."""

from collections.abc import Mapping, Sequence

import click

from tarry.app import Tarry
from tarry.cli.exits import USAGE, fail, talk
from tarry.cli.options import json_option, with_app
from tarry.cli.output import Table, absolute, blocks, put, relative
from tarry.due import duration_ms, format_duration
from tarry.stores.shown import shown_url
from tarry.stores.store import Counts


@click.command()
@click.option(
    "--bucket", metavar="DURATION", default="5m", show_default=True, help="Width of a bar."
)
@click.option("--buckets", type=click.IntRange(1, 1_000), default=12, show_default=True)
@json_option
@with_app()
def stats(
    app: Tarry,
    bucket: str,
    buckets: int,
    as_json: bool,
) -> None:
    """Count tasks by kind, and draw how many are due in the next hour.

    \b
    tarry stats
    tarry stats --bucket 1h --buckets 24
    """
    bucket_ms = duration_ms(bucket)
    if not bucket_ms:
        fail("--bucket is longer than 0s", USAGE)
    counts = app.store.counts()
    forecast = app.store.forecast(bucket_ms=bucket_ms, buckets=buckets)
    if as_json:
        kinds = {kind: _facts(counts[kind]) for kind in sorted(counts)}
        put({"kinds": kinds, "bucket": format_duration(bucket_ms), "forecast": forecast})
        return
    if not counts:
        talk(f"no tasks in namespace {app.namespace} of {shown_url(app.url)}")
        return
    _table(counts)
    _chart(forecast, bucket_ms)


def _facts(counts: Counts) -> dict[str, object]:
    return {
        "scheduled": counts.scheduled,
        "leased": counts.leased,
        "dead": counts.dead,
        "overdue": counts.overdue,
        "oldest_due": None if counts.oldest_due is None else absolute(counts.oldest_due),
        "paused": counts.paused,
    }


def _table(counts: Mapping[str, Counts]) -> None:
    numbers = ("SCHEDULED", "LEASED", "DEAD", "OVERDUE")
    table = Table("KIND", *numbers, "OLDEST", "PAUSED", right=numbers)
    table.rows(
        [
            [
                kind,
                found.scheduled,
                found.leased,
                found.dead,
                found.overdue,
                "-" if found.oldest_due is None else relative(found.oldest_due),
                "paused" if found.paused else "-",
            ]
            for kind, found in sorted(counts.items())
        ]
    )


def _chart(forecast: Sequence[int], bucket_ms: int) -> None:
    most = max(forecast)
    span = format_duration(bucket_ms * len(forecast))
    click.echo(f"\ndue within {span}, in steps of {format_duration(bucket_ms)}: {sum(forecast):,}")
    labels = [f"+{format_duration(bucket_ms * place)}" for place in range(len(forecast))]
    labels[0] = "now"
    wide, digits = max(map(len, labels)), len(f"{most:,}")
    for label, count in zip(labels, forecast, strict=True):
        click.echo(f"{label.rjust(wide)}  {count:>{digits},}  {blocks(count, most)}".rstrip())
