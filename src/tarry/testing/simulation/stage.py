"""Stage: the processes of one history, what they do, and the ledger of it."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.app import Tarry
from tarry.clock import Clock as AnyClock
from tarry.context import Context
from tarry.due import Earlier, Later, Shift
from tarry.errors import ConflictError, StoreError, WorkerError
from tarry.events import AttemptEnded, Event
from tarry.payload import Plain
from tarry.request import DeadRef
from tarry.stores.store import Capabilities, Store
from tarry.task import TaskRef
from tarry.testing.ledger import Answered, Asked, Entry, Failed, Finished, Started
from tarry.testing.simulation.handlers import DELAYS, ms, registry
from tarry.testing.simulation.medium import ForgetfulStore, Medium
from tarry.testing.simulation.plan import KEYS, KINDS, SERIES, Fault, Plan, Step
from tarry.testing.simulation.process import Clock, Gone, Process
from tarry.testing.simulation.wire import Wire
from tarry.testing.simulation.world import MS, World
from tarry.worker.worker import Worker

EPOCH = 1_700_000_000_000
"""What the store's clock shows when a history begins."""
_RESTART_MS = 100
_MOST_OFF_MS = 3_600_000
_NETWORKED = Capabilities(
    medium="simulated server",
    survives="node loss",
    shared=True,
    wakeup="direct",
    remembers_calls=True,
)
_EMBEDDED = Capabilities(
    medium="simulated file", survives="power loss", shared=True, wakeup="direct"
)


class Bench(msgspec.Struct, frozen=True):
    """What is put to the test; the negative controls put something broken in its place."""

    store: Callable[[AnyClock, random.Random, Capabilities], Store] = lambda clock, dice, able: (
        ForgetfulStore(clock=clock, rng=dice, capabilities=able)
    )
    wire: Callable[["Stage", Process], Wire] = Wire
    worker: Callable[..., Worker] = Worker
    networked: Capabilities = _NETWORKED
    embedded: Capabilities = _EMBEDDED
    relaxed: frozenset[str] = frozenset({"renew", "settle"})
    """What a crash may forget, claims on a file aside."""
    bare: bool = False
    """It never promised more than to schedule, move and cancel: plans ask for nothing else."""


REAL = Bench()


class Stage:
    """The world of one history with everything that is in it."""

    def __init__(self, plan: Plan, bench: Bench) -> None:
        self.plan = plan
        self.bench = bench
        self.world = World()
        self.dice = random.Random(plan.seed ^ 0x5EED)  # noqa: S311 - the same for the same seed
        self.clock = Clock(self.world, wall=EPOCH)
        able = bench.networked if plan.networked else bench.embedded
        relaxed = bench.relaxed if plan.networked else bench.relaxed | {"claim"}
        store = bench.store(self.clock, random.Random(plan.seed), able)  # noqa: S311 - as above
        self.medium = Medium(self.world, store, self.clock, relaxed=relaxed)
        self.weather: dict[str, tuple[Fault, ...]] = {}
        self.entries: list[Entry] = []
        self.times: list[int] = []
        """When each entry was made, in true nanoseconds."""
        self._told: dict[str, list[int]] = {}
        """The revisions that somebody was told of, by ref."""
        self.steps: dict[int, Step] = {}
        """What was asked for, by the numbers of operations."""
        self._refs: dict[int, str] = {}
        self.claims: dict[tuple[str, int], int] = {}
        self.skips: dict[str, int] = {}
        """The moves by which cancels skip an occurrence, by the ids of their calls."""
        self.granted: dict[int, tuple[int, int]] = {}
        self.empties: list[tuple[str, int]] = []
        self.in_flight = 0
        self.asking: Counter[str] = Counter()
        """How many operations of each living process have no answer yet."""
        self._ops = 0
        self.processes: dict[str, Process] = {}
        self.buried: list[Process] = []
        self.apps: dict[str, Tarry] = {}
        self.workers: dict[str, tuple[Worker, asyncio.Task[None]]] = {}
        self.series: set[TaskRef] = set()
        self.resumed = 0
        """When all that was paused was resumed for good."""
        self._born = 0

    # ---- the ledger

    def next_op(self) -> int:
        """Name an operation."""
        self._ops += 1
        return self._ops

    def enter(self, entry: Entry, by: Process | None = None) -> None:
        """Write *entry*, unless the process that saw it is dead."""
        if by is None or not by.dead:
            self.entries.append(entry)
            self.times.append(self.world.now)

    def empty_claim(self, label: str) -> None:
        """Count a claim that came back with nothing."""
        self.empties.append((label, self.world.now))

    # ---- processes

    def open(self) -> None:
        """Bring up every process, and arrange what is going to happen."""
        for seat in (*self.plan.producers, *self.plan.workers):
            self.bring_up(seat)
        for step in self.plan.steps:
            self.world.call_at(step.at * MS, self._begin, step)
        for fault in self.plan.faults:
            self.world.call_at(fault.at * MS, self._strike, fault)

    def bring_up(self, seat: str) -> Process:
        """Start a process in *seat*, in the place of a dead one if there was one."""
        old = self.processes.get(seat)
        if old is not None and not old.dead:
            return old
        self._born += 1
        label = seat if old is None else f"{seat}.{self._born}"
        dice = random.Random(self.plan.seed * 64 + self._born)  # noqa: S311 - as above
        clock = self.clock
        if self.plan.networked:
            wrong = dice.randrange(-_MOST_OFF_MS, _MOST_OFF_MS)
            clock = Clock(self.world, wall=EPOCH + wrong, boot=dice.getrandbits(50))
        process = Process(self.world, seat, label, clock, dice)
        self.processes[seat] = process
        wire = self.bench.wire(self, process)
        if seat.startswith("w"):
            self._hire(seat, process, wire)
        else:
            app = _PRODUCERS.setdefault(seat, Tarry("memory:", namespace="sim", retry_for="3s"))
            if seat.startswith("a"):
                app.registry = registry(self.plan)
            app.swap(wire, process.clock, process)
            self.apps[seat] = app
        return process

    def _hire(self, seat: str, process: Process, wire: Wire) -> None:
        worker = self.bench.worker(
            wire,
            registry(self.plan),
            codec=Plain(),
            emit=lambda event: self._hear(event, process),
            kinds=self._crew(seat),
            concurrency=self.plan.concurrency,
            lease=self.plan.lease / 1_000,
            grace=1,
            runtime=process,
        )
        task = process.loop.create_task(_alone(worker.run))
        # A process whose worker has stopped ends, with whatever its threads are still at.
        task.add_done_callback(lambda task: self._ended(process, task))
        self.workers[seat] = worker, task

    def _ended(self, process: Process, task: "asyncio.Task[None]") -> None:
        """Start a worker anew that lost too many threads to handlers that hang."""
        self._exit(process)
        if not task.cancelled() and isinstance(task.exception(), WorkerError):
            self.world.call_at(self.world.now + _RESTART_MS * MS, self.bring_up, process.seat)

    def _crew(self, seat: str) -> tuple[str, ...] | None:
        """Return the kinds that the worker in *seat* looks after, None: all."""
        kinds = _CREWS.get(seat)
        return None if kinds is None else tuple(k for k in kinds if k != SERIES or self.declared)

    @property
    def declared(self) -> TaskRef | None:
        """The ref of the declared series, if the plan has one."""
        return TaskRef(SERIES, SERIES) if self.plan.declared else None

    def _exit(self, process: Process) -> None:
        process.kill()
        self.buried.append(process)
        del self.asking[process.label]

    def _hear(self, event: Event, process: Process) -> None:
        if isinstance(event, AttemptEnded):
            delay = DELAYS.get(event.outcome)
            earliest = 0 if delay is None else self.clock.now() + delay
            entry = Finished(token=event.token, outcome=event.outcome, earliest=earliest)
            self.enter(entry, process)

    def kill(self, process: Process, how: str = "killed") -> None:
        """End a process, now."""
        if not process.dead:
            self._exit(process)
            self.enter(Failed(by=process.label, how=how))

    def kill_from_inside(self, process: Process) -> None:
        """End a process by what its own handler does; somebody starts it again."""
        self.kill(process)
        later = self.world.now + _RESTART_MS * MS
        self.world.call_at(later, self.bring_up, process.seat)

    # ---- faults

    def _strike(self, fault: Fault) -> None:
        """Let one fault begin."""
        now = self.world.now
        end = now + fault.span * MS
        process = self.processes.get(fault.who)
        match fault.what:
            case "kill" if process is not None:
                self.kill(process)
                self.world.call_at(end, self.bring_up, fault.who)
            case "leave" if process is not None and fault.who in self.workers:
                process.loop.call_soon(self.workers[fault.who][0].stop)
                self.world.call_at(end, self._bring_back, fault.who)
            case "stall" if process is not None and not process.dead:
                process.stall(end)
                self.enter(Failed(by=process.label, how="stalled"))
            case "clock":
                self._step_clock(self.clock, fault.amount)
            case "step" if process is not None:
                self._step_clock(process.clock, fault.amount)
            case "contend":
                self.medium.contended_until = end
            case "crash":
                self._crash(fault)
            case _:
                self.weather[fault.who] = (*self.weather.get(fault.who, ()), fault)
                self.world.call_at(end, self._clear, fault)

    def _bring_back(self, seat: str) -> None:
        """Start a worker again once the one that was asked to leave has left."""
        if self.processes[seat].dead:
            self.bring_up(seat)
        else:
            self.world.call_at(self.world.now + _RESTART_MS * MS, self._bring_back, seat)

    def _clear(self, fault: Fault) -> None:
        self.weather[fault.who] = tuple(one for one in self.weather[fault.who] if one != fault)

    def _step_clock(self, clock: AnyClock, amount: int) -> None:
        assert isinstance(clock, Clock)
        clock.wall += amount
        if clock is self.clock:
            self.enter(Failed(by="clock", how="clock stepped"))

    def _crash(self, fault: Fault) -> None:
        """Let the medium go down; a file goes down with every process of its machine."""
        self.enter(Failed(by="", how="medium crashed"))
        if not self.plan.networked:
            for process in list(self.processes.values()):
                self.kill(process, "power cut")
                self.world.call_at(self.world.now + fault.span * MS, self.bring_up, process.seat)
        self.medium.crash(fault.span, self.dice)

    # ---- what producers ask for

    def _begin(self, step: Step) -> None:
        """Let a producer do a step, on its loop or on a thread."""
        process = self.processes[step.who]
        if process.dead:
            return
        # Counted before its thread begins: a history must not end in between.
        self.asking[process.label] += 1
        if step.who.startswith("a"):
            process.loop.create_task(_alone(partial(self._on_loop, step, process)))
        else:
            process.spawn(partial(self._on_thread, step, process), "step")

    async def _on_loop(self, step: Step, process: Process) -> None:
        try:
            await self._aperform(step, process)
        finally:
            self.over(process)

    def _on_thread(self, step: Step, process: Process) -> None:
        try:
            self.perform(step, process)
        finally:
            self.over(process)

    def over(self, process: Process) -> None:
        """Count one operation less that a process waits for."""
        if not process.dead:
            self.asking[process.label] -= 1

    def _batch(self, step: Step, process: Process) -> None:
        """Schedule every key in one call."""
        steps = [replace(step, verb="schedule", key=key, mode="replace") for key in KEYS]
        ops = [self._asked(one, process)[0] for one in steps]
        app = self.apps[step.who]
        answers: Sequence[Any] = ()
        try:
            answers = app.schedule_many(
                [
                    app.build(one.kind, ms(one.delay), **_options(one, op))
                    for one, op in zip(steps, ops, strict=True)
                ]
            )
        except StoreError as error:
            answers = error.answers
        for op, answer in zip(ops, answers, strict=False):
            self.answered(op, answer, process)

    def perform(self, step: Step, process: Process) -> str:
        """Do one step on a thread; returns the word of the answer, none if there was none."""
        if step.verb == "batch":
            self._batch(step, process)
            return ""
        op, named = self._asked(step, process)
        try:
            answer = self._say(step, op, named)
        except ConflictError as error:
            answer = error.answers[0]
        except StoreError:
            answer = None
        return self.answered(op, answer, process)

    async def _aperform(self, step: Step, process: Process) -> None:
        """Do one step in a coroutine."""
        if step.verb == "batch":
            await process.run_blocking(self._batch, step, process)
            return
        op, named = self._asked(step, process)
        app = self.apps[step.who]
        ref = TaskRef(step.kind, step.key)
        answer: Any = None
        try:
            match step.verb:
                case "schedule":
                    options = _options(step, op, named)
                    answer = await app.aschedule(step.kind, ms(step.delay), **options)
                case "move":
                    answer = await app.areschedule(ref, _move(step), if_revision=named)
                case "cancel":
                    answer = await app.acancel(ref, if_revision=named)
                case _:
                    answer = await process.run_blocking(self._say, step, op, named)
        except ConflictError as error:
            answer = error.answers[0]
        except StoreError:
            answer = None
        self.answered(op, answer, process)

    def _say(self, step: Step, op: int, named: int | None) -> Any:
        app = self.apps[step.who]
        ref = TaskRef(step.kind, step.key)
        match step.verb:
            case "schedule":
                return app.schedule(step.kind, ms(step.delay), **_options(step, op, named))
            case "move":
                return app.reschedule(ref, _move(step), if_revision=named)
            case "cancel":
                return app.cancel(ref, if_revision=named)
            case "revive":
                return app.client.revive([DeadRef(ref)])[0]
            case "purge":
                return "purged" if app.client.purge([DeadRef(ref)])[0] else "absent"
            case _:
                return (app.pause if step.verb == "pause" else app.resume)(step.kind)

    def _asked(self, step: Step, process: Process) -> tuple[int, int | None]:
        """Enter a step; returns its number, and the revision that it is to act on."""
        ref = TaskRef(step.kind, step.key)
        if step.every:
            self.series.add(ref)
        placing = step.verb in {"schedule", "move"} and step.mode not in {"earliest", "shift"}
        placing = placing and not step.max_wait
        # One that fails if something waits cannot ask for what is to wait.
        named = self._named(ref, step.named) if step.named and step.mode != "fail" else None
        op = self.asked(
            ref,
            step.verb,
            process,
            series=bool(step.every),
            earliest=self.clock.now() + step.delay if placing else 0,
            if_revision=named or 0,
            delay_ms=step.delay,
            max_wait_ms=step.max_wait,
            anew=step.mode == "replace",
        )
        self.steps[op] = step
        return op, named

    def _named(self, ref: TaskRef, back: int) -> int:
        """Return a revision that somebody was told of: the last one, or the one before."""
        told = sorted(set(self._told.get(str(ref), ())))
        return told[-back] if len(told) >= back else 1

    def asked(self, ref: TaskRef, verb: str, process: Process, **facts: Any) -> int:
        """Enter that a process asks for something; returns the number of the operation."""
        op = self.next_op()
        self._refs[op] = str(ref)
        drop_after_ms = self.plan.drop_after
        entry = Asked(
            op=op, verb=verb, ref=str(ref), by=process.label, drop_after_ms=drop_after_ms, **facts
        )
        self.enter(entry, process)
        return op

    def answered(self, op: int, answer: Any, process: Process) -> str:
        """Enter what a process is told; returns the word of the answer."""
        if answer is None:
            return ""
        status = getattr(answer, "status", answer)
        word = status if isinstance(status, str) else getattr(status, "value", str(status))
        revision, due = getattr(answer, "revision", 0), getattr(answer, "due", 0)
        entry = Answered(op=op, status=word.lower(), revision=revision, due=due)
        self.enter(entry, process)
        if revision:
            self._told.setdefault(self._refs[op], []).append(revision)
        return word.lower()

    # ---- what handlers do

    def started(self, ctx: Context, op: int) -> Process:
        """Enter a start, with the op in its payload; returns the process that runs it."""
        process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
        assert isinstance(process, Process)
        if process.dead:
            raise Gone
        claim, granted = self.granted.get(ctx.token, (0, 0))
        entry = Started(
            ref=str(ctx.ref),
            revision=ctx.revision,
            token=ctx.token,
            attempt=ctx.attempt,
            lost=ctx.lost,
            due=ctx.due,
            now=max(granted, self.clock.now()),
            by=process.label,
            claim=claim,
            op=op,
        )
        self.enter(entry, process)
        return process

    def end(self) -> None:
        """Unwind whatever is left."""
        for process in (*self.processes.values(), *self.buried):
            process.bury()


async def _alone(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *work*; a process that dies in it takes nobody along."""
    with suppress(Gone):
        await work()


def _options(step: Step, op: int, named: int | None = None) -> Any:
    options: dict[str, object] = {
        "key": step.key,
        "payload": {"script": step.script, "run": step.run, "op": op},
        "on_conflict": step.mode,
    }
    if step.every:
        options["every"] = ms(step.every)
    if step.max_wait:
        options["max_wait"] = ms(step.max_wait)
    if named is not None:
        options["if_revision"] = named
    return options


def _move(step: Step) -> Any:
    match step.mode:
        case "shift":
            return Shift(f"+{step.delay}ms")
        case "earlier":
            return Earlier(ms(step.delay))
        case "later":
            return Later(ms(step.delay))
        case _:
            return ms(step.delay)


_CREWS = {"wa": (KINDS[0], SERIES), "wp": (KINDS[1],)}
"""Workers that do not look after every kind."""
_PRODUCERS: dict[str, Tarry] = {}
