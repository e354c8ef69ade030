"""What tests of commands stand on: a folder, a store in it, and two ways to run `tarry`."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis
from tests.network.servers import HOST, UNSYNCED, Server, redis

from tarry import Dead, Tarry
from tarry.cli.main import cli
from tarry.lease import Lease
from tarry.request import Settlement

URL = "sqlite:///shop.db"
ON_EVERY_MEDIUM = {"test_act", "test_look", "test_mend", "test_metrics"}
"""The modules whose tests run on each medium, but for those that are marked with one."""
_SOON_MS = 180_000
Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]

SHOP = """
import sys
from tarry import Tarry

app = Tarry("URL")
empty = Tarry()
number = 7


@app.task("order.cancel", key="{order_id}")
async def cancel_order(order_id: int) -> None:
    print(f"cancelled {order_id}", flush=True)


@app.task("report.send", every="1h")
def send_report() -> None:
    pass
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules on each medium."""
    everywhere = metafunc.module.__name__.rpartition(".")[2] in ON_EVERY_MEDIUM
    if everywhere and metafunc.definition.get_closest_marker("medium") is None:
        on_redis = pytest.param("redis", marks=pytest.mark.medium("redis"))
        metafunc.parametrize("url", ["sqlite", on_redis], indirect=True)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve all tests of this process."""
    with redis(tmp_path_factory.mktemp("redis"), *UNSYNCED) as server:
        yield server


@pytest.fixture
def operator(redis_server: Server) -> Iterator[Redis]:
    """Give orders to a Redis that is empty when a test begins."""
    with closing(Redis(host=HOST, port=redis_server.port)) as operator:
        operator.flushall()
        yield operator


@pytest.fixture
def redis_url(redis_server: Server, operator: Redis) -> str:
    """Return the URL of that Redis."""
    del operator
    return f"redis://{HOST}:{redis_server.port}"


def stays(operator: Redis) -> list[bytes]:
    """Return the keys that do not expire within minutes; what has just gone says -2."""
    kept = ((key, operator.pttl(key)) for key in operator.scan_iter(count=1_000))
    return [key for key, left in kept if left == -1 or left > _SOON_MS]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the store that commands use if none is named: a file, or where it is said Redis."""
    if getattr(request, "param", "sqlite") == "redis":
        return str(request.getfixturevalue("redis_url"))
    return URL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Path:
    """Work in an empty folder, with settings of nobody else."""
    for name in list(os.environ):
        if name.startswith("TARRY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRY_STORE", url)
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""

    def run(*args: str, code: int | None = 0, **kwargs: Any) -> Result:
        result = CliRunner().invoke(cli, list(args), prog_name="tarry", **kwargs)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if code is not None:
            assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def shop(folder: Path, url: str) -> Iterator[Tarry]:
    """Hand out an app on the store that the commands use."""
    with Tarry(url) as app:
        app.store  # noqa: B018 - makes the file
        yield app


@pytest.fixture
def module(folder: Path, url: str) -> Path:
    """Put shop.py, with an app in it, where the commands run."""
    path = folder / "shop.py"
    path.write_text(SHOP.replace("URL", url))
    return path


@pytest.fixture
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a command imported, and where it looked."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("tarry"):
            del sys.modules[name]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start `tarry` as a process of its own; ended when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def spawn(*args: str, **kwargs: Any) -> subprocess.Popen[str]:
        options: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "text": True,
            "bufsize": 1,
        }
        command = [sys.executable, "-P", "-m", "tarry", *args]
        process = subprocess.Popen(command, **{**options, **kwargs})
        started.append(process)
        return process

    yield spawn
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream is not None:
                stream.close()


@pytest.fixture
def claim(shop: Tarry) -> Callable[[str], list[Lease]]:
    """Take what is due of a kind, as a worker would."""

    def claim(kind: str) -> list[Lease]:
        return shop.store.claim([kind], limit=500, lease_ms=60_000, holder="test").leases

    return claim


@pytest.fixture
def bury(shop: Tarry, claim: Callable[[str], list[Lease]]) -> Callable[..., None]:
    """Make dead letters."""

    def bury(kind: str, *keys: str, reason: str = "broken") -> None:
        for key in keys:
            shop.schedule(kind, "now", key=key)
        shop.store.settle([Settlement(lease, Dead(reason)) for lease in claim(kind)])

    return bury


@pytest.fixture
def await_line() -> Callable[[Iterable[str] | None, str], str]:
    """Read lines until one holds a text; the time-out of the test is the limit."""

    def await_line(stream: Iterable[str] | None, text: str) -> str:
        seen = []
        for line in stream or ():
            seen.append(line)
            if text in line:
                return line
        message = f"{text!r} never came; there was: {''.join(seen)}"
        raise AssertionError(message)

    return await_line
