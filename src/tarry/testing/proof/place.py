"""Place: where the stores of a proof lie: never among anybody's own tasks, and nothing is left."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from tarry.clock import Clock
from tarry.errors import TarryError
from tarry.stores.connect import connect, file_of
from tarry.stores.store import Store

_GUESTS = "TARRY_PROOF_GUESTS"
"""Names the file in which processes of a proof note the namespaces that they use."""


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


def lodge(url: str, clock: Clock | None = None, campaign: str = "") -> Store:
    """Open a store in a namespace of its own."""
    namespace = f"proof.{campaign}{random.SystemRandom().getrandbits(48):x}"
    _note("+", namespace)
    return connect(url, namespace=namespace, clock=clock)


def leave(store: Store) -> None:
    """Remove the namespace, and close; a lease that still runs may stay."""
    store.abandon()
    _note("-", store.namespace)
    store.close()


@contextmanager
def lodged(url: str) -> Iterator[Store]:
    """Lend a store in a namespace of its own, which is left at the end."""
    store = lodge(url)
    try:
        yield store
    finally:
        leave(store)


def guests(book: Path) -> dict[str, str]:
    """Return the environment in which processes note in *book* where they lodge."""
    return {_GUESTS: str(book)}


def clear(url: str, book: Path) -> None:
    """Remove the namespaces that were noted in *book* and not left: their processes were killed."""
    if not book.exists():
        return
    lines = book.read_text().split()
    left = {line[1:] for line in lines if line[0] == "-"}
    for namespace in [line[1:] for line in lines if line[0] == "+" and line[1:] not in left]:
        with suppress(TarryError), closing(connect(url, namespace=namespace)) as store:
            store.abandon()


def _note(sign: str, namespace: str) -> None:
    book = os.environ.get(_GUESTS)
    if book is not None:
        with Path(book).open("a") as page:
            page.write(f"{sign}{namespace}\n")
