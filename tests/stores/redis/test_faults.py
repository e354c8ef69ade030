"""Connections are cut, black-holed and frozen, servers killed: workers and listeners go on."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.network.servers import HOST, Server, redis, until
from tests.network.world import KIND
from tests.stores.redis.conftest import MakeStore, new_namespace, plain
from tests.stores.redis.ensembles import say
from tests.stores.redis.trial import Trial

from tarry import Context, Tarry
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.conformance.kit import Ear, claim, get, move, schedule
from tarry.testing.proxy import Fault, Phase, Proxy

pytestmark = [
    pytest.mark.medium("redis"),
    pytest.mark.timeout(120),
    # Forks beside threads are what is tested here.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

LATE_MS = 2_000
"""Nothing is later than this once the server is back."""
SLACK_MS = 1_500
"""What a busy machine adds."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


class Shop:
    """An app with a worker that notes when each attempt began."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.app = Tarry(f"redis://{address[0]}:{address[1]}", namespace=new_namespace())
        self.started: dict[str, int] = {}

        @self.app.task(KIND)
        def handler(ctx: Context) -> None:
            self.started[ctx.ref.key] = SYSTEM.elapsed()

    def runs(self, key: str, since: int | None = None) -> None:
        """Schedule a task, and see it begin not later than promised."""
        began = SYSTEM.elapsed() if since is None else since
        self.app.schedule(KIND, "now", key=key)
        until(lambda: key in self.started, f"{key} is started")
        assert (self.started[key] - began) / 1e6 < LATE_MS + SLACK_MS

    def close(self) -> None:
        self.app.close()


def test_a_worker_goes_on_when_all_its_connections_are_killed(server: Server) -> None:
    with closing(Shop((HOST, server.port))) as shop, shop.app.worker():
        shop.runs("before")
        for number in range(5):
            for kind in ("normal", "pubsub"):
                say(server.port, "CLIENT", "KILL", "TYPE", kind)
            shop.runs(str(number))


def test_scripts_that_the_server_forgets_are_sent_again(server: Server) -> None:
    with (
        closing(Trial(f"redis://{HOST}:{server.port}")) as trial,
        closing(plain(server)) as anybody,
    ):
        with trial.running():
            for _ in range(10):
                trial.goes_on(5)
                anybody.script_flush()

        assert trial.judge() == []


def test_a_listener_on_a_dead_line_is_replaced(server: Server) -> None:
    with Proxy(HOST, server.port) as proxy:
        url = f"redis://{HOST}:{proxy.port}"
        with closing(connect(url, namespace=new_namespace())) as store:
            ear = Ear(store)
            # From its next sign of life on, nothing comes through any more.
            proxy.arm(Phase.BLACK_HOLE, only=lambda request: b"PING" in request)
            proxy.wait_for_hits()

            until(lambda: ear.heard(1)[-1] == 0, "it listens again")

            answer = schedule(store)
            assert ear.heard(2)[-1] == answer.due


def test_nothing_is_late_once_a_black_hole_has_gone(server: Server) -> None:
    with (
        Proxy(HOST, server.port) as proxy,
        closing(Shop(proxy.address)) as shop,
        shop.app.worker(),
    ):
        shop.runs("before")
        proxy.follow(lambda _request: Fault(Phase.BLACK_HOLE))
        proxy.wait_for_hits(2)

        proxy.heal()
        shop.runs("after")


def test_nothing_is_late_once_a_frozen_server_goes_on(tmp_path: Path) -> None:
    with (
        redis(tmp_path) as server,
        closing(Shop((HOST, server.port))) as shop,
        shop.app.worker(),
    ):
        shop.runs("before")
        server.stop()
        caller = threading.Thread(target=lambda: shop.app.schedule(KIND, "now", key="during"))
        caller.start()
        # Longer than a listener, and than a call, waits.
        caller.join(6)
        assert "during" not in shop.started

        server.go_on()
        back = SYSTEM.elapsed()
        shop.runs("after", back)
        until(lambda: "during" in shop.started, "what was asked meanwhile is started")
        assert (shop.started["during"] - back) / 1e6 < LATE_MS + SLACK_MS
        caller.join(20)


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    with redis(tmp_path) as server, closing(Trial(f"redis://{HOST}:{server.port}")) as trial:
        with trial.running():
            for _ in range(3):
                trial.goes_on(20)
                server.kill()
                trial.crashed("the server was killed")
                server.start()
            trial.goes_on(20)

        assert trial.judge() == []
        assert trial.store.check() == []


# ---- what tutorials do wrong

WORKER = """
import os, signal, sys
from tarry.stores.connect import connect
store = connect(sys.argv[1], namespace=sys.argv[2])
[lease] = store.claim([sys.argv[3]], limit=1, lease_ms=500, holder="w").leases
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_right_after_its_claim_loses_nothing(
    server: Server, make_store: MakeStore
) -> None:
    store = make_store()
    ref = TaskRef(KIND, "42")
    schedule(store, ref)
    url = f"redis://{HOST}:{server.port}"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, url, "test", KIND], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL

    found: list[tuple[TaskRef, int, int]] = []

    def claimed() -> bool:
        found.extend((each.ref, each.task.attempt, each.task.lost) for each in claim(store))
        return bool(found)

    until(claimed, "its lease ends")
    assert found == [(ref, 2, 1)]


def test_a_move_leaves_one_entry(server: Server, make_store: MakeStore) -> None:
    store = make_store()
    ref = TaskRef(KIND, "42")
    schedule(store, ref, In(60_000), payload=b"1")

    for delay in (50_000, 40_000):
        move(store, In(delay), ref)
    schedule(store, ref, In(30_000), payload=b"another")

    with closing(plain(server)) as anybody:
        assert anybody.zcard(f"{{test:0}}:d:{KIND}") == 1
        assert anybody.hlen(f"{{test:0}}:b:{KIND}") == 1


# ---- processes and threads


def test_a_forked_child_has_connections_and_a_listener_of_its_own(
    server: Server, make_store: MakeStore
) -> None:
    store = make_store()
    ear = Ear(store)
    schedule(store, TaskRef(KIND, "parent"), In(60_000))
    said, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own = Ear(store)
            answers = [schedule(store, TaskRef(f"child.{n}", "1")) for n in range(50)]
            heard = set(own.heard(50))
            store.close()
            os.write(write, b"fine" if {each.due for each in answers} <= heard else b"deaf")
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    for number in range(50):
        schedule(store, TaskRef(KIND, str(number)), In(60_000))
    os.waitpid(pid, 0)

    with os.fdopen(said) as words:
        assert words.read() == "fine"
    assert len(ear.heard(50)) >= 50
    assert store.counts([KIND])[KIND].scheduled == 51
    assert store.check() == []


def test_threads_may_share_a_store(make_store: MakeStore) -> None:
    store = make_store()
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(100):
                ref = TaskRef(name, str(number))
                assert schedule(store, ref, In(60_000)).ref == ref
                task = get(store, ref)
                assert task is not None
                assert task.ref == ref
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"kind.{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failed == []


@pytest.fixture
def idle(server: Server) -> Iterator[set[str]]:
    """Tell what is open before and after."""
    del server

    def sockets() -> set[str]:
        found = set()
        for entry in Path("/proc/self/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if target.startswith("socket:"):
                found.add(target)
        return found

    before = sockets()
    yield before
    assert sockets() <= before


def test_close_leaves_no_thread_and_no_socket(server: Server, idle: set[str]) -> None:
    del idle
    before = threading.active_count()
    store: Store = connect(f"redis://{HOST}:{server.port}", namespace=new_namespace())
    ear = Ear(store)
    schedule(store)
    ear.heard(1)

    store.close()

    assert threading.active_count() == before


def test_close_while_the_server_is_away_leaves_no_thread_and_no_socket(
    tmp_path: Path, idle: set[str]
) -> None:
    del idle
    before = threading.active_count()
    with redis(tmp_path) as server:
        store = connect(f"redis://{HOST}:{server.port}?timeout=0.5", namespace="n")
        Ear(store)
        server.stop()
        with pytest.raises(StoreUnavailableError):
            store.schedule([Request(TaskRef(KIND, "1"), In(0))])

        store.close()
        server.go_on()

    assert threading.active_count() == before
