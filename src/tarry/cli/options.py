"""Options that many commands share, and how a command gets its store."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from tarry import config
from tarry.app import Tarry
from tarry.cli.exits import USAGE, fail, talk
from tarry.errors import StoreUnavailableError, StoreUrlError
from tarry.stores.connect import file_of

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object per line."
)
tz_option = click.option(
    "--tz", metavar="ZONE", help="Show times in this zone; without it, in UTC."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
revision_option = click.option(
    "--if-revision", type=int, metavar="N", help="Only if this revision is the one that waits."
)
store_option = click.option(
    "--store", metavar="URL", help=f"Where the tasks are; without it {config.DEFAULT_STORE}."
)
namespace_option = click.option("--namespace", metavar="NAME", help="Which installation's tasks.")


def with_app(*, create: bool = False) -> Callable[[F], F]:
    """Give a command --store and --namespace, and hand it an app on that store.

    A file that is not there is made only if *create*.
    """

    def decorate(command: F) -> F:
        @store_option
        @namespace_option
        @wraps(command)
        def run(*args: Any, store: str | None, namespace: str | None, **kwargs: Any) -> Any:
            settings = config.load({"store": store, "namespace": namespace})
            with opened(settings, create=create) as app:
                return command(app, *args, **kwargs)

        return run  # type: ignore[return-value]

    return decorate


@contextmanager
def opened(settings: config.Settings, *, create: bool = False) -> Iterator[Tarry]:
    """Open the store of *settings*, and close it at the end of the block."""
    url = settings.store
    if url.startswith("memory:"):
        message = "memory: lives in one process, so that a command would find nothing in it"
        raise StoreUrlError(message)
    refuse_missing(url, create=create)
    with Tarry(url, namespace=settings.namespace) as app:
        app.store  # noqa: B018 - opened here, so that what is wrong is said before anything else
        yield app


def refuse_missing(url: str, *, create: bool) -> None:
    """Raise if *url* names a file that is not there; say so if it is going to be made."""
    file = file_of(url)
    if file is None or Path(file).exists():
        return
    if not create:
        message = f"there is no store at {Path(file).absolute()}; nothing was made"
        raise StoreUnavailableError(message)
    talk(f"making a new store: {Path(file).absolute()}")


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; nobody to ask and no --yes: refuse."""
    if yes:
        return
    if not somebody_is_there():
        fail(f"{question} Nobody is there to answer: add --yes. Nothing was changed.", USAGE)
    if not click.confirm(question, err=True):
        talk("nothing was changed")
        raise click.exceptions.Exit(1)


def somebody_is_there() -> bool:
    """Say whether a person can answer a question."""
    return sys.stdin.isatty()
