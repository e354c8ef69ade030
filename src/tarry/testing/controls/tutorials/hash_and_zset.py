"""A hash of bodies and a sorted set of dues: poll, delete, send."""

import random
from collections.abc import Iterable

from msgspec.structs import replace

from tarry.answers import CancelResult, Moved, MoveStatus, Scheduled, ScheduleStatus
from tarry.due import By, resolve
from tarry.request import Move, Request
from tarry.task import Task, TaskRef
from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials.redis import AS_TAUGHT, Redis, RedisWire, read, write
from tarry.testing.controls.tutorials.toy import draft
from tarry.testing.simulation import Bench, Plan, Step


class _Redis(Redis):
    def waiting(self) -> Iterable[Task]:
        return [read(body) for body in self._hash.values()]


class _Wire(RedisWire):
    """Bodies and dues are kept under the task's own name: it can be found and replaced."""

    def place(self, request: Request) -> Scheduled:
        task = draft(request, self.now(), self.ask("incr"))
        is_new = self.ask("hset", str(task.ref), write(task))
        self.ask("zadd", task.due, str(task.ref))
        status = ScheduleStatus.CREATED if is_new else ScheduleStatus.REPLACED
        return Scheduled(task.ref, task.due, task.revision, status)

    def move(self, move: Move) -> Moved:
        [old] = self.ask("hmget", [str(move.ref)])
        if old is None:
            return Moved(move.ref, 0, 0, MoveStatus.ABSENT)
        assert not isinstance(move.due, By)
        due = resolve(move.due, self.now())
        task = replace(read(old), due=due, revision=self.ask("incr"))
        self.ask("hset", str(task.ref), write(task))
        self.ask("zadd", task.due, str(task.ref))
        return Moved(task.ref, task.due, task.revision, MoveStatus.MOVED)

    def remove(self, ref: TaskRef) -> CancelResult:
        removed = self.ask("zrem", [str(ref)])
        self.ask("hdel", [str(ref)])
        return CancelResult.CANCELLED if removed else CancelResult.ABSENT

    def poll(self, now: int, limit: int) -> list[Task]:
        names = self.ask("zrangebyscore", now)[:limit]
        if not names:
            return []
        bodies = self.ask("hmget", names)
        # The step in which it goes wrong: these delete whatever has the name by now, be it the
        # body that was read or a newer one; and what was read is in no store any more.
        self.ask("zrem", names)
        self.ask("hdel", names)
        return [read(body) for body in bodies if body is not None]

    def give_back(self, task: Task) -> None:
        self.ask("hsetnx", str(task.ref), write(task))
        self.ask("zadd", task.due, str(task.ref))


def _plan(seed: int) -> Plan:
    """Change a task about when it is polled."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    at = 100 + dice.randrange(100)
    verb = dice.choice(("cancel", "move", "schedule"))
    return Plan(
        seed=seed,
        latency_us=3_000,
        workers=("w1",),
        steps=(
            Step(at=0, who="p1", verb="schedule", delay=100),
            Step(at=at, who="p1", verb=verb, delay=300),
        ),
    )


HASH_AND_ZSET = Control(
    name="hash-and-zset",
    title="a Redis hash of bodies and a sorted set of dues; pollers read what is due, delete, send",
    wrong=(
        "The poller deletes by name what it has read by name. A replace or a move that comes "
        "between the two is acknowledged, and then deleted with the rest: the old body runs and "
        "the new one never does. Nothing has to break for it; and where a poller dies between "
        "deleting and sending, all it had read is lost."
    ),
    rules=("lost",),
    bench=Bench(
        store=_Redis,  # type: ignore[arg-type]
        wire=_Wire,
        bare=True,
        networked=AS_TAUGHT,
        embedded=AS_TAUGHT,
    ),
    plan=_plan,
)
