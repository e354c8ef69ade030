"""`tarry import`: tasks from lines of JSON, or from the rows of a table of yours."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from tarry import config
from tarry.app import Tarry
from tarry.cli import ndjson
from tarry.cli.exits import FAILED, USAGE, fail, talk
from tarry.cli.from_sql import Wanted, import_rows
from tarry.cli.ndjson import LineError, Mark
from tarry.cli.options import json_option, namespace_option, opened, store_option
from tarry.cli.output import clean, progress, put
from tarry.stores.connect import file_of
from tarry.stores.shown import shown_url
from tarry.task import Task, TaskState

PAGE = 500
_SHOWN = 20


class Place(msgspec.Struct):
    """How far an import has come; lies beside the file as FILE.progress until it is done."""

    store: str
    namespace: str
    offset: int = 0
    line: int = 0
    counts: dict[str, int] = {}


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option("--sql", metavar="SELECT", help="Schedule a task for each row of this query.")
@click.option(
    "--from", "source", metavar="URL", help="Where --sql runs: sqlite:, postgresql:, mysql:"
)
@click.option("--kind", metavar="KIND", help="With --sql: the kind of the tasks.")
@click.option("--key", metavar="COLUMN", help="With --sql: a column, or a template: order:{id}")
@click.option(
    "--due", metavar="COLUMN", help="With --sql: the column with the time; else the second."
)
@click.option(
    "--args",
    "arguments",
    metavar="LIST",
    help="With --sql: arguments from columns: order_id=id,why",
)
@click.option(
    "--page-by", metavar="COLUMN", help="With --sql: a unique column to go by; else the first."
)
@click.option(
    "--after", metavar="VALUE", help="With --sql: only rows whose --page-by is above this."
)
@click.option("--tz", metavar="ZONE", help="With --sql: the zone of times that have none.")
@click.option(
    "--on-conflict",
    type=click.Choice(["keep", "replace"]),
    default="keep",
    show_default=True,
    help="What becomes of a task that waits under the same kind and key.",
)
@click.option("--dry-run", is_flag=True, help="Read and check everything, change nothing.")
@click.option("--restart", is_flag=True, help="Begin anew, although an import was interrupted.")
@json_option
@store_option
@namespace_option
def import_(
    file: str | None,
    sql: str | None,
    source: str | None,
    kind: str | None,
    key: str | None,
    due: str | None,
    arguments: str | None,
    page_by: str | None,
    after: str | None,
    tz: str | None,
    on_conflict: str,
    dry_run: bool,
    restart: bool,
    as_json: bool,
    store: str | None,
    namespace: str | None,
) -> None:
    """Schedule the tasks of FILE (- for stdin), or one for each row of a query.

    FILE has lines of `tarry export`, or of your own: kind, key and due are enough. A task that
    waits already stays as it is, so that the same import can be repeated. A line that cannot be
    read is named and left out. An interrupted import goes on where it was.

    With --sql the rows of a table of yours become tasks, page by page: that is how a table that
    was polled is left behind. Try it with --dry-run first.

    \b
    tarry import tasks.ndjson
    tarry import - --store redis://localhost/0 < tasks.ndjson
    echo '{"kind": "report", "key": "7", "due": "2030-01-01T00:00:00Z"}' | tarry import -
    tarry import --from postgresql://localhost/shop --kind order.cancel --key 'order:{id}' \\
      --args order_id=id --sql "select id, created + interval '30 minutes' from orders where unpaid"
    """
    settings = config.load({"store": store, "namespace": namespace})
    if file is not None and not any((sql, source, kind, key)):
        with _target(settings, dry=dry_run) as app:
            lines = _Lines(app, replace=on_conflict == "replace", dry=dry_run)
            done = lines.run(file, restart=restart)
    elif file is None and sql and source and kind and key:
        wanted = Wanted(sql, kind, key, due, arguments or "", page_by, after, tz, on_conflict)
        with _target(settings, dry=dry_run) as app:
            done = import_rows(app, source, wanted, dry=dry_run)
    else:
        fail("say what: FILE, or --sql, --from, --kind and --key; nothing was changed", USAGE)
    word = "checked" if dry_run else "imported"
    if as_json:
        put({"status": word, **done})
    else:
        parts = [f"{name.replace('_', ' ')} {count:,}" for name, count in done.items()]
        click.echo(f"{word}: {', '.join(parts) or 'nothing'}")
    if done.get("malformed") or done.get("left_out"):
        raise click.exceptions.Exit(FAILED)


def _target(settings: config.Settings, *, dry: bool) -> AbstractContextManager[Tarry]:
    """Open the store; a dry run makes none, and needs none to check what it reads."""
    file = file_of(settings.store)
    if dry and file is not None and not Path(file).exists():
        return Tarry("memory:", namespace=settings.namespace)
    return opened(settings, create=True)


class _Lines:
    """Reads lines, and places their tasks page by page."""

    def __init__(self, app: Tarry, *, replace: bool, dry: bool) -> None:
        self._app = app
        self._replace = replace
        self._dry = dry
        self._done: Counter[str] = Counter()
        self._number = 0
        self._offset = 0
        self._finished: bool | None = None
        self._note: Path | None = None

    def run(self, file: str, *, restart: bool) -> dict[str, int]:
        """Import *file*; returns what became of its tasks."""
        try:
            if file == "-":
                self._read(sys.stdin.buffer, 1)
            else:
                with Path(file).open("rb") as lines:
                    self._begin(Path(file), lines, restart=restart)
                    self._read(lines, Path(file).stat().st_size)
        except KeyboardInterrupt:
            message = f"read {self._number:,} lines; run it again to go on"
            raise KeyboardInterrupt(message) from None
        if self._finished is False:
            talk("the export was not finished: it has no last line; see tarry export --resume")
        if self._note is not None:
            self._note.unlink(missing_ok=True)
        return dict(self._done)

    def _begin(self, file: Path, lines: BinaryIO, *, restart: bool) -> None:
        """Go to where an interrupted import of the same file to the same store was."""
        if self._dry:
            return
        self._note = file.with_name(f"{file.name}.progress")
        if restart:
            self._note.unlink(missing_ok=True)
        with suppress(FileNotFoundError, msgspec.MsgspecError):
            place = msgspec.json.decode(self._note.read_bytes(), type=Place)
            if (place.store, place.namespace) == self._where:
                talk(f"going on behind line {place.line:,}; --restart begins anew")
                lines.seek(place.offset)
                self._number, self._offset = place.line, place.offset
                self._done.update(place.counts)

    @property
    def _where(self) -> tuple[str, str]:
        return shown_url(self._app.url), self._app.namespace

    def _read(self, lines: BinaryIO, size: int) -> None:
        with progress(size, "import") as step:
            step(self._offset)
            for tasks, length in self._pages(lines):
                self._place(tasks)
                self._offset += length
                self._keep()
                step(length)

    def _pages(self, lines: BinaryIO) -> Iterator[tuple[list[Task], int]]:
        tasks: list[Task] = []
        length = count = 0
        now = self._app.clock.now()
        for line in lines:
            self._number += 1
            length += len(line)
            count += 1
            task = self._task(line, now)
            if task is not None:
                tasks.append(task)
            if count == PAGE:
                yield tasks, length
                tasks, length, count = [], 0, 0
        if count:
            yield tasks, length

    def _task(self, line: bytes, now: int) -> Task | None:
        if not line.strip():
            return None
        try:
            found = ndjson.read(line, now)
        except LineError as error:
            self._done["malformed"] += 1
            if self._done["malformed"] <= _SHOWN:
                talk(f"line {self._number}: {clean(str(error))}")
            return None
        if isinstance(found, Mark):
            self._finished = found.tarry == "end"
            return None
        if found.state is TaskState.DEAD and not self._app.store.capabilities.takes_over:
            self._done["left_out"] += 1
            if self._done["left_out"] == 1:
                medium = self._app.store.capabilities.medium
                talk(f"line {self._number}: a {medium} store takes no dead letters: left out")
            return None
        return found

    def _place(self, tasks: list[Task]) -> None:
        if self._dry:
            self._done["tasks"] += len(tasks)
            return
        placed = self._app.client.take_over(tasks, replace=self._replace) if tasks else []
        for task, new in zip(tasks, placed, strict=True):
            word = "dead_letters" if task.state is TaskState.DEAD else "tasks"
            self._done[word if new else "there_already"] += 1

    def _keep(self) -> None:
        """Note how far it has come; a page that is read again changes nothing that waits."""
        if self._note is None:
            return
        store, namespace = self._where
        place = Place(store, namespace, self._offset, self._number, dict(self._done))
        new = self._note.with_name(f"{self._note.name}.new")
        new.write_bytes(msgspec.json.encode(place))
        new.replace(self._note)
