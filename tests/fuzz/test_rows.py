"""Whatever bytes lie in the file as payload and headers, only their own task suffers."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.worker.kit import Ears

from tarry import Backoff, Context, Tarry
from tarry.cli.main import cli
from tarry.due import In
from tarry.events import AttemptEnded
from tarry.request import Request
from tarry.stores.store import Filter
from tarry.task import TaskRef, TaskState

Hostile = tuple[bytes, bytes]

BYTES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            *(b"", b"{}", b"{", b"null", b'{"n":1}', b'{"n":"1"}', b'{"n":1,"m":2}', b'{"n":NaN}'),
            *(b"\xff", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":1}', b'{"a":"b"}', b"\x00"),
            *(b'{"n":' + b"[" * 500, b"\x80\x04K\x07.", b"\x1b[2J"),
        ]
    ),
)
ROWS = st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=20)
# Every example starts a worker: a failing one is shrunk by hand.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
REPORTS = [
    ("list",),
    ("list", "--json"),
    ("dead", "list"),
    ("dead", "list", "--json"),
    ("stats",),
    ("doctor",),
]


@contextmanager
def opened() -> Iterator[tuple[Tarry, Path]]:
    """Lend an app with a handler of either colour, on a file of its own."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "tarry.db")
        with Tarry(f"sqlite:///{path}?sync=normal") as app:

            @app.task("loop", key="{n}", retry=Backoff.fixed(0, times=0))
            async def on_loop(ctx: Context, n: int = 0) -> None: ...

            @app.task("thread", key="{n}", retry=Backoff.fixed(0, times=0))
            def on_thread(n: int = 0) -> None: ...

            yield app, path


def place(app: Tarry, rows: Sequence[Hostile]) -> list[TaskRef]:
    refs = [TaskRef("loop" if n % 2 else "thread", str(n)) for n in range(len(rows))]
    app.store.schedule(
        [Request(ref, In(0), *row) for ref, row in zip(refs, rows, strict=True)],
    )
    return refs


def look(app: Tarry, refs: Sequence[TaskRef], path: Path) -> None:
    """Do all that looks at records without running them."""
    assert app.store.check() == []
    assert None not in app.store.get(refs)
    found = [app.store.scan(Filter(state)).tasks for state in (None, TaskState.DEAD)]
    assert sum(map(len, found)) == len(refs)
    url = f"sqlite:///{path}"
    shows = [("show", ref.kind, ref.key) for ref in refs[:3]]
    for words in [*REPORTS, *shows, *((*words, "--json") for words in shows)]:
        done = CliRunner().invoke(cli, [*words, "--store", url], prog_name="tarry")
        assert done.exception is None or isinstance(done.exception, SystemExit), words


def work(app: Tarry, ears: Ears, count: int) -> list[AttemptEnded]:
    """Let a worker attempt *count* tasks."""
    with app.worker():
        return ears.ended(count)


@given(ROWS)
@settings(max_examples=15, deadline=None, phases=PHASES)
def test_a_hostile_record_ends_done_or_dead_and_can_be_looked_at(rows: list[Hostile]) -> None:
    with opened() as (app, path):
        ears = Ears(app)
        refs = place(app, rows)
        look(app, refs, path)

        ended = work(app, ears, len(rows))

        assert {event.outcome for event in ended} <= {"done", "dead"}
        counts = app.store.counts().values()
        assert sum(found.scheduled + found.leased for found in counts) == 0
        dead = [event.ref for event in ended if event.outcome == "dead"]
        look(app, dead, path)
        assert app.schedule("loop", "now", key="after", payload={"n": 1})
        assert work(app, ears, len(rows) + 1)[-1].outcome == "done"


@given(ROWS)
@settings(max_examples=10, deadline=None, phases=PHASES)
def test_bytes_that_somebody_wrote_past_tarry_do_no_more_harm(rows: list[Hostile]) -> None:
    with opened() as (app, path):
        ears = Ears(app)
        refs = place(app, [(b"{}", b"")] * len(rows))
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.executemany(
                "UPDATE task SET payload = ?, headers = ? WHERE key = ?",
                [(*row, ref.key) for row, ref in zip(rows, refs, strict=True)],
            )
        look(app, refs, path)

        ended = work(app, ears, len(rows))

        assert {event.outcome for event in ended} <= {"done", "dead"}
        assert sorted(event.ref for event in ended) == sorted(refs)


def test_a_payload_of_brackets_can_be_looked_at() -> None:
    with opened() as (app, path):
        look(app, place(app, [(b"[" * 100_000, b"")]), path)


def test_a_payload_mended_in_a_shell_can_be_shown() -> None:
    with opened() as (app, path):
        refs = place(app, [(b"{", b"")])
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("""UPDATE task SET payload = '{"n":1}', headers = '{"a":"b"}'""")

        look(app, refs, path)
        [mended] = app.store.get(refs)
        assert mended is not None
        assert (mended.payload, mended.headers) == (b'{"n":1}', b'{"a":"b"}')


@pytest.mark.parametrize("words", [("list", "--json"), ("show", "thread", "0", "--json")])
@pytest.mark.parametrize(("headers", "text"), [(b'{"a":1}', '{"a":1}'), (b"\xff\x1b", "\\xff\x1b")])
def test_headers_that_cannot_be_read_are_shown_as_they_are(
    words: tuple[str, ...], headers: bytes, text: str
) -> None:
    with opened() as (app, path):
        place(app, [(b"{}", headers)])

        done = CliRunner().invoke(cli, [*words, "--store", f"sqlite:///{path}"])

        assert done.exit_code == 0
        assert json.loads(done.stdout)["headers"] == text


@pytest.mark.parametrize("rule", ["nonsense", '{"cron":"0 3 * * *","tz":"Mars/Olympus"}'])
def test_a_rule_that_cannot_be_read_makes_a_dead_letter(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.worker.kit.LIMIT", 2)
    with opened() as (app, _):
        ears = Ears(app)
        ref = TaskRef("loop", "1")
        app.store.schedule([Request(ref, In(0), rule=rule, nominal=1)])

        [ended] = work(app, ears, 1)

        assert ended.outcome == "dead"
        assert app.store.counts()["loop"].dead == 1
