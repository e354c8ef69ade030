"""`tarry worker`: attempt due tasks with the handlers of an app."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from tarry import config
from tarry.app import Tarry
from tarry.cli.exits import RECYCLE, USAGE, fail, talk
from tarry.cli.loading import load_app
from tarry.cli.logs import set_up
from tarry.cli.options import refuse_missing
from tarry.cli.supervisor import SUPERVISOR, Supervisor, die_with
from tarry.errors import StoreUrlError, WorkerError
from tarry.stores.shown import shown_url

# -P: the folder we are in is searched for the user's modules, not for ours.
_SELF = [sys.executable, "-P", "-m", "tarry"]


@click.command()
@click.argument("app_spec", metavar="[MODULE:APP]", required=False)
@click.option(
    "--kinds", metavar="A,B", help="Only these kinds; without it all that have a handler."
)
@click.option("--concurrency", type=int, metavar="N", help="Attempts at a time; 50 without it.")
@click.option("--processes", type=int, metavar="N", help="Processes, each with its concurrency.")
@click.option("--lease", metavar="DURATION", help="How long a dead worker keeps its tasks; 30s.")
@click.option("--grace", metavar="DURATION", help="How long a stop waits for attempts; 10s.")
@click.option(
    "--health-port", type=int, metavar="P", help="Serve /livez, /readyz and /metrics here."
)
@click.option("--store", metavar="URL", help="Where the tasks are; without it the app's own store.")
@click.option("--namespace", metavar="NAME", help="Whose tasks; without it the app's own.")
@click.option("--log-level", type=click.Choice(config.LEVELS), help="info without it.")
@click.option("--log-json", is_flag=True, default=None, help="One JSON object per line of log.")
def worker(app_spec: str | None, **flags: str | int | None) -> None:
    """Attempt due tasks with the handlers of the app in MODULE.

    SIGTERM or Ctrl-C stops it when the running attempts are done, or after the grace; a second
    signal stops it at once. With --processes, process i serves --health-port P + i.

    \b
    tarry worker shop.tasks:app
    tarry worker shop.tasks:app --kinds order.cancel --processes 4 --health-port 9100
    """
    settings = config.load({"app": app_spec, **flags})
    if settings.app is None:
        fail("which app? write MODULE:APP, for example: tarry worker shop.tasks:app", USAGE)
    # Not for the processes that handlers start.
    parent = os.environ.pop(SUPERVISOR, None)
    child = parent is not None
    if parent is not None:
        die_with(int(parent))
    app = load_app(settings.app)
    _choose_store(app, settings, child=child)
    _check_kinds(app, settings)
    if settings.processes > 1:
        talk(f"{_banner(app, settings)} in {settings.processes} processes")
        raise click.exceptions.Exit(Supervisor(_commands(settings)).run())
    if not child:
        talk(_banner(app, settings))
    set_up(settings.log_level, as_json=settings.log_json)
    _serve(app, settings, child=child)


def _choose_store(app: Tarry, settings: config.Settings, *, child: bool) -> None:
    """Put the app on the store of the settings, if they name one."""
    sources = settings.sources
    if "store" in sources and settings.store != app.url:
        if not child:
            own = shown_url(app.url)
            talk(f"note: {sources['store']} takes the place of the app's own store, {own}")
        app.close()
        app.url = settings.store
    if "namespace" in sources and settings.namespace != app.namespace:
        if not child:
            was = app.namespace
            talk(f"note: {sources['namespace']} takes the place of the app's own namespace, {was}")
        app.close()
        app.namespace = settings.namespace
    if app.url.startswith("memory:"):
        message = "memory: lives in one process: nobody else could schedule for this worker"
        raise StoreUrlError(message)
    refuse_missing(app.url, create=True)


def _check_kinds(app: Tarry, settings: config.Settings) -> None:
    known = app.registry.kinds()
    unknown = [kind for kind in settings.kinds if kind not in known]
    if unknown:
        there = ", ".join(known)
        fail(f"--kinds: no handler for {', '.join(unknown)}; the app has {there}", USAGE)


def _banner(app: Tarry, settings: config.Settings) -> str:
    kinds = ", ".join(settings.kinds or app.registry.kinds())
    where = f"{shown_url(app.url)} (namespace {app.namespace})"
    return f"tarry worker: {settings.app} serves {kinds} on {where}"


def _serve(app: Tarry, settings: config.Settings, *, child: bool) -> None:
    """Run a worker in this process until a signal, or until it wants to be started anew."""
    from tarry.worker.serve import run_until_signal  # noqa: PLC0415 - a supervisor needs none

    made = app.make_worker(
        kinds=settings.kinds or None,
        concurrency=settings.concurrency,
        lease=settings.lease,
        grace=settings.grace,
    )
    try:
        with app, _health(app, settings.health_port, lambda: made.store_answers):
            run_until_signal(made)
    except WorkerError as error:
        talk(f"starting anew: {error}")
        _start_anew(child=child)


@contextmanager
def _health(app: Tarry, port: int | None, ready: Callable[[], bool]) -> Iterator[None]:
    with ExitStack() as stack:
        if port is not None:
            from tarry.observe.health import Health  # noqa: PLC0415 - only when asked for

            health = stack.enter_context(Health(port, ready=ready))
            stack.callback(app.listen(health.on))
            talk(f"health: http://127.0.0.1:{health.port}/livez /readyz /metrics")
        yield


def _start_anew(*, child: bool) -> None:
    """Replace this process: threads that hang cannot be stopped in any other way."""
    sys.stdout.flush()
    sys.stderr.flush()
    if child:
        os._exit(RECYCLE)  # the threads that hang would keep a plain exit waiting
    os.execv(sys.executable, [*_SELF, *sys.argv[1:]])  # noqa: S606 - ourselves


def _commands(settings: config.Settings) -> list[list[str]]:
    """Return the command line of each process."""
    common = [*_SELF, "worker", str(settings.app), "--processes=1"]
    common += [f"--concurrency={settings.concurrency}", f"--log-level={settings.log_level}"]
    common += [f"--lease={settings.lease}", f"--grace={settings.grace}"]
    common += [f"--kinds={','.join(settings.kinds)}"] if settings.kinds else []
    common += ["--log-json"] if settings.log_json else []
    for name in ("store", "namespace"):
        if name in settings.sources:
            common.append(f"--{name}={getattr(settings, name)}")
    commands = []
    for place in range(settings.processes):
        port = settings.health_port
        ports = [] if port is None else [f"--health-port={port + place if port else 0}"]
        commands.append([*common, *ports])
    return commands
