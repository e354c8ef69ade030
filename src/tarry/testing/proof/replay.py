"""Replay: one simulated history, told line by line."""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from tarry.testing.controls.shortest import load
from tarry.testing.ledger import (
    Answered,
    Asked,
    Drained,
    Entry,
    Failed,
    Finished,
    Left,
    Settled,
    Started,
)
from tarry.testing.proof.ground import ground, of_control
from tarry.testing.simulation import Fault, History, Plan, Step, run
from tarry.testing.simulation.plan import SERIES
from tarry.testing.simulation.shrink import shortest
from tarry.testing.simulation.stage import EPOCH

FAULTS = {
    "kill": "is killed",
    "leave": "stops as it should",
    "stall": "stalls",
    "cut": "loses its requests",
    "deaf": "loses its replies",
    "lag": "gets messages up to {amount} ms late",
    "step": "has its clock stepped by {amount:+} ms",
    "slow": "requests arrive up to {amount} ms late",
    "mute": "wake-ups get lost",
    "contend": "claims find what is due locked",
    "odd": "renewals and settlements get errors that nobody expects",
    "crash": "the medium crashes",
    "clock": "the store's clock is stepped by {amount:+} ms",
}
"""What breaks, in words: of the process that is named, or else a sentence of its own."""
_NAMED = ("", ", if it is the revision last told", ", if it is the revision told before that")
_ATTEMPTS = {"kill": "kills its worker"}
_TOKEN = re.compile(r"token (\d+)")
_OPERATION = re.compile(r"operation (\d+)")
_OF_KINDS = {"pause", "resume"}
_WHAT = "{:>12}  {:<8}  {}"


def replay(
    seed: int, *, store: str | None = None, control: str | None = None, cut: bool = False
) -> History:
    """Run the history of *seed* once more; *cut*: the shortest that breaks what it breaks."""
    there = nullcontext(of_control(control)) if control else ground(store or "memory:")
    with there as on:
        plan = on.plan(seed)
        history = run(plan, on.bench)
        rules = {found.rule for found in history.violations}
        if not (cut and rules):
            return history
        rules = rules.intersection(on.rules) or rules

        def breaks(tried: History) -> bool:
            return any(found.rule in rules for found in tried.violations)

        return run(shortest(plan, breaks, on.bench), on.bench)


def known(control: str) -> History:
    """Run the shortest history known to catch the control of that name."""
    bench = of_control(control).bench
    return run(load()[control], bench)


def told(history: History) -> dict[str, Any]:
    """Return a history as `--json` prints it."""
    return {
        "seed": history.plan.seed,
        "plan": history.plan,
        "entries": [
            {"ms": time / 1e6, "entry": entry}
            for time, entry in zip(history.times, history.entries, strict=True)
        ],
        "violations": history.violations,
    }


def tell(history: History) -> Iterator[str]:
    """Yield the plan, the ledger and the verdict; the same history, the same lines."""
    yield from plan_of(history.plan)
    yield ""
    yield "What happened"
    yield from ledger_of(history)
    yield ""
    if not history.violations:
        yield "Every promise was kept."
    yield from verdict_of(history)


def ledger_of(history: History, *, claims: bool = True) -> Iterator[str]:
    """Yield what happened, entry by entry, with or without every look for work."""
    teller = _Teller(history)
    for time, entry in zip(history.times, history.entries, strict=True):
        who, what = teller.line(entry)
        if claims or not (isinstance(entry, Asked) and entry.verb == "claim"):
            yield _WHAT.format(_time(time), who, what).rstrip()


def verdict_of(history: History) -> Iterator[str]:
    """Yield what was broken."""
    teller = _Teller(history)
    for entry in history.entries:
        teller.line(entry)
    for found in history.violations:
        yield f"BROKEN: {found.rule}: {found.ref} {teller.plain(found.said)}".replace("  ", " ")


def plan_of(plan: Plan) -> Iterator[str]:
    """Yield what was going to happen."""
    medium = "a server behind a network" if plan.networked else "a file on one machine"
    yield (
        f"History {plan.seed}: {medium}, up to {plan.latency_us} us each way; "
        f"leases of {plan.lease} ms, at most {plan.concurrency} attempts at a time in a worker, "
        f"retries: {plan.retries}"
    )
    yield f"Producers: {', '.join(plan.producers)}; workers: {', '.join(plan.workers)}"
    if plan.timeout:
        yield f"Handlers are given {plan.timeout} ms"
    if plan.drop_after:
        yield f"What is {plan.drop_after} ms late is dropped"
    if plan.declared is not None:
        attempts = _attempts(plan.declared.run, plan.declared.script)
        yield f"{SERIES} is declared to recur every {plan.declared.every} ms; {attempts}"
    yield ""
    yield "The plan"
    planned = [(step.at, step.who, _step(step)) for step in plan.steps]
    planned += [
        (fault.at, fault.who, f"fault: {_fault(fault)}{_span(fault)}") for fault in plan.faults
    ]
    for at, who, what in sorted(planned, key=lambda one: one[0]):
        yield _WHAT.format(f"{at} ms", who, what)


def mishaps_of(plan: Plan) -> Iterator[str]:
    """Yield what goes wrong in the world, a sentence for each: "w1 is killed at 559 ms"."""
    for fault in plan.faults:
        yield f"{fault.who} {_fault(fault)} at {fault.at} ms{_span(fault)}".lstrip()
    deadly = {_target(step): None for step in plan.steps if "kill" in step.script}
    for target in deadly:
        yield f"the handler of {target} kills its worker"


def _step(step: Step) -> str:
    match step.verb:
        case "schedule" | "batch":
            every = f", every {step.every} ms" if step.every else ""
            return (
                f"schedule {_target(step)} in {step.delay} ms{every}, on conflict {step.mode}"
                f"{_within(step)}{_named(step)}; "
                f"{_attempts(step.run, step.script)}"
            )
        case "move":
            return f"move {_target(step)}: {step.mode} {step.delay} ms{_named(step)}"
        case _:
            return f"{step.verb} {_target(step)}{_named(step)}"


def _within(step: Step) -> str:
    return f" within {step.max_wait} ms" if step.max_wait else ""


def _named(step: Step) -> str:
    return _NAMED[step.named]


def _attempts(run_ms: int, script: Sequence[str]) -> str:
    words = ", ".join(_ATTEMPTS.get(word, word) for word in script)
    return f"attempts of {run_ms} ms: {words}"


def _target(step: Step) -> str:
    """Return what a step is about."""
    if step.verb in _OF_KINDS:
        return step.kind
    return f"every key of {step.kind}" if step.verb == "batch" else f"{step.kind}/{step.key}"


def _fault(fault: Fault) -> str:
    return FAULTS[fault.what].format(amount=fault.amount)


def _span(fault: Fault) -> str:
    return f", for {fault.span} ms" if fault.span else ""


def _time(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f} ms"


class _Teller:
    """Turns entries into words; leases are numbered as they appear, for tokens say nothing."""

    def __init__(self, history: History) -> None:
        asked = list(zip(history.entries, history.times, strict=True))
        self._asked = {entry.op: entry for entry, _ in asked if isinstance(entry, Asked)}
        self._when = {entry.op: _time(at) for entry, at in asked if isinstance(entry, Asked)}
        self._is_empty = not any(isinstance(entry, Left) for entry in history.entries)
        self._numbers: dict[int, int] = {}
        self._holders: dict[int, str] = {}

    def _lease(self, token: int) -> str:
        return f"lease {self._numbers.setdefault(token, len(self._numbers) + 1)}"

    def plain(self, said: str) -> str:
        """Return *said* with what the lines show in the place of tokens and operations."""
        return _OPERATION.sub(self._operation, _TOKEN.sub(self._token, said))

    def _token(self, found: re.Match[str]) -> str:
        token = int(found[1])
        return self._lease(token) if token in self._numbers else found[0]

    def _operation(self, found: re.Match[str]) -> str:
        op = int(found[1])
        return f"what {self._asked[op].by} asked for at {self._when[op]}"

    def line(self, entry: Entry) -> tuple[str, str]:
        """Return who, and what."""
        match entry:
            case Asked():
                return entry.by, f"asks: {entry.verb} {_about(entry)}".rstrip()
            case Answered():
                asked = self._asked[entry.op]
                return asked.by, f"is told: {_status(asked, entry)}{_facts(entry)}"
            case Started():
                self._holders[entry.token] = entry.by
                what = f"revision {entry.revision}, attempt {entry.attempt}{_lost(entry.lost)}"
                return entry.by, f"starts {entry.ref}: {what} ({self._lease(entry.token)})"
            case Finished():
                who = self._holders.get(entry.token, "")
                return who, f"ends with {entry.outcome} ({self._lease(entry.token)})"
            case Settled():
                who = self._holders.get(entry.token, "")
                what = f"settles {entry.outcome}: {entry.answer}"
                return who, f"{what} ({self._lease(entry.token)})"
            case Failed():
                return entry.by or "medium", f"fault: {entry.how}"
            case Drained():
                left = "the store is empty" if self._is_empty else "what the store still holds:"
                return "", f"the end; {left}"
            case Left():
                because = f": {entry.reason}" if entry.reason else ""
                what = f"revision {entry.revision}, attempt {entry.attempt}"
                return "", f"{entry.ref} {entry.state}, {what}{because}"


def _about(asked: Asked) -> str:
    """Return what a call is about: a kind is paused, and no key of it."""
    if asked.verb in _OF_KINDS:
        return asked.ref.partition("/")[0]
    return f"{asked.ref}, if revision {asked.if_revision}" if asked.if_revision else asked.ref


def _status(asked: Asked, answer: Answered) -> str:
    if asked.verb not in _OF_KINDS:
        return answer.status
    return "it was paused" if answer.status == "true" else "it was not paused"


def _lost(leases: int) -> str:
    if not leases:
        return ""
    return ", 1 lease lost" if leases == 1 else f", {leases} leases lost"


def _facts(entry: Answered) -> str:
    revision = f", revision {entry.revision}" if entry.revision else ""
    due = f", due at {entry.due - EPOCH} ms" if entry.due else ""
    return revision + due
