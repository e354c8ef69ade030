"""Workers and producers are killed and stalled at random: the ledger finds every promise kept."""

import os
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs
from tests.network.servers import until

from tarry.clock import nap
from tarry.errors import UnsupportedError
from tarry.testing.ledger import Answered, Asked, Book, Drained, Entry, Failed, Started
from tarry.testing.proof import kills
from tarry.testing.proof.nursery import Nursery, NurseryError
from tarry.testing.proof.roles import HELD_UP
from tarry.testing.proof.tally import Tally

KILLS = int(os.environ.get("TARRY_KILLS", "300"))
STALLS = int(os.environ.get("TARRY_STALLS", "10"))
SEED = int(os.environ.get("TARRY_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


@pytest.fixture(autouse=True)
def _ledgers_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tarry.db?sync=normal"


def idle(tally: Tally, *names: str) -> list[str]:
    """Return what never happened: a run in which nothing did proves nothing."""
    return [name for name in names if not tally.counts.get(name)]


def rows(tmp_path: Path) -> int:
    """Count what is left in the file, in whatever namespace."""
    with closing(sqlite3.connect(tmp_path / "tarry.db")) as db:
        [count] = db.execute(
            "SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM ended)"
        ).fetchone()
    return int(count)


@pytest.mark.timeout(60 + KILLS)
def test_whoever_is_killed_no_promise_breaks(url: str, tmp_path: Path) -> None:
    steps: list[int] = []

    tally = kills.run(SEED, KILLS, url=url, progress=steps.append)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.tried == sum(steps) == KILLS
    assert tally.counts["killed"] >= KILLS
    happened = ("created", "replaced", "moved", "cancelled", "running", "started again")
    assert idle(tally, *happened, "settled", "superseded", "unanswered", "left dead") == []
    # It leaves neither tasks nor a ledger behind.
    assert rows(tmp_path) == 0
    assert list(tmp_path.glob("tarry-kills-*")) == []


@pytest.mark.timeout(60 + 3 * STALLS)
def test_who_stalls_beyond_its_lease_is_fenced(url: str) -> None:
    tally = kills.stalls(SEED, STALLS, url=url)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.tried == tally.counts["stalled"] == STALLS
    # Each second start has a first one that was fenced: no revision was settled twice.
    assert idle(tally, "started again", "settled") == []


def test_workers_that_take_at_most_once_are_caught(url: str) -> None:
    tally = kills.run(SEED, 60, url=url, careless=True)

    lost = [broken for broken in tally.broken if broken.rule == "lost"]
    assert lost, f"TARRY_SEED={SEED}"
    # The ledger that shows it is kept, and named.
    path = lost[0].said.partition("(ledger: ")[2].removesuffix(")")
    with closing(Book(Path(path))) as book:
        entries = book.entries()
    assert any(isinstance(entry, Asked) for entry in entries)


def twice(by: str) -> list[Entry]:
    """Tell of a revision that two workers begin, the second with the first one's lease lost."""
    first = Started(
        ref="kind/key", revision=1, token=1, attempt=1, lost=0, due=1, now=1, by=by, op=1
    )
    return [
        Asked(op=1, verb="schedule", ref="kind/key", by="p"),
        Answered(op=1, status="created", revision=1, due=1),
        first,
        structs.replace(first, token=2, attempt=2, lost=1, by="w2"),
    ]


def accused(*entries: Entry) -> set[str]:
    return {each.rule for each in kills.broken([*entries, Drained()])}


def test_a_worker_that_was_held_up_is_not_accused_of_its_lease() -> None:
    told = twice("w1")

    assert "double start" in accused(*told)
    assert "double start" not in accused(*told, Failed(by="w1", how=HELD_UP))
    # Neither does another's excuse count, nor does it cover anything else.
    assert "double start" in accused(*told, Failed(by="p", how=HELD_UP))
    early = structs.replace(cast("Started", told[2]), now=0)
    assert "early" in accused(*told[:2], early, Failed(by="w1", how=HELD_UP))


def test_a_worker_enters_that_it_was_held_up(nursery: Nursery, tmp_path: Path) -> None:
    child = nursery.start("work", lease="300ms")

    def is_entered() -> bool:
        # Again, because it may not have begun its work yet.
        nursery.stall(child)
        nap(0.5)
        nursery.go_on(child)
        nap(0.1)
        return Failed(by=child.name, how=HELD_UP) in book.entries()

    with closing(Book(tmp_path / "ledger")) as book:
        until(is_entered, "it is entered")
    assert nursery.stop(child)


def test_a_store_of_one_process_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="shared between processes"):
        kills.run(1, 1, url="memory:")


# ---- the nursery


@pytest.fixture
def nursery(url: str, tmp_path: Path) -> Iterator[Nursery]:
    with closing(Nursery(url, "test", tmp_path / "ledger")) as nursery:
        yield nursery


def test_a_death_is_in_the_ledger_when_the_kill_returns(nursery: Nursery, tmp_path: Path) -> None:
    child = nursery.start("work", lease="1s")

    assert nursery.kill(child)

    with closing(Book(tmp_path / "ledger")) as book:
        assert book.entries()[-1] == Failed(by=child.name, how="killed")


def test_a_process_that_fails_by_itself_does_not_pass_for_killed(nursery: Nursery) -> None:
    child = nursery.start("work", lease="no duration")

    assert nursery.wait(child) == 1


def test_a_nursery_that_cannot_open_its_store_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/tarry.db"

    with (
        closing(Nursery(url, "test", tmp_path / "ledger")) as nursery,
        pytest.raises(NurseryError),
    ):
        nursery.start("work")

    assert "no folder" in capfd.readouterr().err
