"""A place of its own for commands that make tasks: a temporary file or a namespace, left clean."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tarry.app import Tarry
from tarry.cli.listing import pages
from tarry.request import Cancellation, DeadRef
from tarry.stores.store import Filter
from tarry.task import TaskState

_EVERYTHING = 10**12


@contextmanager
def scratch(url: str | None, name: str) -> Iterator[Tarry]:
    """Lend an app on *url* in a namespace of its own, or on a temporary file; cleans up."""
    namespace = f"tarry-{name}-{os.urandom(4).hex()}"
    if url is not None:
        with Tarry(url, namespace=namespace) as app, _silence():
            try:
                yield app
            finally:
                sweep(app)
                app.store.abandon()
        return
    with TemporaryDirectory(prefix=f"tarry-{name}-") as folder:
        file = Path(folder) / "tarry.db"
        with Tarry(f"sqlite:///{file}", namespace=namespace) as app, _silence():
            yield app


def sweep(app: Tarry) -> None:
    """Cancel what waits and purge what is dead in the namespace of *app*."""
    for page in list(pages(app.store, Filter(), _EVERYTHING)):
        app.client.cancel([Cancellation(task.ref) for task in page])
    for page in list(pages(app.store, Filter(TaskState.DEAD), _EVERYTHING)):
        app.client.purge([DeadRef(task.ref, task.revision) for task in page])


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the worker's log off the screen: the command shows what happens itself."""
    log = logging.getLogger("tarry")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
