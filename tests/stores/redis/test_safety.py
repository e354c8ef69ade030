"""What must not be used is refused clearly; what is full goes on; secrets stay secret."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.network.servers import HOST, Server, needed, redis, reserved, until
from tests.network.world import KIND
from tests.stores.redis.conftest import MakeStore, new_namespace
from tests.stores.redis.ensembles import Cluster, Watched, info, say

from tarry.answers import CancelResult, SettleResult
from tarry.attempt import DONE
from tarry.cli.main import cli
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import (
    SchemaVersionError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tarry.request import Cancellation, Request, Settlement
from tarry.stores.connect import connect
from tarry.stores.redis.server import _version
from tarry.task import TaskRef
from tarry.testing.conformance.kit import cancel, claim, get, schedule

pytestmark = pytest.mark.medium("redis")

CONNECT_S = 2.0
"""The connect time-out, when none is named."""
SECRET = "s3cret-word"


def refused(url: str, seconds: float = CONNECT_S + 3) -> StoreError:
    """Return the error that opening *url* raises, in time."""
    began = SYSTEM.elapsed()
    with pytest.raises(StoreError) as caught:
        connect(url, namespace=new_namespace()).close()
    assert (SYSTEM.elapsed() - began) / 1e9 < seconds
    told = CliRunner().invoke(cli, ["stats", "--store", url])
    assert told.exit_code == 5, told.output
    assert "Traceback" not in told.output
    assert SECRET not in told.output + str(caught.value) + repr(caught.value)
    return caught.value


# ---- out of memory


@pytest.fixture
def full(server: Server, make_store: MakeStore) -> Iterator[None]:
    """Let the server have no room; what was there before stays."""
    store = make_store()
    store.schedule([Request(TaskRef(KIND, str(n)), In(0)) for n in range(10)])
    store.schedule([Request(TaskRef("later", str(n)), In(60_000)) for n in range(10)])
    say(server.port, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    say(server.port, "CONFIG", "SET", "maxmemory", "1")
    yield
    say(server.port, "CONFIG", "SET", "maxmemory", "0")


@pytest.mark.usefixtures("full")
def test_a_full_server_refuses_new_tasks_and_writes_nothing(make_store: MakeStore) -> None:
    store = make_store()
    new, old = TaskRef(KIND, "new"), TaskRef("later", "1")
    before = get(store, old)

    for ref in (new, old):
        with pytest.raises(StoreFullError, match="nothing was done"):
            store.schedule([Request(ref, In(0), b"payload")], call="1")

    assert get(store, new) is None
    assert get(store, old) == before
    assert store.check() == []


@pytest.mark.usefixtures("full")
def test_a_full_server_lets_work_go_on(make_store: MakeStore) -> None:
    store = make_store()

    claimed = store.claim([KIND], limit=5, lease_ms=10_000, holder="w", call=1)
    again = store.claim([KIND], limit=5, lease_ms=10_000, holder="w", call=1)
    done = [Settlement(lease, DONE) for lease in claimed.leases]

    assert [each.token for each in again.leases] == [each.token for each in claimed.leases]
    assert len(claimed.leases) == 5
    assert [bool(each) for each in store.renew(claimed.leases, lease_ms=10_000)] == [True] * 5
    for _ in range(2):
        assert store.settle(done, call="2") == [SettleResult.SETTLED] * 5
        assert store.cancel([Cancellation(TaskRef("later", "1"))], call="3") == [
            CancelResult.CANCELLED
        ]
    assert store.check() == []


# ---- who answers


def test_a_replica_is_refused(server: Server, tmp_path: Path) -> None:
    with redis(tmp_path, "--replicaof", f"{HOST} {server.port}") as replica:
        until(lambda: info(replica.port).get("master_link_status") == "up", "it follows")

        error = refused(f"redis://{HOST}:{replica.port}")

    assert isinstance(error, StoreRefusedError)
    assert "read-only replica" in str(error)


def test_a_server_that_becomes_a_replica_refuses_and_nothing_is_written(
    tmp_path: Path, open_store: MakeStore
) -> None:
    with redis(tmp_path) as server:
        store = open_store(f"redis://{HOST}:{server.port}")
        say(server.port, "REPLICAOF", HOST, 1)

        with pytest.raises(StoreRefusedError, match="read-only replica"):
            schedule(store)


def test_a_sentinel_is_no_store(watched: Watched) -> None:
    error = refused(f"redis://{HOST}:{watched.sentinels[0].port}")

    assert "is a sentinel" in str(error)


def test_a_node_of_a_cluster_is_no_single_server(cluster: Cluster) -> None:
    error = refused(f"redis://{HOST}:{cluster.servers[0].port}")

    assert "redis+cluster://" in str(error)


def test_a_single_server_is_no_cluster_and_no_sentinel(server: Server) -> None:
    assert isinstance(refused(f"redis+cluster://{HOST}:{server.port}"), StoreRefusedError)
    assert isinstance(refused(f"redis+sentinel://{HOST}:{server.port}/shop"), StoreRefusedError)


def test_nobody_listens() -> None:
    with closing(reserved()) as place:
        error = refused(f"redis://{HOST}:{place.getsockname()[1]}")

    assert isinstance(error, StoreUnavailableError)


@pytest.mark.parametrize("options", ["", f"user:{SECRET}@"])
def test_somebody_accepts_and_never_answers(options: str) -> None:
    with closing(reserved()) as place:
        place.listen()
        error = refused(f"redis://{options}{HOST}:{place.getsockname()[1]}")

    assert isinstance(error, StoreUnavailableError)


class Web(BaseHTTPRequestHandler):
    """A web server."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


def test_a_web_server_is_no_redis() -> None:
    with HTTPServer((HOST, 0), Web) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        try:
            error = refused(f"redis://{HOST}:{web.server_port}")
        finally:
            web.shutdown()
            thread.join(20)

    assert "is no Redis" in str(error)


# ---- who may


@pytest.fixture
def guarded(server: Server) -> Iterator[Server]:
    """A server with users who may all, nothing, and too little."""
    for words in (
        ("all", "on", f">{SECRET}", "~*", "&*", "+@all"),
        ("nothing", "on", f">{SECRET}"),
        ("mute", "on", f">{SECRET}", "~*", "resetchannels", "+@all"),
        ("half", "on", f">{SECRET}", "~*", "&*", "+@all", "-zadd"),
        ("elsewhere", "on", f">{SECRET}", "~other:*", "&*", "+@all"),
    ):
        say(server.port, "ACL", "SETUSER", *words)
    yield server
    say(server.port, "ACL", "DELUSER", "all", "nothing", "mute", "half", "elsewhere")


def test_a_user_who_may_everything_is_served(guarded: Server, open_store: MakeStore) -> None:
    store = open_store(f"redis://all:{SECRET}@{HOST}:{guarded.port}")

    assert schedule(store).revision > 0
    assert SECRET not in repr(store) + repr(vars(store))


@pytest.mark.parametrize("user", ["nothing", "mute", "half", "elsewhere"])
def test_a_user_who_may_too_little_is_refused_before_anything_is_written(
    guarded: Server, user: str
) -> None:
    before = say(guarded.port, "DBSIZE")

    error = refused(f"redis://{user}:{SECRET}@{HOST}:{guarded.port}")

    assert isinstance(error, StoreRefusedError)
    assert "nothing was written" in str(error)
    assert say(guarded.port, "DBSIZE") == before


@pytest.mark.parametrize("credentials", [f"all:{SECRET}x", f":{SECRET}", f"nobody:{SECRET}"])
def test_a_wrong_password_is_refused_and_not_told(guarded: Server, credentials: str) -> None:
    error = refused(f"redis://{credentials}@{HOST}:{guarded.port}")

    assert isinstance(error, StoreRefusedError)


def test_a_missing_password_is_refused(tmp_path: Path) -> None:
    with redis(tmp_path, "--requirepass", SECRET) as server:
        error = refused(f"redis://{HOST}:{server.port}")
        doctor = CliRunner().invoke(
            cli, ["doctor", "--store", f"redis://:{SECRET}@{HOST}:{server.port}"]
        )

    assert isinstance(error, StoreRefusedError)
    assert doctor.exit_code == 0, doctor.output
    assert SECRET not in doctor.output


def test_a_password_with_slashes_is_not_told() -> None:
    told = CliRunner().invoke(cli, ["stats", "--store", f"redis://u:a/{SECRET}@{HOST}:1"])

    assert told.exit_code != 0
    assert SECRET not in told.output


# ---- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=shop"
    names = ["-addext", f"subjectAltName=IP:{HOST}"]
    subprocess.run(
        [needed("openssl"), *words.split(), *names], cwd=folder, check=True, capture_output=True
    )
    return folder


@pytest.fixture
def sealed(certificates: Path, tmp_path: Path) -> Iterator[str]:
    """A server that speaks TLS; yields its address."""
    files = {
        name: str(certificates / file)
        for name, file in (
            ("cert-file", "cert.pem"),
            ("key-file", "key.pem"),
            ("ca-cert-file", "cert.pem"),
        )
    }
    options = [word for name, file in files.items() for word in (f"--tls-{name}", file)]
    with closing(reserved()) as place:
        port = place.getsockname()[1]
        extra = ["--tls-port", str(port), "--tls-auth-clients", "no"]
        with redis(tmp_path, *options, *extra):
            yield f"{HOST}:{port}"


def test_tls_works_with_the_right_authority(
    sealed: str, certificates: Path, open_store: MakeStore
) -> None:
    store = open_store(f"rediss://{sealed}?ssl_ca_certs={certificates / 'cert.pem'}")

    schedule(store)

    assert len(claim(store)) == 1


def test_tls_without_the_right_authority_fails_clearly(sealed: str) -> None:
    error = refused(f"rediss://{sealed}")

    assert isinstance(error, StoreRefusedError)
    assert "ssl_ca_certs" in str(error)


def test_tls_and_plain_do_not_mix(sealed: str, server: Server) -> None:
    refused(f"redis://{sealed}")
    refused(f"rediss://{HOST}:{server.port}")


# ---- layout and namespaces


def test_a_newer_layout_is_refused(server: Server, make_store: MakeStore) -> None:
    make_store()
    say(server.port, "HSET", "{test:0}:meta", "layout", 99)

    with pytest.raises(SchemaVersionError, match="newer tarry"):
        make_store()


def test_another_number_of_shards_is_refused(make_store: MakeStore) -> None:
    make_store("?shards=4")

    with pytest.raises(StoreRefusedError, match="has 4 shards"):
        make_store("?shards=8")
    assert make_store().capabilities.shards == 4


def test_namespaces_do_not_see_each_other(make_store: MakeStore) -> None:
    one, other = make_store(namespace="one"), make_store(namespace="other")
    schedule(one)

    assert cancel(other) is CancelResult.ABSENT
    assert claim(other) == []
    assert len(claim(one)) == 1


# ---- the doctor


def test_the_doctor_names_a_policy_that_throws_tasks_away(
    server: Server, make_store: MakeStore
) -> None:
    store = make_store()
    assert store.check() == []
    say(server.port, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        [finding] = store.check()
    finally:
        say(server.port, "CONFIG", "SET", "maxmemory-policy", "noeviction")

    assert "allkeys-lru" in finding


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--appendonly", "no"], "keeps no files"),
        (["--appendonly", "no", "--save", "60 1"], "snapshots only"),
    ],
)
def test_the_doctor_names_what_a_crash_loses(
    tmp_path: Path, open_store: MakeStore, options: list[str], said: str
) -> None:
    with redis(tmp_path, *options) as server:
        store = open_store(f"redis://{HOST}:{server.port}")
        [finding] = store.check()

    assert said in finding


def test_the_doctor_names_a_server_that_was_emptied(server: Server, make_store: MakeStore) -> None:
    store = make_store()
    say(server.port, "FLUSHALL")

    assert "was emptied" in store.check()[0]


def test_the_doctor_names_a_clock_that_goes_wrong(server: Server) -> None:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("libfaketime is not installed")
        pytest.skip("libfaketime is not installed")
    # The server's allocator does not bear it: so the doctor's clock is the one that is behind.
    wrong = {"LD_PRELOAD": str(found[0]), "FAKETIME": "-90s", "DONT_FAKE_MONOTONIC": "1"}
    url = f"redis://{HOST}:{server.port}"

    told = subprocess.run(
        [sys.executable, "-m", "tarry", "doctor", "--store", url],
        env={**os.environ, **wrong},
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )

    assert told.returncode == 6, told.stderr
    assert re.search(r"(89|90)\.\d s ahead of this machine's", told.stdout + told.stderr)


def test_versions_are_compared_by_number() -> None:
    assert _version({"redis_version": "6.0.16"}) < (6, 2) <= _version({"redis_version": "6.2.0"})
    assert _version({"redis_version": "10.1.0"}) > (7, 0)
    assert _version({"redis_version": "unstable"}) == (0,)
    assert _version({}) == (0,)
