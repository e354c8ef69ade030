"""Phase, Fault: where an exchange is hit, and how."""

from collections.abc import Callable
from enum import Enum

import msgspec


class Phase(Enum):
    """Where an exchange is hit. A cut is a reset of both connections, to client and to server."""

    DELAY_REQUEST = "delay request"
    """The request is held for `ms`. It arrives even if the client has gone meanwhile."""
    DELAY_REPLY = "delay reply"
    """The server has executed the request; its reply is held for `ms`."""
    CUT_BEFORE_REQUEST = "cut before request"
    """Cut; the server has seen nothing of the request."""
    CUT_BEFORE_REPLY = "cut before reply"
    """Cut; the server has executed the request, the client sees nothing of the reply."""
    PARTIAL_REQUEST = "partial request"
    """The server sees the first half of the request, then a cut."""
    PARTIAL_REPLY = "partial reply"
    """The client sees the first half of the reply, then a cut."""
    BLACK_HOLE = "black hole"
    """From this request on nothing arrives in either direction; the connection stays open.

    After `ms`, or when the proxy is healed, what was held arrives late. 0: only then.
    """
    REFUSE = "refuse"
    """Cut before the request, and new connections are refused: for `ms`; 0: until healed."""


_LASTS = {Phase.DELAY_REQUEST, Phase.DELAY_REPLY}


class Fault(msgspec.Struct, frozen=True):
    """What is to happen to one exchange; `verb` is the name under which the hit is counted."""

    phase: Phase
    verb: str = ""
    ms: int = 0

    def __post_init__(self) -> None:
        if self.phase in _LASTS and self.ms <= 0:
            message = f"{self.phase.value}: say for how long, with ms="
            raise ValueError(message)


Rule = Callable[[bytes], Fault | None]
"""Sees the first bytes of each request and says what is to happen to its exchange."""
