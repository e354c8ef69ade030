"""Sorted set, then set, then pop: and the sorted set is cleared last."""

import random
from collections.abc import Iterable
from typing import cast

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
        return [read(member) for member in dict.fromkeys((*self._scores, *self._set))]


class _Wire(RedisWire):
    """The member of the sorted set is the task itself: it has no name of its own."""

    def place(self, request: Request) -> Scheduled:
        old = self._find(request.ref)
        task = draft(request, self.now(), self.ask("incr"))
        if old is not None:
            self.ask("zrem", [write(old)])
        self.ask("zadd", task.due, write(task))
        status = ScheduleStatus.CREATED if old is None else ScheduleStatus.REPLACED
        return Scheduled(task.ref, task.due, task.revision, status)

    def move(self, move: Move) -> Moved:
        old = self._find(move.ref)
        if old is None:
            return Moved(move.ref, 0, 0, MoveStatus.ABSENT)
        assert not isinstance(move.due, By)
        task = replace(old, due=resolve(move.due, self.now()), revision=self.ask("incr"))
        self.ask("zrem", [write(old)])
        self.ask("zadd", task.due, write(task))
        return Moved(task.ref, task.due, task.revision, MoveStatus.MOVED)

    def remove(self, ref: TaskRef) -> CancelResult:
        old = self._find(ref)
        removed = old is not None and self.ask("zrem", [write(old)])
        # What the set holds, or a worker has popped, is not asked: it runs all the same.
        return CancelResult.CANCELLED if removed else CancelResult.ABSENT

    def _find(self, ref: TaskRef) -> Task | None:
        """Read everything, as there is no other way to find a task by its key."""
        tasks = [read(member) for member in cast("list[str]", self.ask("zrange"))]
        return next((task for task in tasks if task.ref == ref), None)

    def poll(self, now: int, limit: int) -> list[Task]:
        due = self.ask("zrangebyscore", now)
        # The step in which it goes wrong: what is being run is still in the sorted set, so that
        # whoever polls next puts it into the set once more.
        self.ask("sadd", due)
        return [read(member) for member in self.ask("spop", limit)]

    def finish(self, task: Task) -> None:
        self.ask("zrem", [write(task)])

    def give_back(self, task: Task) -> None:
        """Leave it to the next poll: it is still in the sorted set."""


def _plan(seed: int) -> Plan:
    """Run a task for longer than a poll takes, and change another one about when it is due."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    verb = dice.choice(("cancel", "move", "schedule"))
    return Plan(
        seed=seed,
        latency_us=3_000,
        steps=(
            Step(at=0, who="p1", verb="schedule", key="1", delay=100, run=dice.randrange(200)),
            Step(at=0, who="p1", verb="schedule", key="2", delay=100),
            Step(at=100 + dice.randrange(100), who="p1", verb=verb, key="2", delay=100),
        ),
    )


ZSET_TO_SET = Control(
    name="zset-to-set",
    title="a Redis sorted set by due; pollers copy what is due to a set, workers pop from it",
    wrong=(
        "A task stays in the sorted set until it has run, so every poll in the meantime copies it "
        "to the set again, and another worker pops it and runs it too. A cancel removes it from "
        "the sorted set and says so, but not from the set: it runs all the same. Popping is "
        "atomic, and so is every other command; what happens between two of them is not."
    ),
    rules=("double start", "after cancel"),
    bench=Bench(
        store=_Redis,  # type: ignore[arg-type]
        wire=_Wire,
        bare=True,
        networked=AS_TAUGHT,
        embedded=AS_TAUGHT,
    ),
    plan=_plan,
)
