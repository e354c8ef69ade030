"""`tarry doctor`: look a store over, and say what is wrong with it."""

from collections.abc import Iterator

import click
import msgspec

from tarry import config
from tarry.app import Tarry
from tarry.cli.doctor_file import file_facts, file_findings
from tarry.cli.exits import FOUND, OK, talk
from tarry.cli.listing import pages
from tarry.cli.loading import load_app
from tarry.cli.options import json_option, namespace_option, opened, store_option
from tarry.cli.output import clean, pairs, progress, put
from tarry.stores.connect import file_of
from tarry.stores.shown import shown_url
from tarry.stores.store import Filter
from tarry.task import Task, TaskState
from tarry.timers.native import CORE

_EVERYTHING = 10**12


@click.command()
@click.argument("app_spec", metavar="[MODULE:APP]", required=False)
@store_option
@namespace_option
@json_option
def doctor(
    app_spec: str | None,
    store: str | None,
    namespace: str | None,
    as_json: bool,
) -> None:
    """Look the store over; with MODULE:APP also for tasks that its code no longer knows.

    \b
    tarry doctor --store sqlite:///tarry.db
    tarry doctor shop.tasks:app
    """
    code = load_app(app_spec) if app_spec else None
    settings = config.load({"store": store, "namespace": namespace})
    if code is not None:
        own = {"store": code.url, "namespace": code.namespace}
        unsaid = {name: value for name, value in own.items() if name not in settings.sources}
        settings = msgspec.structs.replace(settings, **unsaid)
    with opened(settings) as app:
        file = file_of(app.url)
        facts = _facts(app) | (file_facts(file) if file else {})
        found = [*app.store.check(), *(file_findings(file) if file else ())]
        if code is not None:
            found += _strangers(app, code)
            found += _orphans(app, code)
    if as_json:
        put({"ok": not found, "facts": facts, "found": found})
    else:
        pairs(facts)
        for line in found:
            click.echo(f"found: {clean(line)}")
        talk("" if found else "nothing found: all is well")
    raise click.exceptions.Exit(FOUND if found else OK)


def _facts(app: Tarry) -> dict[str, str]:
    store = app.store
    can = store.capabilities
    return {
        "store": shown_url(app.url),
        "namespace": app.namespace,
        "medium": can.medium,
        "an acknowledged task survives": can.survives,
        "shared between processes": "yes" if can.shared else "no",
        "wake-up": can.wakeup,
        "joins transactions": "yes" if can.joins_transactions else "no",
        "takes over dead letters": "yes" if can.takes_over else "no",
        "remembers calls": "yes" if can.remembers_calls else "no",
        "timers": f"{CORE} core",
        **store.facts(),
    }


def _strangers(app: Tarry, code: Tarry) -> Iterator[str]:
    """Tell of kinds that wait although no worker of *code* knows them."""
    known = code.registry.kinds()
    for kind, counts in sorted(app.store.counts().items()):
        waiting = counts.scheduled + counts.leased
        if kind not in known and waiting:
            yield (
                f"{waiting:,} tasks of kind {kind} wait, and the app has no handler for it: "
                'deploy one, name it in aliases=["…"], or cancel them'
            )


def _orphans(app: Tarry, code: Tarry) -> list[str]:
    """Tell of recurring tasks whose declaration is gone from *code*."""
    total = sum(counts.scheduled for counts in app.store.counts().values())
    found = []
    with progress(total, "looking for orphans") as step:
        for page in pages(app.store, Filter(TaskState.SCHEDULED), _EVERYTHING):
            step(len(page))
            found += [
                f"{task.ref} recurs, but the app no longer declares it: pause or cancel it"
                for task in page
                if task.declared and not _is_declared(task, code)
            ]
    return found


def _is_declared(task: Task, code: Tarry) -> bool:
    handler = code.registry.find(task.ref.kind)
    return handler is not None and handler.rule is not None and handler.series_key == task.ref.key
