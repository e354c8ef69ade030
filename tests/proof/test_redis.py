"""Redis under fire: whoever is killed, the server too, the ledger finds every promise kept."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis
from tests.network.servers import HOST, UNSYNCED, Server, redis

from tarry.testing.proof import campaigns, kills
from tarry.testing.proof.tally import Tally

pytestmark = [pytest.mark.medium("redis"), pytest.mark.timeout(120)]

KILLS = int(os.environ.get("TARRY_KILLS", "50")) // 2
"""In one shard, and as many in four."""
SERVER_KILLS = int(os.environ.get("TARRY_SERVER_KILLS", "12"))
SEED = int(os.environ.get("TARRY_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
HISTORIES = 30
SHORT_MS = 120_000


@pytest.fixture(autouse=True)
def _ledgers_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis(tmp_path_factory.mktemp("redis"), *UNSYNCED) as server:
        yield server


@pytest.fixture
def operator(server: Server) -> Iterator[Redis]:
    """Give orders to the server itself, which begins empty."""
    with closing(Redis(host=HOST, port=server.port)) as operator:
        operator.flushall()
        yield operator


@pytest.fixture(params=["", "?shards=4"], ids=["one shard", "four shards"])
def url(server: Server, operator: Redis, request: pytest.FixtureRequest) -> str:
    del operator
    return f"redis://{HOST}:{server.port}{request.param}"


def idle(tally: Tally, *names: str) -> list[str]:
    """Return what never happened: a run in which nothing did proves nothing."""
    return [name for name in names if not tally.counts.get(name)]


def stays(operator: Redis) -> list[bytes]:
    """Return the keys that do not expire within minutes; what has just gone says -2."""
    kept = ((key, operator.pttl(key)) for key in operator.scan_iter(count=1_000))
    return [key for key, left in kept if left == -1 or left > SHORT_MS]


def test_whoever_is_killed_no_promise_breaks(url: str, operator: Redis) -> None:
    tally = kills.run(SEED, KILLS, url=url)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.counts["killed"] >= KILLS
    happened = ("created", "replaced", "moved", "cancelled", "started again", "settled")
    assert idle(tally, *happened, "unanswered") == []
    assert stays(operator) == []


def test_who_stalls_beyond_its_lease_is_fenced(server: Server, operator: Redis) -> None:
    tally = kills.stalls(SEED, 6, url=f"redis://{HOST}:{server.port}")

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert idle(tally, "started again", "settled") == []
    assert stays(operator) == []


def test_workers_that_take_at_most_once_are_caught(server: Server) -> None:
    tally = kills.run(SEED, 40, url=f"redis://{HOST}:{server.port}", careless=True)

    assert "lost" in {broken.rule for broken in tally.broken}, f"TARRY_SEED={SEED}"


def test_forgotten_scripts_and_cut_connections_break_nothing(url: str, operator: Redis) -> None:
    cut: list[int] = []

    def rage(_step: int) -> None:
        operator.script_flush()
        cut.append(int(operator.client_kill_filter(_type="normal", skipme=True)))
        cut.append(int(operator.client_kill_filter(_type="pubsub", skipme=True)))

    tally = kills.run(SEED, KILLS, url=url, rough=True, progress=rage)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert sum(cut) > KILLS
    assert idle(tally, "created", "moved", "cancelled", "settled") == []
    assert stays(operator) == []


def test_a_server_that_is_killed_forgets_nothing_it_acknowledged() -> None:
    tally = kills.server_kills(SEED, SERVER_KILLS)

    assert tally.broken == [], f"TARRY_SEED={SEED}"
    assert tally.tried == tally.counts["server killed"] == SERVER_KILLS
    assert idle(tally, "created", "replaced", "moved", "cancelled", "settled") == []


def test_a_server_that_writes_nothing_down_is_caught() -> None:
    tally = kills.server_kills(SEED, 4, keeps=False)

    assert "lost" in {broken.rule for broken in tally.broken}, f"TARRY_SEED={SEED}"


def test_a_store_on_a_server_agrees_with_the_model(url: str, operator: Redis) -> None:
    tally = campaigns.model(SEED, HISTORIES, url)

    assert tally.broken == []
    assert tally.tried == HISTORIES
    assert stays(operator) == []


def test_histories_in_virtual_time_on_a_server_keep_every_promise(
    url: str, operator: Redis
) -> None:
    tally = campaigns.simulation(SEED, 10, url)

    assert tally.broken == []
    assert idle(tally, "calls", "attempts") == []
    assert stays(operator) == []
