"""`tarry dead`: list, revive or purge dead letters."""

from collections.abc import Callable, Sequence

import click

from tarry.answers import ReviveResult
from tarry.api.client import Client
from tarry.app import Tarry
from tarry.cli.exits import NOT_FOUND, OK, TOO_LATE, USAGE, fail, talk
from tarry.cli.listing import pages, tell
from tarry.cli.options import confirmed, json_option, tz_option, with_app, yes_option
from tarry.cli.output import clean, progress, put
from tarry.request import DeadRef
from tarry.stores.store import Filter
from tarry.task import TaskState, check_kind, check_ref

_CODES = {
    ReviveResult.REVIVED: OK,
    ReviveResult.SKIPPED: TOO_LATE,
    ReviveResult.ABSENT: NOT_FOUND,
}
_WHY = {
    ReviveResult.SKIPPED: "the task waits or runs already; the dead letter stays",
    ReviveResult.ABSENT: "there is no such dead letter",
}
_Verb = Callable[[Client, Sequence[DeadRef]], Sequence[str]]

kind_argument = click.argument("kind", required=False)
key_argument = click.argument("key", required=False)
revision_option = click.option(
    "--revision", type=click.IntRange(1), help="This one; without it the newest of the key."
)
kind_option = click.option("--kind", "of_kind", metavar="KIND", help="All of this kind.")
all_option = click.option("--all", "everything", is_flag=True, help="All of the namespace.")


@click.group()
def dead() -> None:
    """List, revive or purge dead letters: tasks that nobody attempts any more.

    \b
    tarry dead list
    tarry dead revive payment.notify 88
    tarry dead purge --kind payment.notify
    """


@dead.command("list")
@click.option("--kind", "of_kind", metavar="KIND", help="Only of this kind.")
@click.option("--key-prefix", metavar="TEXT", default="", help="Keys that begin so.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@tz_option
@json_option
@with_app()
def list_(
    app: Tarry,
    of_kind: str | None,
    key_prefix: str,
    limit: int,
    tz: str | None,
    as_json: bool,
) -> None:
    """List dead letters in the order of their end, with the reason.

    \b
    tarry dead list --kind payment.notify
    tarry dead list --json | jq -r .reason
    """
    where = _where(of_kind, key_prefix)
    shown = tell(pages(app.store, where, limit + 1), limit, tz, as_json=as_json, dead=True)
    if shown > limit:
        talk(f"these are the first {limit}; for more: --limit {limit * 10}")
    elif not shown and not as_json:
        talk("no dead letters")


@dead.command()
@kind_argument
@key_argument
@revision_option
@kind_option
@all_option
@yes_option
@json_option
@with_app()
def revive(
    app: Tarry,
    kind: str | None,
    key: str | None,
    revision: int | None,
    of_kind: str | None,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make dead letters waiting tasks again, due now: one by KIND KEY, or many.

    \b
    tarry dead revive payment.notify 88
    tarry dead revive --kind payment.notify
    """
    one = _one(kind, key, revision, of_kind, everything=everything)
    if one is None:
        _many(app, of_kind, "revive", _revive, yes=yes, as_json=as_json)
        return
    [answer] = app.client.revive([one])
    _tell(one, answer.value, _WHY.get(answer), as_json=as_json)
    raise click.exceptions.Exit(_CODES[answer])


@dead.command()
@kind_argument
@key_argument
@revision_option
@kind_option
@all_option
@yes_option
@json_option
@with_app()
def purge(
    app: Tarry,
    kind: str | None,
    key: str | None,
    revision: int | None,
    of_kind: str | None,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete dead letters for good: one by KIND KEY, or many.

    \b
    tarry dead purge payment.notify 88
    tarry dead purge --all --yes
    """
    one = _one(kind, key, revision, of_kind, everything=everything)
    if one is None:
        _many(app, of_kind, "purge", _purge, yes=yes, as_json=as_json)
        return
    confirmed(f"Delete the dead letter {clean(str(one.ref))} for good?", yes=yes)
    [there] = app.client.purge([one])
    why = None if there else _WHY[ReviveResult.ABSENT]
    _tell(one, "purged" if there else "absent", why, as_json=as_json)
    raise click.exceptions.Exit(OK if there else NOT_FOUND)


def _one(
    kind: str | None,
    key: str | None,
    revision: int | None,
    of_kind: str | None,
    *,
    everything: bool,
) -> DeadRef | None:
    """Return the one dead letter that was named, None if many are meant."""
    if kind is not None and key is not None and of_kind is None and not everything:
        return DeadRef(check_ref(kind, key), revision or 0)
    many = (of_kind is not None) != everything
    if kind is not None or revision is not None or not many:
        fail("say which: KIND KEY, or --kind KIND, or --all; nothing was changed", USAGE)
    return None


def _tell(one: DeadRef, status: str, why: str | None, *, as_json: bool) -> None:
    if as_json:
        put({"status": status, "kind": one.ref.kind, "key": one.ref.key})
        return
    click.echo(f"{status}: {clean(str(one.ref))}")
    if why:
        talk(why)


def _many(app: Tarry, kind: str | None, verb: str, act: _Verb, *, yes: bool, as_json: bool) -> None:
    """Do *verb* to every dead letter of *kind*, or of all kinds."""
    where = _where(kind, "")
    counts = app.store.counts([kind] if kind else None)
    total = sum(found.dead for found in counts.values())
    if total:
        whose = f"of {kind}" if kind else f"of namespace {app.namespace}"
        confirmed(f"{verb.capitalize()} {total:,} dead letters {whose}?", yes=yes)
    done: dict[str, int] = {}
    try:
        with progress(total, verb) as step:
            for page in pages(app.store, where, total):
                refs = [DeadRef(task.ref, task.revision) for task in page]
                for answer in act(app.client, refs):
                    done[answer] = done.get(answer, 0) + 1
                step(len(refs))
    except KeyboardInterrupt:
        message = f"{_summary(done)}; run it again to go on"
        raise KeyboardInterrupt(message) from None
    put(done) if as_json else click.echo(_summary(done))


def _summary(done: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in done.items()) or "no dead letters"


def _where(kind: str | None, key_prefix: str) -> Filter:
    kinds = () if kind is None else (check_kind(kind),)
    return Filter(TaskState.DEAD, kinds, key_prefix)


def _revive(client: Client, refs: Sequence[DeadRef]) -> list[str]:
    return [answer.value for answer in client.revive(refs)]


def _purge(client: Client, refs: Sequence[DeadRef]) -> list[str]:
    return ["purged" if there else "absent" for there in client.purge(refs)]
