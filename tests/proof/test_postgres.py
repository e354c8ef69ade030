"""PostgreSQL under fire: whoever is killed, the server too, the ledger finds every promise kept."""

import os
import random
import tempfile
from pathlib import Path

import psycopg
import pytest
from tests.network.servers import needs_postgres, shared_postgres

from tarry.testing.proof import kills
from tarry.testing.proof.tally import Tally

pytestmark = [pytest.mark.medium("postgres"), pytest.mark.timeout(180)]

KILLS = int(os.environ.get("TARRY_KILLS", "50")) // 4
SERVER_KILLS = int(os.environ.get("TARRY_SERVER_KILLS", "12")) // 3
SEED = int(os.environ.get("TARRY_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE application_name = 'tarry' AND datname = 'postgres'"
)


@pytest.fixture(autouse=True)
def _ledgers_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def idle(tally: Tally, *names: str) -> list[str]:
    """Return what never happened: a run in which nothing did proves nothing."""
    return [name for name in names if not tally.counts.get(name)]


def test_whoever_is_killed_no_promise_breaks() -> None:
    tally = kills.run(SEED, KILLS, url=shared_postgres().url)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.counts["killed"] >= KILLS
    assert idle(tally, "created", "moved", "cancelled", "settled") == []


def test_cut_connections_break_nothing() -> None:
    cut: list[int] = []
    url = shared_postgres().url

    def rage(_step: int) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            [[number]] = db.execute(CUT).fetchall()
            cut.append(number)

    tally = kills.run(SEED, KILLS, url=url, rough=True, progress=rage)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert sum(cut) > 0
    assert idle(tally, "created", "cancelled", "settled") == []


def test_a_server_that_is_killed_forgets_nothing_it_acknowledged() -> None:
    needs_postgres()
    tempfile.tempdir = None  # the server's user may not enter the folders of a test
    tally = kills.server_kills(SEED, SERVER_KILLS, medium="postgresql")

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.tried == tally.counts["server killed"] == SERVER_KILLS
    assert idle(tally, "created", "settled") == []
