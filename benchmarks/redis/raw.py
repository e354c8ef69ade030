"""What tarry's scripts are compared with: the bare commands that keep the same data.

Variadic, packed by hiredis and sent through the driver's connection, a batch in one go. They
promise nothing: a crash between two of them leaves half a task, two claimers take the same one.
"""

import time
from collections.abc import Sequence
from typing import Any, cast

import above  # noqa: F401 - for the next imports
import hiredis
import measure
from redis.connection import Connection
from redis_server import HOST

LEASE_MS = 30_000
Words = Sequence[str | bytes | int]


class RawCommands:
    """One connection, and one set of keys under a prefix of its own.

    *head* stands before every payload: tarry's record has its due, revision and counters there.
    """

    def __init__(self, port: int, prefix: str = "raw:", head: bytes = bytes(35)) -> None:
        self._connection: Any = cast("Any", Connection)(host=HOST, port=port, protocol=2)
        self._connection.connect()
        self._pack: Any = hiredis.pack_command
        self.dues, self.bodies = f"{prefix}d", f"{prefix}b"
        self.leases, self.tokens = f"{prefix}l", f"{prefix}t"
        self._head = head

    def close(self) -> None:
        """Hang up."""
        self._connection.disconnect()

    def say(self, *commands: Words) -> list[Any]:
        """Send commands in one go; returns their replies."""
        packed = b"".join(self._pack(tuple(words)) for words in commands)
        self._connection.send_packed_command((packed,), check_health=False)
        return [self._connection.read_response() for _ in commands]

    # ---- tasks: keys as measure.waiting makes them, records as long as tarry's

    def batches(
        self, dues: Sequence[int], payload: bytes, *, begin: int, size: int
    ) -> list[tuple[Words, Words]]:
        """Return the two commands of each batch."""
        made: list[tuple[Words, Words]] = []
        for start in range(0, len(dues), size):
            bodies: list[str | bytes | int] = ["HSET", self.bodies]
            order: list[str | bytes | int] = ["ZADD", self.dues]
            for n, due in enumerate(dues[start : start + size], begin + start):
                bodies += (f"w{n:012d}", self._head + payload)
                order += (due, f"w{n:012d}")
            made.append((bodies, order))
        return made

    def schedule(self, batches: Sequence[tuple[Words, Words]]) -> float:
        """Place batches; returns the seconds that took."""
        began = time.perf_counter()
        for bodies, order in batches:
            self.say(bodies, order)
        return time.perf_counter() - began

    def fill(self, count: int, payload: bytes, base: int, *, begin: int = 0) -> None:
        """Let *count* tasks wait, a millisecond apart."""
        step = 50_000
        for start in range(begin, begin + count, step):
            some = range(start, min(start + step, begin + count))
            dues = [base + n for n in some]
            self.schedule(self.batches(dues, payload, begin=start, size=measure.BATCH))

    def claim(self, limit: int) -> list[bytes]:
        """Take due tasks: their order, a lease, a token and the bodies."""
        now = measure.now_ms()
        [keys] = self.say(("ZRANGEBYSCORE", self.dues, "-inf", now, "LIMIT", 0, limit))
        leases: list[str | bytes | int] = ["ZADD", self.leases]
        tokens: list[str | bytes | int] = ["HSET", self.tokens]
        for key in keys:
            leases += (now + LEASE_MS, key)
            tokens += (key, b"12345678")
        self.say(
            ("ZREMRANGEBYRANK", self.dues, 0, len(keys) - 1),
            leases,
            tokens,
            ("HMGET", self.bodies, *keys),
        )
        return list(keys)

    def settle(self, keys: Sequence[bytes]) -> None:
        """End tasks: their token, lease and body."""
        [tokens] = self.say(("HMGET", self.tokens, *keys))
        if any(token != b"12345678" for token in tokens):
            raise SystemExit("a raw lease was lost")
        self.say(
            ("ZREM", self.leases, *keys),
            ("HDEL", self.tokens, *keys),
            ("HDEL", self.bodies, *keys),
        )

    def reschedule(self, moves: Sequence[tuple[str, int]], payload: bytes) -> None:
        """Move tasks, reading them first as an answer needs it."""
        keys = [key for key, _ in moves]
        self.say(("HMGET", self.bodies, *keys))
        bodies: list[str | bytes | int] = ["HSET", self.bodies]
        order: list[str | bytes | int] = ["ZADD", self.dues]
        for key, due in moves:
            bodies += (key, self._head + payload)
            order += (due, key)
        self.say(bodies, order)

    def cancel(self, keys: Sequence[str]) -> None:
        """Take tasks out, looking first whether they run."""
        self.say(("HMGET", self.tokens, *keys))
        self.say(("HDEL", self.bodies, *keys), ("ZREM", self.dues, *keys))
