"""The proxy carries bytes faithfully, and breaks exactly the exchange it was told to."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tarry.clock import nap
from tarry.testing.proxy import Coverage, Fault, Phase, Proxy

LIMIT = 10.0
HELD = 0.2
"""Seconds that are long enough to see that nothing arrives."""


class Line:
    """Both ends of connections through a proxy, in the hands of one test."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listener.settimeout(LIMIT)
        self.proxy = self._stack.enter_context(Proxy(*self._listener.getsockname()))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Return the client's end and the server's end of a new connection."""
        client = self._stack.enter_context(socket.create_connection(self.proxy.address, LIMIT))
        server, _ = self._listener.accept()
        self._stack.enter_context(server)
        server.settimeout(LIMIT)
        return client, server

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def exactly(side: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = side.recv(count - len(data))
        assert more, f"ended after {data!r}"
        data += more
    return data


def until_reset(side: socket.socket) -> bytes:
    """Return what arrives before the connection is reset; an end in order is no reset."""
    data = b""
    while True:
        try:
            more = side.recv(65_536)
        except ConnectionResetError:
            return data
        assert more, f"ended in order after {data!r}"
        data += more


def is_silent(side: socket.socket) -> bool:
    side.settimeout(HELD)
    try:
        return side.recv(1) is None
    except TimeoutError:
        return True
    finally:
        side.settimeout(LIMIT)


def exchange(client: socket.socket, server: socket.socket, request: bytes, reply: bytes) -> None:
    client.sendall(request)
    assert exactly(server, len(request)) == request
    server.sendall(reply)
    assert exactly(client, len(reply)) == reply


# ---- without a fault


def test_bytes_pass_both_ways(line: Line) -> None:
    client, server = line.connect()

    for n in range(3):
        exchange(client, server, bytes(range(256)), b"reply %d" % n)

    assert line.proxy.hits == []


def test_large_streams_arrive_whole_in_both_directions_at_once(line: Line) -> None:
    client, server = line.connect()
    blob = bytes(range(256)) * 32_768
    came: dict[str, bytes] = {}

    def read(name: str, side: socket.socket) -> None:
        came[name] = exactly(side, len(blob))

    threads = [
        threading.Thread(target=client.sendall, args=(blob,)),
        threading.Thread(target=server.sendall, args=(blob,)),
        threading.Thread(target=read, args=("request", server)),
        threading.Thread(target=read, args=("reply", client)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    assert came == {"request": blob, "reply": blob}


def test_a_slow_reader_stops_its_writer(line: Line) -> None:
    client, server = line.connect()
    client.sendall(b"give me everything")
    exactly(server, 18)
    server.settimeout(HELD)
    block, sent, most = bytes(1 << 20), 0, 256

    with suppress(TimeoutError):
        while sent < most:
            server.sendall(block)
            sent += 1

    # What the kernel holds for three sockets, and one chunk.
    assert sent < most // 4


def test_an_end_of_one_direction_is_no_end_of_the_other(line: Line) -> None:
    client, server = line.connect()

    client.sendall(b"all I have to say")
    client.shutdown(socket.SHUT_WR)
    assert exactly(server, 17) == b"all I have to say"
    assert server.recv(1) == b""
    server.sendall(b"thank you")
    server.close()

    assert exactly(client, 9) == b"thank you"
    assert client.recv(1) == b""


def test_a_reset_by_one_side_reaches_the_other(line: Line) -> None:
    client, server = line.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    client.close()

    assert until_reset(server) == b""


def test_a_server_that_is_not_there_resets_its_clients() -> None:
    def speak(address: tuple[str, int]) -> None:
        # The reset may be faster than the connection.
        with socket.create_connection(address, LIMIT) as client:
            client.recv(1)

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        with Proxy(*deaf.getsockname()) as proxy, pytest.raises(ConnectionResetError):
            speak(proxy.address)


# ---- each phase


def test_cut_before_request(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.CUT_BEFORE_REQUEST, verb="v")

    client.sendall(b"request")

    assert until_reset(client) == b""
    assert until_reset(server) == b""
    assert line.proxy.hits == [("v", Phase.CUT_BEFORE_REQUEST)]


def test_cut_before_reply(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.CUT_BEFORE_REPLY, verb="v")

    client.sendall(b"request")
    assert exactly(server, 7) == b"request"
    assert line.proxy.hits == []
    server.sendall(b"reply")

    assert until_reset(client) == b""
    assert until_reset(server) == b""
    assert line.proxy.hits == [("v", Phase.CUT_BEFORE_REPLY)]


def test_half_of_a_request(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.PARTIAL_REQUEST)

    client.sendall(b"request!")

    assert until_reset(client) == b""
    assert until_reset(server) == b"requ"
    assert line.proxy.hits == [("", Phase.PARTIAL_REQUEST)]


def test_half_of_a_reply(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.PARTIAL_REPLY)

    client.sendall(b"request")
    exactly(server, 7)
    server.sendall(b"reply!")

    assert until_reset(client) == b"rep"
    assert line.proxy.hits == [("", Phase.PARTIAL_REPLY)]


@pytest.mark.parametrize("phase", [Phase.PARTIAL_REQUEST, Phase.PARTIAL_REPLY])
def test_of_something_large_a_true_part_arrives(line: Line, phase: Phase) -> None:
    client, server = line.connect()
    line.proxy.arm(phase)
    source, target = (client, server) if phase is Phase.PARTIAL_REQUEST else (server, client)
    if source is server:
        client.sendall(b"?")
        exactly(server, 1)
    blob = bytes(1 << 22)

    with suppress(ConnectionError):
        source.sendall(blob)

    assert 0 < len(until_reset(target)) < len(blob) // 2


def test_a_request_that_is_held_arrives_though_its_client_has_gone(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.DELAY_REQUEST, ms=int(HELD * 2_000))

    client.sendall(b"late")
    line.proxy.wait_for_hits()
    client.close()
    assert is_silent(server)

    assert exactly(server, 4) == b"late"
    assert server.recv(1) == b""


def test_a_reply_that_is_held_arrives(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.DELAY_REPLY, ms=int(HELD * 2_000))

    client.sendall(b"request")
    exactly(server, 7)
    server.sendall(b"late")
    line.proxy.wait_for_hits()

    assert is_silent(client)
    assert exactly(client, 4) == b"late"
    exchange(client, server, b"the next one", b"is not held")


def test_a_black_hole_swallows_both_directions_until_it_is_healed(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.BLACK_HOLE)

    client.sendall(b"request")
    line.proxy.wait_for_hits()
    server.sendall(b"news")

    assert is_silent(server)
    assert is_silent(client)
    line.proxy.heal()
    assert exactly(server, 7) == b"request"
    assert exactly(client, 4) == b"news"


def test_a_black_hole_may_end_by_itself(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.BLACK_HOLE, ms=50)

    exchange(client, server, b"request", b"reply")

    assert line.proxy.hits == [("", Phase.BLACK_HOLE)]


def test_what_a_black_hole_held_is_gone_after_a_cut(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.BLACK_HOLE)
    client.sendall(b"request")
    line.proxy.wait_for_hits()

    line.proxy.cut_all()
    line.proxy.heal()

    assert until_reset(server) == b""
    assert until_reset(client) == b""


def test_refused_until_healed_on_the_same_port(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.REFUSE)

    client.sendall(b"request")

    assert until_reset(client) == b""
    assert until_reset(server) == b""
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            line.connect()
    line.proxy.heal()
    exchange(*line.connect(), b"request", b"reply")
    assert line.proxy.hits == [("", Phase.REFUSE)]


def test_refused_for_a_while(line: Line) -> None:
    client, _ = line.connect()
    line.proxy.arm(Phase.REFUSE, ms=100)
    client.sendall(b"request")
    until_reset(client)
    refused = 0

    while True:
        try:
            exchange(*line.connect(), b"request", b"reply")
        except ConnectionRefusedError:
            refused += 1
            nap(0.01)
        else:
            break

    assert refused


def test_who_is_connected_stays_so_while_others_are_refused(line: Line) -> None:
    client, server = line.connect()

    line.proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        line.connect()
    exchange(client, server, b"request", b"reply")


def test_a_cut_of_all_resets_every_connection(line: Line) -> None:
    ends = [line.connect() for _ in range(3)]

    line.proxy.cut_all()

    assert [until_reset(side) for pair in ends for side in pair] == [b""] * 6
    exchange(*line.connect(), b"request", b"reply")


# ---- which exchange


def test_only_the_next_exchange_is_hit(line: Line) -> None:
    client, server = line.connect()
    exchange(client, server, b"one", b"1")

    line.proxy.arm(Phase.DELAY_REPLY, ms=1)
    for n in range(3):
        exchange(client, server, b"two", b"%d" % n)

    assert len(line.proxy.hits) == 1


def test_an_armed_fault_waits_for_the_request_it_is_meant_for(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.CUT_BEFORE_REQUEST, only=lambda request: request.startswith(b"INCR"))

    exchange(client, server, b"GET", b"1")
    assert line.proxy.hits == []
    client.sendall(b"INCR")

    assert until_reset(server) == b""


def test_armed_faults_hit_one_exchange_each_in_order(line: Line) -> None:
    for phase in (Phase.CUT_BEFORE_REQUEST, Phase.PARTIAL_REQUEST):
        line.proxy.arm(phase)

    came = []
    for _ in range(2):
        client, server = line.connect()
        client.sendall(b"request!")
        came.append(until_reset(server))

    assert came == [b"", b"requ"]


def test_the_exchange_of_whichever_connection_comes_first_is_hit(line: Line) -> None:
    one, two = line.connect(), line.connect()
    line.proxy.arm(Phase.CUT_BEFORE_REQUEST)

    two[0].sendall(b"request")

    assert until_reset(two[1]) == b""
    exchange(*one, b"request", b"reply")


def test_a_pipeline_is_one_exchange(line: Line) -> None:
    client, server = line.connect()
    line.proxy.follow(lambda request: Fault(Phase.DELAY_REQUEST, ms=1))

    for _ in range(3):
        client.sendall(b"request")
        assert exactly(server, 7) == b"request"
    server.sendall(b"replies")
    exactly(client, 7)
    assert len(line.proxy.hits) == 1
    exchange(client, server, b"request", b"reply")

    assert len(line.proxy.hits) == 2


def test_what_a_server_says_unasked_is_no_exchange(line: Line) -> None:
    client, server = line.connect()
    line.proxy.arm(Phase.CUT_BEFORE_REPLY)

    for n in range(3):
        server.sendall(b"news %d" % n)
        assert exactly(client, 6) == b"news %d" % n

    assert line.proxy.hits == []
    client.sendall(b"request")
    exactly(server, 7)
    server.sendall(b"reply")
    assert until_reset(client) == b""


def test_a_rule_sees_each_request_and_decides(line: Line) -> None:
    client, server = line.connect()
    seen: list[bytes] = []

    def rule(request: bytes) -> Fault | None:
        seen.append(request)
        return Fault(Phase.CUT_BEFORE_REQUEST, "incr") if b"INCR" in request else None

    line.proxy.follow(rule)
    exchange(client, server, b"GET", b"1")
    client.sendall(b"INCR")

    assert until_reset(server) == b""
    assert seen == [b"GET", b"INCR"]
    assert line.proxy.hits == [("incr", Phase.CUT_BEFORE_REQUEST)]


def test_after_healing_nothing_is_hit(line: Line) -> None:
    line.proxy.follow(lambda request: Fault(Phase.CUT_BEFORE_REQUEST))
    line.proxy.arm(Phase.CUT_BEFORE_REQUEST)

    line.proxy.heal()

    exchange(*line.connect(), b"request", b"reply")
    assert line.proxy.hits == []


def test_a_rule_that_fails_is_heard_of() -> None:
    def rule(request: bytes) -> Fault | None:
        raise LookupError(request)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(*listener.getsockname())
        proxy.follow(rule)
        with socket.create_connection(proxy.address, LIMIT) as client:
            client.sendall(b"request")
            until_reset(client)
        with pytest.raises(ExceptionGroup) as caught:
            proxy.close()
        proxy.close()

    assert caught.group_contains(LookupError, match="request")


def test_a_hit_that_does_not_come_is_not_waited_for_for_ever(line: Line) -> None:
    with pytest.raises(TimeoutError, match="1 hits were to come"):
        line.proxy.wait_for_hits(seconds=0.01)


@pytest.mark.parametrize("phase", [Phase.DELAY_REQUEST, Phase.DELAY_REPLY])
def test_a_delay_says_for_how_long(line: Line, phase: Phase) -> None:
    with pytest.raises(ValueError, match="ms="):
        line.proxy.arm(phase)


# ---- coverage


def test_what_was_expected_and_not_hit_is_missing() -> None:
    coverage = Coverage()
    coverage.expect(["get", "set"], [Phase.REFUSE, Phase.BLACK_HOLE])
    coverage.expect(["get"], [Phase.REFUSE])

    coverage.hit("get", Phase.REFUSE)
    coverage.hit("set", Phase.REFUSE)
    coverage.hit("del", Phase.BLACK_HOLE)

    assert coverage.missing() == [("get", Phase.BLACK_HOLE), ("set", Phase.BLACK_HOLE)]
    coverage.hit("get", Phase.BLACK_HOLE)
    coverage.hit("set", Phase.BLACK_HOLE)
    assert coverage.missing() == []


def test_proxies_may_share_their_coverage(line: Line) -> None:
    coverage = Coverage()
    coverage.expect(["v"], [Phase.CUT_BEFORE_REQUEST])
    with Proxy(*line.proxy.address, coverage=coverage) as outer:
        outer.arm(Phase.CUT_BEFORE_REQUEST, verb="v")
        with socket.create_connection(outer.address, LIMIT) as client:
            client.sendall(b"request")
            until_reset(client)

    assert coverage.missing() == []
    assert line.proxy.coverage.counts == {}
