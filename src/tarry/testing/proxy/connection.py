"""Connection: carry bytes between one client and the server, and hit the exchanges chosen."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from tarry.testing.proxy.fault import Fault, Phase, Rule

CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)


class CutError(Exception):
    """The connection is to be reset."""


class Connection:
    """One client's connection and the one to the server that belongs to it; lives on the loop."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        *,
        choose: Rule,
        hit: Callable[[Fault], None],
        quiet_ms: int,
    ) -> None:
        self._client = client
        self._server = server
        self._choose = choose
        self._hit = hit
        self._quiet = quiet_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._asking = False
        self._fault: Fault | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def run(self) -> None:
        """Carry bytes both ways until both sides have ended, or until a cut."""
        cut = True
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests())
                both.create_task(self._replies())
            cut = False
        except* (CutError, OSError):
            # Whichever side broke, the other one sees a reset.
            pass
        finally:
            for side in (self._client, self._server):
                close(side, reset=cut)

    def flow(self) -> None:
        """End a black hole: what was held arrives now."""
        self._flowing.set()

    async def _requests(self) -> None:
        while data := await self._loop.sock_recv(self._client, CHUNK):
            if not self._asking:
                self._asking = True
                self._fault = self._choose(data)
                await self._at_request(data)
            await self._pass_on(data, self._server)
        _end(self._server)

    async def _replies(self) -> None:
        while data := await self._loop.sock_recv(self._server, CHUNK):
            if self._asking:
                self._asking = False
                await self._at_reply(data)
            await self._pass_on(data, self._client)
        _end(self._client)

    async def _pass_on(self, data: bytes, side: socket.socket) -> None:
        await self._flowing.wait()
        await self._loop.sock_sendall(side, data)

    async def _at_request(self, data: bytes) -> None:
        """Do what is to happen before the server sees a request that begins with *data*."""
        match self._fault:
            case Fault(phase=Phase.DELAY_REQUEST, ms=ms) as fault:
                self._hit(fault)
                await asyncio.sleep(ms / 1_000)
            case Fault(phase=Phase.PARTIAL_REQUEST) as fault:
                await self._half(data, self._client, self._server, fault)
            case Fault(phase=Phase.BLACK_HOLE, ms=ms) as fault:
                self._hit(fault)
                self._flowing.clear()
                if ms:
                    self._loop.call_later(ms / 1_000, self.flow)
            case Fault(phase=Phase.CUT_BEFORE_REQUEST | Phase.REFUSE) as fault:
                self._hit(fault)
                raise CutError
            case _:
                pass

    async def _at_reply(self, data: bytes) -> None:
        """Do what is to happen before the client sees a reply that begins with *data*."""
        match self._fault:
            case Fault(phase=Phase.DELAY_REPLY, ms=ms) as fault:
                self._hit(fault)
                await asyncio.sleep(ms / 1_000)
            case Fault(phase=Phase.PARTIAL_REPLY) as fault:
                await self._half(data, self._server, self._client, fault)
            case Fault(phase=Phase.CUT_BEFORE_REPLY) as fault:
                # Some servers begin to answer before they have done everything.
                await self._gather(data, self._server)
                self._hit(fault)
                raise CutError
            case _:
                pass

    async def _half(
        self, data: bytes, source: socket.socket, target: socket.socket, fault: Fault
    ) -> None:
        data = await self._gather(data, source)
        await self._pass_on(data[: len(data) // 2], target)
        self._hit(fault)
        raise CutError

    async def _gather(self, data: bytes, source: socket.socket) -> bytes:
        """Return what *source* says until it falls silent, *data* being its beginning."""
        with suppress(TimeoutError):
            while len(data) < CHUNK:
                async with asyncio.timeout(self._quiet):
                    more = await self._loop.sock_recv(source, CHUNK)
                if not more:
                    break
                data += more
        return data


def close(side: socket.socket, *, reset: bool) -> None:
    """Close a socket, in order or with a reset."""
    if reset:
        with suppress(OSError):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    side.close()


def _end(side: socket.socket) -> None:
    """Tell *side* that nothing more will come."""
    with suppress(OSError):
        side.shutdown(socket.SHUT_WR)
