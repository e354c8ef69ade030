"""The ring queue: slots, a hand that goes round, and a counter of rounds for what is far away."""

import random
from collections.abc import Iterable, Sequence
from typing import cast

from tarry.answers import RenewResult, Scheduled, ScheduleStatus, SettleResult
from tarry.attempt import Release
from tarry.clock import Clock
from tarry.errors import StoreUnavailableError
from tarry.lease import Lease
from tarry.request import Request, Settlement
from tarry.stores.store import Capabilities, Claimed
from tarry.task import Task, TaskRef
from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials.toy import Toy, as_it_was, draft, hand_out
from tarry.testing.simulation import Bench, Fault, Plan, Step
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.stage import Stage
from tarry.testing.simulation.wire import Wire

_SLOTS = 20
_TICK_MS = 50
"""A turn takes a second here, where the tutorial has 3,600 slots of a second each."""
_PASSES = 1_000
"""How often the loop comes by while the hand rests on a slot: as often as the processor can."""
_IN_MEMORY = Capabilities(medium="a ring in memory", survives="nothing", shared=True, wakeup="poll")


class Ring:
    """A ring in the memory of one process, counted from the instant the process began."""

    def __init__(self, began: int) -> None:
        self._began = began
        self._tick = 0
        self._slots: list[dict[TaskRef, int]] = [{} for _ in range(_SLOTS)]
        """In each slot, how many rounds a task still waits."""
        self.tasks: dict[TaskRef, Task] = {}

    def add(self, task: Task) -> None:
        """Put a task into its slot, in the place of the one of the same name."""
        for slot in self._slots:
            slot.pop(task.ref, None)
        self.tasks[task.ref] = task
        ticks = -(-(task.due - self._began) // _TICK_MS)
        # Counted from the start of the process, not from where the hand is: after a turn of uptime
        # there is one round too many, after two there are two. The loop below hides it.
        self._slots[ticks % _SLOTS][task.ref] = ticks // _SLOTS

    def turn(self, now: int) -> list[Task]:
        """Let the hand go on to where it is at *now*; returns what fires on the way."""
        reached = (now - self._began) // _TICK_MS
        fired: list[Task] = []
        for tick in range(self._tick, reached + 1):
            fired += self._spin(self._slots[tick % _SLOTS])
        self._tick = reached
        return fired

    def _spin(self, slot: dict[TaskRef, int]) -> list[Task]:
        """Look at one slot, again and again, until the hand goes on."""
        fired = []
        for _ in range(_PASSES if slot else 0):
            for ref, rounds in list(slot.items()):
                if rounds == 0:
                    del slot[ref]
                    fired.append(self.tasks.pop(ref))
                else:
                    # The step in which it goes wrong: a round is counted with each pass of the
                    # loop, not with each turn of the hand.
                    slot[ref] = rounds - 1
        return fired


class _House(Toy):
    """The process that has the ring, as others reach it."""

    def __init__(self, clock: Clock, _dice: random.Random, able: Capabilities) -> None:
        self.capabilities = able
        self._clock = clock
        self._revision = 0
        self._process: Process | None = None
        self._ring = Ring(0)
        self._fired: list[Task] = []

    def move_in(self, process: Process) -> None:
        """Begin a process: with an empty ring, whatever its predecessor knew."""
        self._process = process
        self._ring = Ring(self._clock.now())
        self._fired = []

    def _now(self) -> int:
        if self._process is None or self._process.dead:
            raise StoreUnavailableError("the process is gone, and its ring with it")
        now = self._clock.now()
        self._fired += self._ring.turn(now)
        return now

    # ---- what callers ask: more than this is not taught

    def schedule(self, requests: Sequence[Request], *, call: str) -> list[Scheduled]:
        del call
        return [self._schedule(request, self._now()) for request in requests]

    def _schedule(self, request: Request, now: int) -> Scheduled:
        is_new = request.ref not in self._ring.tasks
        task = draft(request, now, self._next())
        self._ring.add(task)
        status = ScheduleStatus.CREATED if is_new else ScheduleStatus.REPLACED
        return Scheduled(task.ref, task.due, task.revision, status)

    def _next(self) -> int:
        self._revision += 1
        return self._revision

    # ---- what its own worker asks

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int
    ) -> Claimed:
        del kinds, call
        now = self._now()
        fired, self._fired = self._fired[:limit], self._fired[limit:]
        assert self._process is not None
        leases = hand_out(fired, holder, now + lease_ms, self._process)
        return Claimed(leases, now, self._clock.now_us() % 1_000, now + _TICK_MS)

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        del lease_ms
        return [RenewResult.RENEWED] * len(leases)

    def settle(self, settlements: Sequence[Settlement], *, call: str) -> list[SettleResult]:
        del call
        self._fired += [
            as_it_was(one.lease) for one in settlements if isinstance(one.outcome, Release)
        ]
        return [SettleResult.SETTLED] * len(settlements)

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        return [self._ring.tasks.get(ref) for ref in refs]

    def waiting(self) -> Iterable[Task]:
        return [*self._ring.tasks.values(), *self._fired]


class _Wire(Wire):
    def __init__(self, stage: Stage, process: Process) -> None:
        super().__init__(stage, process)
        if process.seat.startswith("w"):
            cast("_House", stage.medium.store).move_in(process)


def _plan(seed: int) -> Plan:
    """Let the one process that has the ring die, sooner or later."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    return Plan(
        seed=seed,
        workers=("w1",),
        steps=(
            Step(at=0, who="p1", verb="schedule", key="1", delay=dice.randrange(3_000)),
            Step(at=500, who="p1", verb="schedule", key="1", delay=dice.randrange(3_000)),
        ),
        faults=(Fault(at=dice.randrange(2_000), what="kill", who="w1", span=100),),
    )


RING_QUEUE = Control(
    name="ring-queue",
    title="a ring of slots in memory, a hand that goes round, rounds counted down in a loop",
    wrong=(
        "A task further away than one turn waits some rounds, but the loop counts a round with "
        "each of its own passes instead of with each turn of the hand: it fires the first time "
        "the hand comes by, whole turns early. The rounds are counted from the start of the "
        "process, too: with the loop repaired, tasks are late by one turn for each turn of uptime. "
        "And all of it is in the memory of one process: when that dies, everything is lost."
    ),
    rules=("early", "lost"),
    bench=Bench(
        store=_House,  # type: ignore[arg-type]
        wire=_Wire,
        bare=True,
        networked=_IN_MEMORY,
        embedded=_IN_MEMORY,
    ),
    plan=_plan,
)
