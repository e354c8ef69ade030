"""What a real HTTP server has seen after each phase."""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException

import pytest
from tests.network.http_counter import LARGE
from tests.network.servers import HOST, LIMIT, Server, python, until

from tarry.testing.proxy import Phase, Proxy

TIMEOUT = 0.25
LONG_MS = {Phase.DELAY_REQUEST: 1_000, Phase.DELAY_REPLY: 5_000}
EXECUTED = {Phase.DELAY_REPLY, Phase.CUT_BEFORE_REPLY, Phase.PARTIAL_REPLY}
HELD = {Phase.DELAY_REQUEST, Phase.DELAY_REPLY, Phase.BLACK_HOLE}
VERBS = ("POST", "GET")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with python("http_counter.py") as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(HOST, server.port) as proxy:
        yield proxy


def ask(port: int, verb: str, path: str = "/", timeout: float = LIMIT) -> bytes:
    with closing(HTTPConnection(HOST, port, timeout=timeout)) as connection:
        connection.request(verb, path, body=b"{}" if verb == "POST" else None)
        with connection.getresponse() as response:
            return response.read()


def test_every_verb_is_hit_in_every_phase_and_the_server_saw_what_the_phase_says(
    server: Server, proxy: Proxy
) -> None:
    proxy.coverage.expect(VERBS, Phase)

    for phase in Phase:
        for verb in VERBS:
            before = int(ask(server.port, "GET"))
            done = before + (verb == "POST")
            held = phase in HELD
            hits = len(proxy.hits) + 1
            proxy.arm(phase, verb=verb, ms=LONG_MS.get(phase, 0))

            with pytest.raises((OSError, HTTPException)):
                ask(proxy.port, verb, timeout=TIMEOUT if held else LIMIT)
            proxy.wait_for_hits(hits)

            if phase is Phase.DELAY_REQUEST:
                until(lambda: int(ask(server.port, "GET")) == done, "the late request arrives")  # noqa: B023 - called at once
            else:
                after = int(ask(server.port, "GET"))
                assert after == (done if phase in EXECUTED else before), (phase, verb)
            proxy.cut_all()
            proxy.heal()

    assert proxy.coverage.missing() == []


def test_a_large_body_is_whole_or_an_error(proxy: Proxy) -> None:
    assert ask(proxy.port, "GET", "/large") == LARGE

    proxy.arm(Phase.PARTIAL_REPLY)

    with pytest.raises((OSError, HTTPException)):
        ask(proxy.port, "GET", "/large")
