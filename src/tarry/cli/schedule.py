"""`tarry schedule`: let a task run later."""

import sys
from typing import Any

import click
import msgspec

from tarry.answers import Scheduled
from tarry.app import Tarry
from tarry.cli.exits import USAGE, fail
from tarry.cli.options import json_option, revision_option, with_app
from tarry.cli.output import absolute, both, clean, put
from tarry.request import OnConflict


@click.command()
@click.argument("kind")
@click.argument("when")
@click.option("--key", help="What the task acts on; without it one is made.")
@click.option(
    "--payload", metavar="JSON|-", help="The handler's arguments; - reads them from stdin."
)
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option(
    "--on-conflict",
    type=click.Choice([mode.value for mode in OnConflict]),
    default="replace",
    show_default=True,
    help="What to do if a task of this key waits already.",
)
@click.option(
    "--max-wait", metavar="DURATION", help="With latest: no later than this after the first."
)
@revision_option
@click.option(
    "--every", metavar="DURATION", help="Run again after each such interval; needs --key."
)
@click.option("--cron", metavar="RULE", help="Run again by this cron rule; needs --key.")
@click.option("--tz", metavar="ZONE", help="Time zone of --cron.")
@click.option("--catch-up", type=click.Choice(["latest", "all", "none"]), default="latest")
@json_option
@with_app(create=True)
def schedule(
    app: Tarry,
    kind: str,
    when: str,
    headers: tuple[str, ...],
    payload: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Let KIND run at WHEN: a delay, an instant, or a local time with its zone.

    \b
    tarry schedule order.cancel 30m --key 42 --payload '{"order_id": 42}'
    tarry schedule report.send "tomorrow 09:00 Europe/Berlin"
    tarry schedule cache.flush 2030-01-31T09:00:00Z --on-conflict keep --key all
    tarry schedule report.send now --key daily --cron "0 9 * * *" --tz Europe/Berlin
    """
    if (options["every"] or options["cron"]) and options["key"] is None:
        fail("a task that recurs needs --key, to be cancelled by; nothing was changed", USAGE)
    answer = app.schedule(
        kind, when, payload=_payload(payload), headers=_headers(headers), **options
    )
    put(_facts(answer)) if as_json else click.echo(_line(answer))


def _payload(text: str | None) -> object:
    if text is None:
        return None
    data = sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")
    try:
        value = msgspec.json.decode(data)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fail(f"--payload is no JSON: {error}; nothing was changed", USAGE)
    if not isinstance(value, dict):
        fail('--payload is an object of arguments such as {"order_id": 42}, not more', USAGE)
    return msgspec.Raw(data.strip())


def _headers(pairs: tuple[str, ...]) -> dict[str, str] | None:
    for pair in pairs:
        if "=" not in pair:
            fail(f"--header is NAME=VALUE, not {pair!r}; nothing was changed", USAGE)
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)} or None


def _facts(answer: Scheduled) -> dict[str, object]:
    return {
        "status": answer.status.value,
        "kind": answer.ref.kind,
        "key": answer.ref.key,
        "due": absolute(answer.due),
        "revision": answer.revision,
    }


def _line(answer: Scheduled) -> str:
    ref = clean(str(answer.ref))
    return f"{answer.status.value}: {ref}  due {both(answer.due)}  revision {answer.revision}"
