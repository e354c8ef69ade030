"""Wire: what lies between a process and the medium: it delays, loses, and delivers late."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tarry.answers import CancelResult, Moved, RenewResult, ReviveResult, Scheduled, SettleResult
from tarry.errors import StoreUnavailableError
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Claimed, Counts, Filter, Page, Store, Watcher
from tarry.task import Task, TaskRef
from tarry.testing.ledger import Asked, Failed, Settled
from tarry.testing.simulation.plan import Fault
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.world import MS

if TYPE_CHECKING:
    from tarry.testing.simulation.stage import Stage

TIMEOUT_MS = 300
"""How long a caller waits for a reply before it gives up on it."""
_NOTICED_NS = 50 * MS
"""A longer delay than this is a fault that is entered in the ledger."""
_LEAST_NS = 20_000
_HIT = 0.4
_NONE: tuple[Any, ...] = ()


class _Trip:
    """How long a request and its reply take; None: it gets lost."""

    __slots__ = ("back", "odd", "there", "troubled")

    def __init__(self, there: int, back: int) -> None:
        self.there: int | None = there
        self.back: int | None = back
        self.odd = False
        self.troubled = False

    def meet(self, fault: Fault, verb: str, dice: random.Random) -> str:
        """Suffer *fault*; returns what the ledger is told."""
        there = back = 0
        match fault.what:
            case "cut":
                self.there = None
                return "request lost"
            case "deaf":
                self.back = None
                return "reply lost"
            case "lag":
                there = dice.randrange(fault.amount * MS) if dice.random() < _HIT else 0
                back = dice.randrange(fault.amount * MS) if dice.random() < _HIT else 0
            case "odd":
                # Only what the worker must bear: a claim that fails so ends it, and is seen.
                if verb in {"settle", "renew"}:
                    self.odd = True
                    return "odd answer"
            case "slow":
                there = dice.randrange(fault.amount * MS)
            case _:
                pass
        if self.there is not None:
            self.there += there
        if self.back is not None:
            self.back += back
        return "slow" if there + back > _NOTICED_NS else ""


class Wire(Store):
    """A store as one process sees it. Every verb is one exchange with the medium."""

    namespace = "sim"

    def __init__(self, stage: "Stage", process: Process) -> None:
        self.stage = stage
        self.process = process
        self.capabilities = stage.medium.store.capabilities

    # ---- the exchange

    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Send a request, and block until its reply is here or is given up."""
        stage, process = self.stage, self.process
        trip = self._trip(verb)
        networked = stage.plan.networked
        waiter = process.waiter(TIMEOUT_MS / 1_000 if networked else None)

        def arrive() -> None:
            stage.in_flight -= networked
            try:
                if trip.odd:
                    raise RuntimeError("an answer nobody expects")  # noqa: TRY301 - as a driver
                answer: object = stage.medium.execute(verb, args, kwargs)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                answer = error
            if trip.back is not None:
                process.loop.call_at_ns(stage.world.now + trip.back, waiter.wake, (answer,))

        if trip.there is not None:
            stage.in_flight += networked
            # On its way it arrives whatever becomes of its sender; but the code of an embedded
            # store runs in the process itself, and dies with it.
            call_at = stage.world.call_at if networked else process.loop.call_at_ns
            call_at(stage.world.now + trip.there, arrive)
        process.troubled += trip.troubled
        reply = cast("tuple[object] | None", waiter.block())
        process.troubled -= trip.troubled
        if reply is None:
            raise StoreUnavailableError(f"no reply to {verb} within {TIMEOUT_MS} ms")
        if isinstance(reply[0], BaseException):
            raise reply[0]
        return reply[0]

    def _trip(self, verb: str) -> "_Trip":
        """Draw how a request and its reply fare."""
        stage, process = self.stage, self.process
        dice = process.random
        latency = stage.plan.latency_us * 1_000
        there, back = int(dice.random() * latency), int(dice.random() * latency)
        trip = _Trip(_LEAST_NS + there, _LEAST_NS + back)
        how = ""
        if stage.weather:
            for fault in (*stage.weather.get(process.seat, _NONE), *stage.weather.get("", _NONE)):
                how = trip.meet(fault, verb, dice) or how
        if how:
            trip.troubled = True
            stage.enter(Failed(by=process.label, how=how))
        return trip

    # ---- the caller's verbs

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Exchange; what the code itself declares is entered here, for nobody else asks for it."""
        stage, process = self.stage, self.process
        ops = [
            stage.asked(request.ref, "schedule", process, series=True, declared=True)
            for request in requests
            if request.declared
        ]
        answers = cast("list[Scheduled]", self.ask("schedule", requests, call=call))
        for op, answer in zip(ops, answers, strict=False):
            stage.answered(op, answer, process)
        return answers

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Exchange; a move that skips an occurrence is entered here, for its caller cancels."""
        stage, process = self.stage, self.process
        skip = moves[0] if moves[0].nominal is not None else None
        op = stage.skips.get(call, 0) if skip else 0
        if skip is not None and not op:
            op = stage.asked(skip.ref, "move", process, if_revision=skip.if_revision or 0)
            stage.skips.update({call: op} if call else {})
        answers = cast("list[Moved]", self.ask("reschedule", moves, call=call))
        if skip is not None:
            stage.answered(op, answers[0], process)
        return answers

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Exchange."""
        return cast("list[CancelResult]", self.ask("cancel", cancellations, call=call))

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Exchange."""
        return cast("list[ReviveResult]", self.ask("revive", refs, call=call))

    def purge(self, refs: Sequence[DeadRef], *, call: str = "") -> list[bool]:
        """Exchange."""
        return cast("list[bool]", self.ask("purge", refs, call=call))

    def pause(self, kind: str, paused: bool, *, call: str = "") -> bool:  # noqa: FBT001 - see Store
        """Exchange."""
        return bool(self.ask("pause", kind, paused, call=call))

    # ---- the worker's verbs

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Exchange, entered in the ledger when it is asked for the first time."""
        stage = self.stage
        if not limit:
            # Somebody only asks what time it is.
            facts = {"limit": 0, "lease_ms": lease_ms, "holder": holder, "call": call}
            return cast("Claimed", self.ask("claim", kinds, **facts))
        op = stage.claims.get((holder, call))
        if op is None:
            op = stage.next_op()
            stage.claims[holder, call] = op
            stage.enter(Asked(op=op, verb="claim", by=self.process.label))
            if self.process.troubled:
                # What it takes suffers from what is stuck already: a renewal, a settlement.
                stage.enter(Failed(by=self.process.label, how="still slow"))
        claimed = cast(
            "Claimed",
            self.ask("claim", kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call),
        )
        if not claimed.leases:
            stage.empty_claim(self.process.label)
        for lease in claimed.leases:
            stage.granted[lease.token] = (op, max(claimed.now, lease.expires - lease_ms))
        return claimed

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        """Exchange."""
        return cast("list[RenewResult]", self.ask("renew", leases, lease_ms=lease_ms))

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Exchange, and enter the answers."""
        answers = cast("list[SettleResult]", self.ask("settle", settlements, call=call))
        for settlement, answer in zip(settlements, answers, strict=True):
            self.stage.enter(
                Settled(
                    token=settlement.lease.token,
                    outcome=type(settlement.outcome).__name__.lower(),
                    answer=answer.value,
                ),
                self.process,
            )
        return answers

    # ---- looking

    def get(self, refs: Sequence[TaskRef]) -> list[Task | None]:
        """Exchange."""
        return cast("list[Task | None]", self.ask("get", refs))

    def scan(self, where: Filter, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Exchange."""
        return cast("Page", self.ask("scan", where, cursor=cursor, limit=limit))

    def counts(self, kinds: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """Exchange."""
        return cast("Mapping[str, Counts]", self.ask("counts", kinds))

    def forecast(self, *, bucket_ms: int, buckets: int) -> list[int]:
        """Exchange."""
        return cast("list[int]", self.ask("forecast", bucket_ms=bucket_ms, buckets=buckets))

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Hear of news a moment later, unless it gets lost."""
        stage, process = self.stage, self.process

        def pass_on(due: int) -> None:
            if process.dead or any(
                fault.what in {"mute", "cut", "deaf"}
                for who in ("", process.seat)
                for fault in stage.weather.get(who, _NONE)
            ):
                return
            delay = _LEAST_NS + int(process.random.random() * stage.plan.latency_us * 1_000)
            process.loop.call_at_ns(stage.world.now + delay, callback, due)

        return stage.medium.store.watch(pass_on)

    def migrate(self) -> list[str]:
        """Leave it: the medium is ready."""
        return []

    def check(self) -> list[str]:
        """Look at the medium itself."""
        return self.stage.medium.store.check()

    def close(self) -> None:
        """Leave the medium to the others."""
