"""What a real Redis has seen after each phase: the proxy does what its phases say."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from threading import Barrier

import pytest
from tests.network.media import RedisMedium
from tests.network.servers import HOST, LIMIT, Server, redis, until
from tests.network.world import KIND, World

from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.lease import Lease
from tarry.request import Request
from tarry.stores.redis.layout import shard_of
from tarry.stores.redis.store import RedisStore
from tarry.stores.redis.url import parse
from tarry.task import TaskRef
from tarry.testing.proxy import Coverage, Phase, Proxy

pytestmark = pytest.mark.medium("redis")

TIMEOUT = 0.25
"""Seconds a client waits for a reply."""
LONG_MS = {Phase.DELAY_REQUEST: 1_000, Phase.DELAY_REPLY: 5_000}
"""Longer than a client waits."""
SHORT_MS = 20

EXECUTED = {Phase.DELAY_REPLY, Phase.CUT_BEFORE_REPLY, Phase.PARTIAL_REPLY}
"""The phases after which the server has done what was asked."""
RESET = {
    Phase.CUT_BEFORE_REQUEST,
    Phase.CUT_BEFORE_REPLY,
    Phase.PARTIAL_REQUEST,
    Phase.PARTIAL_REPLY,
    Phase.REFUSE,
}


class Resp:
    """A Redis client of a few lines: commands out, raw replies in, nothing repeated."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, LIMIT)
        self._replies = self._socket.makefile("rb")

    def say(self, *words: str) -> bytes:
        """Send one command and return its reply: a line, or the body of a bulk string."""
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self.reply()

    def patience(self, seconds: float) -> None:
        """Wait that long for a reply from now on."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def reply(self) -> bytes:
        """Return the next reply."""
        line = self._line()
        if line[:1] != b"$":
            return line
        size = int(line[1:])
        body = self._replies.read(size + 2)
        if len(body) < size + 2:
            raise EOFError
        return body[:-2]

    def _line(self) -> bytes:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        return line[:-2]

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def direct(server: Server) -> Iterator[Resp]:
    """Talks to the server without the proxy."""
    with closing(Resp((HOST, server.port))) as direct:
        direct.say("FLUSHALL")
        yield direct


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(HOST, server.port) as proxy:
        yield proxy


def counter(direct: Resp) -> int:
    return int(direct.say("INCRBY", "n", "0")[1:])


def hit(proxy: Proxy, phase: Phase, words: tuple[str, ...]) -> type[Exception] | None:
    """Say one command while its exchange is hit; returns what the client saw of it."""
    with closing(Resp(proxy.address)) as client:
        assert client.say("PING") == b"+PONG"
        client.patience(LIMIT if phase in RESET else TIMEOUT)
        hits = len(proxy.hits) + 1
        proxy.arm(
            phase,
            verb=words[0],
            ms=LONG_MS.get(phase, 0),
            only=lambda request: words[0].encode() in request,
        )
        try:
            client.say(*words)
        except (OSError, EOFError) as error:
            # A client may lose its patience before a slow server has answered.
            proxy.wait_for_hits(hits)
            return type(error)
    return None


VERBS = (("INCR", "n"), ("GET", "n"), ("SET", "other", "1"), ("PING",))


def test_every_verb_is_hit_in_every_phase_and_the_server_saw_what_the_phase_says(
    proxy: Proxy, direct: Resp
) -> None:
    proxy.coverage.expect([words[0] for words in VERBS], Phase)

    for phase in Phase:
        for words in VERBS:
            direct.say("SET", "n", "10")
            done = 11 if words[0] == "INCR" else 10

            seen = hit(proxy, phase, words)

            assert seen is (ConnectionResetError if phase in RESET else TimeoutError), phase
            if phase is Phase.DELAY_REQUEST:
                # The client has given up; its request arrives all the same.
                until(lambda: counter(direct) == done, "the late request arrives")  # noqa: B023 - called at once
            else:
                assert counter(direct) == (done if phase in EXECUTED else 10), (phase, words)
            if phase is Phase.REFUSE:
                with pytest.raises(ConnectionRefusedError):
                    Resp(proxy.address)
            proxy.cut_all()
            proxy.heal()

    assert proxy.coverage.missing() == []
    assert len(proxy.hits) == len(Phase) * len(VERBS)


def test_a_short_delay_is_only_a_delay(proxy: Proxy, direct: Resp) -> None:
    with closing(Resp(proxy.address)) as client:
        for n, phase in enumerate((Phase.DELAY_REQUEST, Phase.DELAY_REPLY), start=1):
            proxy.arm(phase, ms=SHORT_MS)
            assert client.say("INCR", "n") == b":%d" % n

    assert len(proxy.hits) == 2


def test_a_late_request_arrives_when_a_black_hole_is_healed(proxy: Proxy, direct: Resp) -> None:
    assert hit(proxy, Phase.BLACK_HOLE, ("INCR", "n")) is TimeoutError
    assert counter(direct) == 0

    proxy.heal()

    until(lambda: counter(direct) == 1, "the late request arrives")


def test_a_pipeline_whose_replies_are_cut_was_executed_as_a_whole(
    proxy: Proxy, direct: Resp
) -> None:
    with closing(Resp(proxy.address)) as client:
        proxy.arm(Phase.CUT_BEFORE_REPLY)
        client.send(b"INCR n\r\n" * 100)
        with pytest.raises(ConnectionResetError):
            client.reply()

    assert counter(direct) == 100


def test_half_a_pipeline_executes_half_of_it(proxy: Proxy, direct: Resp) -> None:
    with closing(Resp(proxy.address)) as client:
        proxy.arm(Phase.PARTIAL_REQUEST)
        client.send(b"INCR n\r\n" * 101)
        with pytest.raises(ConnectionResetError):
            client.reply()

    assert counter(direct) == 50


def test_a_large_reply_is_whole_or_an_error(proxy: Proxy, direct: Resp) -> None:
    large = "0123456789abcdef" * (1 << 18)
    direct.say("SET", "large", large)

    with closing(Resp(proxy.address)) as client:
        assert client.say("GET", "large") == large.encode()
        proxy.arm(Phase.PARTIAL_REPLY)
        with pytest.raises(ConnectionResetError):
            client.say("GET", "large")


def test_messages_that_nobody_asked_for_pass_and_are_not_hit(proxy: Proxy, direct: Resp) -> None:
    with closing(Resp(proxy.address)) as listener, closing(Resp(proxy.address)) as client:
        listener.send(b"SUBSCRIBE news\r\n")
        assert [listener.reply() for _ in range(4)] == [b"*3", b"subscribe", b"news", b":1"]
        proxy.arm(Phase.CUT_BEFORE_REPLY, verb="PING")

        for n in range(3):
            direct.say("PUBLISH", "news", str(n))
            assert [listener.reply() for _ in range(4)][3] == str(n).encode()

        assert proxy.hits == []
        with pytest.raises(ConnectionResetError):
            client.say("PING")
        assert proxy.hits == [("PING", Phase.CUT_BEFORE_REPLY)]
        direct.say("PUBLISH", "news", "still here")
        assert [listener.reply() for _ in range(4)][3] == b"still here"


def test_an_idle_run_is_not_green(proxy: Proxy) -> None:
    coverage = Coverage()
    coverage.expect(["INCR"], Phase)

    proxy.arm(Phase.CUT_BEFORE_REQUEST, verb="INCR")

    assert len(coverage.missing()) == len(Phase)


def test_a_server_that_is_killed_and_started_again_is_reached_by_the_same_proxy(
    server: Server, proxy: Proxy, direct: Resp
) -> None:
    with closing(Resp(proxy.address)) as client:
        assert client.say("INCR", "n") == b":1"

        server.kill()
        with pytest.raises((OSError, EOFError)):
            client.say("INCR", "n")
        server.start()

    def answers() -> bool:
        with suppress(OSError, EOFError), closing(Resp(proxy.address)) as again:
            return again.say("INCR", "n") == b":2"
        return False

    until(answers, "the server answers again")


def test_a_server_that_is_frozen_executes_what_was_sent_meanwhile(
    server: Server, proxy: Proxy, direct: Resp
) -> None:
    with closing(Resp(proxy.address)) as client:
        assert client.say("PING") == b"+PONG"
        client.patience(TIMEOUT)
        server.stop()
        try:
            with pytest.raises(TimeoutError):
                client.say("INCR", "n")
        finally:
            server.go_on()

    until(lambda: counter(direct) == 1, "the late request is executed")


def test_one_call_finds_out_that_all_idle_connections_are_broken(
    server: Server, direct: Resp
) -> None:
    store = RedisStore(parse(f"redis://{HOST}:{server.port}"), namespace="idle")
    callers = 32
    together = Barrier(callers)
    with closing(store):
        links = store._links

        def ask(_number: int) -> None:
            link = links.take((HOST, server.port))
            together.wait(LIMIT)
            links.give(link)

        with ThreadPoolExecutor(callers) as pool:
            list(pool.map(ask, range(callers)))
        direct.say("CLIENT", "KILL", "TYPE", "normal")

        with pytest.raises(StoreUnavailableError):
            store.get([TaskRef("any", "1")])
        assert store.get([TaskRef("any", "1")]) == [None]


def test_a_second_round_of_a_claim_that_comes_late_takes_nothing(server: Server) -> None:
    medium = RedisMedium(server, "&shards=4")
    medium.listen()
    rounds = count(1)

    def is_second_round(request: bytes) -> bool:
        return medium.verb_of(request) == "claim" and next(rounds) == 2

    with closing(World(medium, "rounds")) as world:
        # All in one shard: what the first round finds there is not all there is room for.
        refs = [ref for ref in map(_numbered, range(60)) if shard_of(ref, 4) == 0]
        world.direct.schedule([Request(ref, In(0)) for ref in refs])
        world.proxy.arm(Phase.DELAY_REQUEST, ms=800, only=is_second_round)

        def claim() -> list[Lease]:
            return world.store.claim([KIND], limit=8, lease_ms=30_000, holder="w", call=1).leases

        with pytest.raises(StoreUnavailableError):
            claim()
        leases = claim()
        until(lambda: world.served("claim") == 4 + 1 + 4, "the late round arrives")

        assert len(leases) == 2
        assert world.left().leased == len(leases)


def _numbered(number: int) -> TaskRef:
    return TaskRef(KIND, str(number))
