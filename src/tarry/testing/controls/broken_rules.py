"""The rules of tarry's own design, broken one at a time."""

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tarry import life as lives
from tarry.answers import CancelResult, Moved, ReviveResult, Scheduled, SettleResult
from tarry.attempt import Dead, Done, Retry, Snooze
from tarry.clock import Clock
from tarry.due import In
from tarry.engine.wakeup import Wakeup
from tarry.life import NOTHING, Life
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Capabilities, Claimed
from tarry.task import TaskRef
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, Fault, Plan, draw, situations
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.worker.run import Attempt
from tarry.worker.worker import Worker

_SHORT_MS = 100


def _on(store: type[ForgetfulStore]) -> Bench:
    """Return a bench whose medium is a *store*."""

    def make(clock: Clock, dice: random.Random, able: Capabilities) -> ForgetfulStore:
        return store(clock=clock, rng=dice, capabilities=able)

    return Bench(store=make)


def _mark(store: ForgetfulStore, ref: TaskRef, *, cancelled: bool) -> None:
    """Mark the running attempt of *ref* as cancelled, or take the mark away."""
    life = store.life_of(ref)
    if life.running is not None and life.running.cancelled is not cancelled:
        task = replace(life.running.task, cancelled=cancelled)
        store.put_life(ref, Life(life.waiting, replace(life.running, task=task)))


# ---- leases


class TwoLeases(ForgetfulStore):
    """Leases a revision although an attempt of its ref is under way."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim what is free, then what is not."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        for ref, life in self.lives():
            waiting = life.waiting
            free = len(claimed.leases) < limit and ref.kind in kinds
            if free and life.running and waiting and waiting.due <= claimed.now:
                token = self._random.getrandbits(62)
                expires = claimed.now + lease_ms
                lease = lives.claim(waiting, token=token, holder=holder, expires=expires)
                self.put_life(ref, Life(None, lease))
                claimed.leases.append(lease)
        return claimed


class ForgottenClaims(ForgetfulStore):
    """Takes a repeated claim for a new one."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Claim without a number."""
        del call
        return super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder)


class CountedTokens(ForgetfulStore):
    """Draws tokens from a counter that is part of the state."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self._random = _Counter()

    def snapshot(self) -> tuple[Any, ...]:
        """Keep the counter with the records."""
        assert isinstance(self._random, _Counter)
        return (*super().snapshot(), self._random.last)

    def restore(self, past: tuple[Any, ...]) -> None:
        """Let the counter fall back too."""
        assert isinstance(self._random, _Counter)
        *records, self._random.last = past
        super().restore(tuple(records))


class _Counter(random.Random):
    """Dice that count."""

    last = 0

    def getrandbits(self, k: int, /) -> int:
        """Return the next number."""
        del k
        self.last += 1
        return self.last


class CountsFromTheReply(Worker):
    """Lets a lease begin when the claim's reply arrives, not when the claim was sent."""

    def _take(self, claimed: Claimed, sent: int) -> None:
        del sent
        super()._take(claimed, self._clock.elapsed())


# ---- the memory of calls


class ForgottenSchedules(ForgetfulStore):
    """Applies a repeated schedule again."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule without an id."""
        del call
        return super().schedule(requests)


class ForgottenMoves(ForgetfulStore):
    """Applies a repeated move again."""

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move without an id."""
        del call
        return super().reschedule(moves)


class ForgottenCancels(ForgetfulStore):
    """Applies a repeated cancel again."""

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel without an id."""
        del call
        return super().cancel(cancellations)


class ShortMemory(ForgetfulStore):
    """Remembers a call only as long as its caller usually waits: a late first try acts again."""

    def _forget_calls(self, now: int) -> None:
        self._calls = {k: v for k, v in self._calls.items() if v[0] > now - _SHORT_MS}


# ---- cancelling


class SaysCancelled(ForgetfulStore):
    """Says CANCELLED although an attempt is under way."""

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Give the better answer."""
        answers = super().cancel(cancellations, call=call)
        return [
            CancelResult.CANCELLED if answer is CancelResult.RUNNING else answer
            for answer in answers
        ]


class RetriesCancelled(ForgetfulStore):
    """Retries an attempt that failed although it was cancelled."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Forget the mark where a retry is asked for."""
        for settlement in settlements:
            if isinstance(settlement.outcome, Retry | Snooze):
                _mark(self, settlement.lease.ref, cancelled=False)
        return super().settle(settlements, call=call)


class ReclaimsCancelled(ForgetfulStore):
    """Makes a cancelled task claimable again when its worker is gone."""

    def _reclaim(self, kinds: list[str], now: int) -> None:
        for ref, life in self.lives():
            if life.running is not None and life.running.expires <= now:
                _mark(self, ref, cancelled=False)
        super()._reclaim(kinds, now)


class SuccessorDespiteCancel(ForgetfulStore):
    """Places the next occurrence although the series was cancelled while it ran."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Forget the mark where there is a successor."""
        for settlement in settlements:
            if settlement.successor and not isinstance(settlement.outcome, Retry | Snooze):
                _mark(self, settlement.lease.ref, cancelled=False)
        return super().settle(settlements, call=call)


# ---- two slots


class RetryOverrides(ForgetfulStore):
    """Lets a retry take the place of a newer revision that waits behind it."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Throw out what waits before a retry comes back."""
        for settlement in settlements:
            ref = settlement.lease.ref
            running = self.life_of(ref).running
            again = isinstance(settlement.outcome, Retry | Snooze)
            if again and running is not None and running.token == settlement.lease.token:
                self.put_life(ref, Life(None, running))
        return super().settle(settlements, call=call)


class RevivesBehind(ForgetfulStore):
    """Revives a dead letter behind a running attempt."""

    def revive(self, refs: Sequence[DeadRef], *, call: str = "") -> list[ReviveResult]:
        """Look at the waiting slot only."""
        del call
        answers = []
        for item in refs:
            old = lives.at(self.life_of(item.ref), self._clock.now()).life
            dead = self._dead_letter(item)
            seen = NOTHING if old.waiting is None else old
            change = lives.revive(seen, dead, self._clock.now(), self._draw)
            if dead is not None and change.answer is ReviveResult.REVIVED:
                self._drop_dead(dead)
                self.put_life(item.ref, Life(change.life.waiting, old.running))
            answers.append(change.answer)
        return answers


# ---- waking up


class PausedIsDue(ForgetfulStore):
    """Counts a paused kind in the next due."""

    def claim(
        self, kinds: Sequence[str], *, limit: int, lease_ms: int, holder: str, call: int = 0
    ) -> Claimed:
        """Tell of what cannot be had."""
        claimed = super().claim(kinds, limit=limit, lease_ms=lease_ms, holder=holder, call=call)
        return replace(claimed, next_due=self._next_due(list(kinds)))


class MutedByAnotherKind(ForgetfulStore):
    """Wakes nobody while something of whatever kind is due earlier."""

    def _wake(self, due: int | None, now: int) -> None:
        heads = [lane.head() for lane in self._lanes.values()]
        if due is None or not any(head is not None and head[0] < due for head in heads):
            super()._wake(due, now)


class NeverBacksOff(Wakeup):
    """Claims again at once when a claim came back empty although something is due."""

    def after(self, claimed: Claimed, *, full: bool) -> int:
        """Never wait for what is due."""
        pause = super().after(claimed, full=full)
        due = claimed.next_due is not None and claimed.next_due <= claimed.now
        return 0 if due else pause


class DeafWhileClaiming(Wakeup):
    """Hears no wake-up while a claim is under way."""

    def matters(self, due: int) -> bool:
        """Listen only in one's sleep."""
        return self.wakes_at is not None and super().matters(due)


class SpinningWorker(Worker):
    """A worker that never backs off."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._wakeup = NeverBacksOff()


class DeafWorker(Worker):
    """A worker that is deaf while it claims."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._wakeup = DeafWhileClaiming()


# ---- poison


class InCompany(Worker):
    """Attempts a task that may kill its worker without letting the others go first."""

    async def _be_alone(self, attempt: Attempt) -> None:
        """Go ahead."""


# ---- what was asked for


class IgnoresDelays(ForgetfulStore):
    """Lets everything be due at once, and says so."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule for now."""
        return super().schedule([replace(one, due=In(0)) for one in requests], call=call)

    def reschedule(self, moves: Sequence[Move], *, call: str = "") -> list[Moved]:
        """Move to now."""
        return super().reschedule([replace(one, due=In(0)) for one in moves], call=call)


class IgnoresBackoff(ForgetfulStore):
    """Attempts what failed or was snoozed again at once."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take the delay out of every retry."""
        return super().settle([self._at_once(one) for one in settlements], call=call)

    def _at_once(self, settlement: Settlement) -> Settlement:
        outcome = settlement.outcome
        if not isinstance(outcome, Retry | Snooze):
            return settlement
        return replace(settlement, outcome=type(outcome)(In(0), outcome.reason))


class KeepsOldPayload(ForgetfulStore):
    """Gives a task that is replaced its new due and a new revision, and leaves its payload."""

    def schedule(self, requests: Sequence[Request], *, call: str = "") -> list[Scheduled]:
        """Schedule with the payload that waits already."""
        return super().schedule([self._as_before(one) for one in requests], call=call)

    def _as_before(self, request: Request) -> Request:
        old = self.life_of(request.ref).waiting
        return request if old is None else replace(request, payload=old.payload)


class DropsDeadLetters(ForgetfulStore):
    """Deletes what is given up."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take a dead letter for something that is done."""
        return super().settle(
            [
                replace(one, outcome=Done()) if isinstance(one.outcome, Dead) else one
                for one in settlements
            ],
            call=call,
        )


class ExpiresAnything(ForgetfulStore):
    """Gives up what is done as if it had come too late."""

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        """Take what is done for a dead letter."""
        return super().settle(
            [
                replace(one, outcome=Dead("expired: late"))
                if isinstance(one.outcome, Done)
                else one
                for one in settlements
            ],
            call=call,
        )


# ---- where to look


def _calm(seed: int) -> Plan:
    return draw(seed, "calm")


def _network(seed: int) -> Plan:
    return replace(draw(seed, "network"), networked=True)


def _power(seed: int) -> Plan:
    """Power cuts on one machine."""
    plan = draw(seed, "medium")
    cuts = tuple(Fault(at=fault.at, what="crash", span=fault.span) for fault in plan.faults)
    return replace(plan, networked=False, faults=cuts)


def _crashes_of_the_medium(seed: int) -> Plan:
    return replace(_power(seed), networked=True)


BROKEN_RULES: tuple[Control, ...] = (
    Control(
        "two-live-leases",
        "A newer revision is leased while an attempt of the same key is still under way.",
        "Two attempts of one key run side by side, and the older one is robbed of its record: "
        "whatever it comes to is refused. A key has one running slot; what is scheduled meanwhile "
        "waits behind it.",
        ("double start",),
        _on(TwoLeases),
        _calm,
    ),
    Control(
        "claim-not-repeatable",
        "A claim whose reply was lost is simply made again.",
        "What the lost claim took is leased to nobody: it waits for the lease to end, is counted "
        "as lost each time, and may end as a dead letter without ever having been started. A "
        "claim has a number, and a repeat of it returns the same leases.",
        ("dead without cause",),
        _on(ForgottenClaims),
        situations.unheard_claims,
    ),
    Control(
        "schedule-applied-twice",
        "The medium does not remember schedules, so a repeat places the task again.",
        "The reply to a schedule is lost, the task runs, the caller repeats: it runs once more, or "
        "comes back after a cancel that had said yes.",
        ("after cancel", "unasked", "stale revision", "lost"),
        _on(ForgottenSchedules),
        _network,
    ),
    Control(
        "move-applied-twice",
        "The medium does not remember moves, so a repeat moves the task again.",
        "A move that arrives twice draws two revisions, and the second one undoes what was "
        "accepted in between.",
        ("unasked", "stale revision", "after cancel"),
        _on(ForgottenMoves),
        _network,
    ),
    Control(
        "cancel-applied-twice",
        "The medium does not remember cancels, so a repeat cancels again.",
        "Between the two tries somebody schedules the key anew and is told that it was accepted; "
        "the second try takes the new task away.",
        ("lost",),
        _on(ForgottenCancels),
        situations.unheard_cancel,
    ),
    Control(
        "late-first-try",
        "Calls are remembered, but not for long enough: a first try that was held up acts again.",
        "The network may deliver the first try after its repeat was answered. If the medium has "
        "forgotten the call by then, it acts a second time, long after the caller went on.",
        ("lost", "after cancel", "unasked", "stale revision"),
        _on(ShortMemory),
        _network,
    ),
    Control(
        "cancelled-while-running",
        "Cancel says CANCELLED although an attempt is under way.",
        "The worker holds the lease already and starts the handler a millisecond after the caller "
        "was told that nothing would start any more. The honest answer is RUNNING.",
        ("after cancel", "false answer"),
        _on(SaysCancelled),
        _calm,
    ),
    Control(
        "cancelled-is-retried",
        "An attempt that was cancelled while it ran is retried when it fails.",
        "Cancel answered RUNNING: this attempt could no longer be stopped. But nothing may be "
        "attempted after it, and a retry is an attempt.",
        ("after cancel",),
        _on(RetriesCancelled),
        _calm,
    ),
    Control(
        "cancelled-is-reclaimed",
        "A cancelled task whose worker died is taken back and attempted again.",
        "The mark of the cancel must outlive the worker: it belongs to the record, not to the "
        "process that was told.",
        ("after cancel",),
        _on(ReclaimsCancelled),
        situations.cancelled_and_lost,
    ),
    Control(
        "retry-overrides-newer",
        "A failed attempt comes back as a retry in the place of a newer revision.",
        "The caller scheduled the key anew while the old attempt ran, and was told CREATED. When "
        "the old one fails its retry overwrites the new task, which is lost.",
        ("lost", "stale revision"),
        _on(RetryOverrides),
        _calm,
    ),
    Control(
        "successor-despite-cancel",
        "The next occurrence of a series is placed although the series was cancelled.",
        "The cancel came while an occurrence ran. Settling it places the next one, and the series "
        "goes on for ever.",
        ("after cancel",),
        _on(SuccessorDespiteCancel),
        situations.series,
    ),
    Control(
        "revived-behind-an-attempt",
        "A dead letter is revived while a newer revision of its key runs.",
        "The old payload takes the waiting slot, so that a retry of the newer revision has to "
        "yield to it. Reviving onto a key that waits or runs is skipped, and said.",
        ("false answer",),
        _on(RevivesBehind),
        situations.revived_while_running,
    ),
    Control(
        "token-reused",
        "Tokens are counted in the medium, and the counter falls back with a crash.",
        "After the crash a new lease gets the number of an old one, and the old holder passes the "
        "fence. Tokens are random.",
        ("token reused",),
        _on(CountedTokens),
        _power,
    ),
    Control(
        "relaxed-cancel",
        "A cancel is acknowledged before it is safe on disk.",
        "The power fails, the cancel is forgotten, the task runs: after the caller was told that "
        "it never would.",
        ("after cancel",),
        Bench(relaxed=frozenset({"renew", "settle", "cancel"})),
        _crashes_of_the_medium,
    ),
    Control(
        "paused-kind-is-due",
        "The next due of a claim counts kinds that are paused.",
        "Something is due and cannot be had: the worker asks again and again for as long as the "
        "kind is paused.",
        ("spin",),
        _on(PausedIsDue),
        situations.paused,
    ),
    Control(
        "no-backoff",
        "A claim that came back empty although something is due is made again at once.",
        "Another worker holds the row for a moment. Until it lets go the others spin, and load the "
        "medium so that it lets go later.",
        ("spin",),
        Bench(worker=SpinningWorker),
        situations.contended,
    ),
    Control(
        "muted-by-another-kind",
        "A wake-up is left out because something else is due earlier: of another kind.",
        "The worker that would wake up for the other kind is not the one that this kind needs. "
        "Until it looks by itself, the task is late.",
        ("late",),
        _on(MutedByAnotherKind),
        situations.two_crews,
    ),
    Control(
        "wake-up-lost-in-a-claim",
        "A wake-up that arrives while a claim is under way is dropped.",
        "The claim had looked just before the task was placed. It comes back empty, the worker "
        "goes to sleep, and the wake-up is gone.",
        ("late",),
        Bench(worker=DeafWorker),
        situations.pairs,
    ),
    Control(
        "lease-counted-from-the-reply",
        "The worker lets a lease begin when the reply arrives.",
        "The reply was on its way for longer than the lease lasts. The store has given the task to "
        "somebody else, or told a caller that it is cancelled; the worker starts it all the same.",
        ("after cancel",),
        Bench(worker=CountsFromTheReply),
        situations.late_replies,
    ),
    Control(
        "mates-of-a-poison-task",
        "A task that kills its worker is attempted while others wait in the same worker.",
        "They die with it, again and again, and become dead letters for nothing they did. At the "
        "limit the worker lets go of everything else first.",
        ("dead without cause",),
        Bench(worker=InCompany),
        situations.poisoned,
    ),
    Control(
        "delay-ignored",
        "The medium takes every task for due now, and says so in its answer.",
        "Whoever believes the medium's own word finds nothing wrong: it acts as it says. It is "
        "early by what was asked for. A delay is judged by the caller's wish, not by the answer.",
        ("early",),
        _on(IgnoresDelays),
        _calm,
    ),
    Control(
        "backoff-ignored",
        "A retry comes back at once, whatever delay it was to have.",
        "The service that failed is called again within a millisecond, by everybody: the backoff "
        "was there to give it time.",
        ("early",),
        _on(IgnoresBackoff),
        _calm,
    ),
    Control(
        "old-payload-kept",
        "A replace moves the task and keeps the old payload.",
        "The due is right, the revision is new, and the handler acts on what the caller had "
        "taken back. The last accepted schedule is the one that runs: all of it.",
        ("stale revision",),
        _on(KeepsOldPayload),
        _calm,
    ),
    Control(
        "dead-letter-dropped",
        "What is given up is deleted.",
        "The attempt ended, the worker was told that this was recorded, and nobody can ever find "
        "out what was not done. What is given up becomes a dead letter, with its reason.",
        ("lost",),
        _on(DropsDeadLetters),
        _calm,
    ),
    Control(
        "expired-for-no-reason",
        "What is done becomes a dead letter that says it came too late.",
        "The task was on time, and would have been attempted however late it was: nobody had "
        "asked that it expire. A dead letter has the reason for which it was given up.",
        ("dead without cause",),
        _on(ExpiresAnything),
        _calm,
    ),
)
