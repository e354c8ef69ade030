"""Place: where the stores of a proof lie: never among anybody's own tasks, and nothing is left."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from tarry.clock import Clock
from tarry.request import Cancellation, DeadRef
from tarry.stores.connect import connect, file_of
from tarry.stores.store import Filter, Store
from tarry.task import Task, TaskState


def folder_of(url: str) -> Path | None:
    """Return the folder that the file of *url* lies in, None if its medium is no file."""
    file = file_of(url)
    return None if file is None else Path(file).absolute().parent


@contextmanager
def lodging(url: str) -> Iterator[str]:
    """Lend a URL of the same medium: a new file in the temporary folder, or the server itself."""
    if file_of(url) is None:
        yield url
        return
    scheme, query = url.partition(":")[0], urlsplit(url).query
    with tempfile.TemporaryDirectory(prefix="store-") as folder:
        file = quote(f"{folder}/tarry.db")
        yield f"{scheme}:///{file}?{query}" if query else f"{scheme}:///{file}"


def lodge(url: str, clock: Clock | None = None) -> Store:
    """Open a store in a namespace of its own."""
    namespace = f"proof.{random.SystemRandom().getrandbits(48):x}"
    return connect(url, namespace=namespace, clock=clock)


def leave(store: Store) -> None:
    """Cancel what waits, purge what is dead, and close; a lease that still runs stays."""
    for state in (TaskState.SCHEDULED, TaskState.LEASED):
        store.cancel([Cancellation(task.ref) for task in _all(store, state)])
    # A claim finds the leases that have ended, and with them what was cancelled.
    store.claim(list(store.counts()), limit=1, lease_ms=1, holder="proof")
    store.purge([DeadRef(task.ref, task.revision) for task in _all(store, TaskState.DEAD)])
    store.close()


def _all(store: Store, state: TaskState) -> Iterator[Task]:
    cursor: str | None = None
    while True:
        page = store.scan(Filter(state), cursor=cursor)
        yield from page.tasks
        cursor = page.cursor
        if cursor is None:
            return
