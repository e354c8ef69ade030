"""`tarry bench`: measure a store on this machine."""

import click
import msgspec

from tarry.app import Tarry
from tarry.cli.bench_runs import Runs
from tarry.cli.exits import talk
from tarry.cli.options import json_option
from tarry.cli.output import Table, put
from tarry.cli.scratch import scratch
from tarry.stores.shown import shown_url


class Result(msgspec.Struct, frozen=True):
    """One number, and what it says."""

    name: str
    value: float
    unit: str
    note: str


@click.command()
@click.argument("url", required=False)
@click.option(
    "--seconds",
    type=click.FloatRange(0.2, 600),
    default=5.0,
    show_default=True,
    help="How long to watch lateness.",
)
@click.option(
    "--burst",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="Tasks due in the same moment.",
)
@json_option
def bench(url: str | None, seconds: float, burst: int, as_json: bool) -> None:
    """Measure how fast a store takes tasks and how late they start, one worker in this process.

    Works in a namespace of its own and cleans up; without URL on a temporary SQLite file. The
    temporary folder may lie in memory: name a file on the disk that you mean to use.

    \b
    tarry bench
    tarry bench sqlite:////var/lib/shop/bench.db --seconds 10
    """
    with scratch(url, "bench") as app:
        talk(f"measuring {shown_url(app.url)}")
        results = _measure(app, seconds, burst)
    if as_json:
        put({"store": shown_url(app.url), "results": results})
        return
    table = Table("MEASURE", "VALUE", "UNIT", "HOW", right=["VALUE"])
    table.rows([[r.name, f"{r.value:,.2f}", r.unit, r.note] for r in results])


def _measure(app: Tarry, seconds: float, burst: int) -> list[Result]:
    runs = Runs(app)
    short = min(1.0, seconds)
    single = runs.single(short)
    batch = runs.batch(short)
    callers = runs.callers(short)
    rate = runs.burst(burst)
    p50, p99 = runs.lateness(seconds)
    return [
        Result("schedule", single, "tasks/s", "one by one, one caller"),
        Result("schedule_many", batch, "tasks/s", "batches of 500, one caller"),
        Result("aschedule", callers, "tasks/s", "100 callers on one event loop"),
        Result("burst", rate, "tasks/s", f"{burst:,} tasks due at once, one worker"),
        Result("lateness p50", p50, "ms", f"250 tasks/s for {seconds:g} s"),
        Result("lateness p99", p99, "ms", f"250 tasks/s for {seconds:g} s"),
    ]
