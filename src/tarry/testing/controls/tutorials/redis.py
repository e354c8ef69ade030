"""Redis as the tutorials use it: each command is atomic, and between two of them others act."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from tarry.answers import CancelResult, Moved, RenewResult, Scheduled, SettleResult
from tarry.attempt import Release
from tarry.clock import Clock
from tarry.lease import Lease
from tarry.request import Cancellation, Move, Request, Settlement
from tarry.stores.store import Capabilities, Claimed
from tarry.task import Task, TaskRef
from tarry.testing.controls.tutorials.toy import Toy, as_it_was, hand_out
from tarry.testing.simulation.wire import Wire

AS_TAUGHT = Capabilities(
    medium="Redis as taught", survives="process kill", shared=True, wakeup="poll 100ms"
)
_POLL_MS = 100


class Redis(Toy):
    """The commands of the tutorials, on the one key of each type that they need."""

    def __init__(self, clock: Clock, dice: random.Random, able: Capabilities) -> None:
        self.capabilities = able
        self._clock = clock
        self._dice = dice
        self._number = 0
        self._scores: dict[str, int] = {}
        self._set: dict[str, None] = {}
        self._hash: dict[str, str] = {}

    def time(self) -> int:
        """TIME: the server's microseconds."""
        return self._clock.now_us()

    def incr(self) -> int:
        """INCR: the next number."""
        self._number += 1
        return self._number

    def zadd(self, score: int, member: str) -> None:
        """ZADD: add a member, or give it another score."""
        self._scores[member] = score

    def zrange(self) -> list[str]:
        """ZRANGE 0 -1: all of it, by score, then by member."""
        return sorted(self._scores, key=lambda member: (self._scores[member], member))

    def zrangebyscore(self, most: int) -> list[str]:
        """ZRANGEBYSCORE 0 *most*: the beginning of it."""
        return [member for member in self.zrange() if self._scores[member] <= most]

    def zrem(self, members: Sequence[str]) -> int:
        """ZREM: remove members; says how many there were."""
        return sum(self._scores.pop(member, None) is not None for member in members)

    def sadd(self, members: Sequence[str]) -> None:
        """SADD: add members."""
        self._set.update(dict.fromkeys(members))

    def spop(self, count: int) -> list[str]:
        """SPOP: take up to *count* members, whichever."""
        popped = self._dice.sample(sorted(self._set), min(count, len(self._set)))
        for member in popped:
            del self._set[member]
        return popped

    def hset(self, field: str, value: str) -> bool:
        """HSET: write a field; says whether it is new."""
        is_new = field not in self._hash
        self._hash[field] = value
        return is_new

    def hsetnx(self, field: str, value: str) -> None:
        """HSETNX: write a field unless it exists."""
        self._hash.setdefault(field, value)

    def hmget(self, fields: Sequence[str]) -> list[str | None]:
        """HMGET: read fields."""
        return [self._hash.get(field) for field in fields]

    def hdel(self, fields: Sequence[str]) -> None:
        """HDEL: remove fields."""
        for field in fields:
            self._hash.pop(field, None)


class RedisWire(Wire, ABC):
    """A client of Redis: each verb is a few commands one after the other, as tutorials write them.

    There are no leases: nothing is renewed, and no settlement is refused.
    """

    # ---- what a tutorial teaches

    @abstractmethod
    def place(self, request: Request) -> Scheduled:
        """Schedule one task."""

    @abstractmethod
    def move(self, move: Move) -> Moved:
        """Move one task."""

    @abstractmethod
    def remove(self, ref: TaskRef) -> CancelResult:
        """Cancel one task."""

    @abstractmethod
    def poll(self, now: int, limit: int) -> list[Task]:
        """Take what is due at *now*."""

    @abstractmethod
    def give_back(self, task: Task) -> None:
        """Take back a task that was not begun."""

    def finish(self, _task: Task) -> None:
        """End a task that was done."""

    # ---- the verbs of a store

    def now(self) -> int:
        """Ask the server for its time: clocks are not what these tutorials fail by."""
        return int(self.ask("time")) // 1_000

    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Exchange a command; claim and settle are several."""
        match verb:
            case "claim":
                return self._claim(**kwargs)
            case "settle":
                return [self._settle(settlement) for settlement in args[0]]
            case _:
                return super().ask(verb, *args, **kwargs)

    def _claim(self, *, limit: int, lease_ms: int, holder: str, call: int) -> Claimed:
        del call
        now, micros = divmod(self.ask("time"), 1_000)
        leases = hand_out(self.poll(now, limit), holder, now + lease_ms, self.process)
        return Claimed(leases, now, micros, now + _POLL_MS)

    def _settle(self, settlement: Settlement) -> SettleResult:
        released = isinstance(settlement.outcome, Release)
        (self.give_back if released else self.finish)(as_it_was(settlement.lease))
        return SettleResult.SETTLED

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Renew nothing."""
        del lease_ms
        return [RenewResult.RENEWED] * len(leases)

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule one by one."""
        del call
        return [self.place(request) for request in requests]

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move one by one."""
        del call
        return [self.move(move) for move in moves]

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel one by one."""
        del call
        return [self.remove(cancellation.ref) for cancellation in cancellations]

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Look at what waits: clients do so before they cancel."""
        waiting = {task.ref: task for task in cast("Toy", self.stage.medium.store).waiting()}
        return [waiting.get(ref) for ref in refs]


def write(task: Task) -> str:
    """Return a task as it is written to Redis."""
    return msgspec.json.encode(task).decode()


def read(text: str) -> Task:
    """Return a task as it was written."""
    return msgspec.json.decode(text, type=Task)
