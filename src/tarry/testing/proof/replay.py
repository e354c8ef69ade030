"""Replay: one simulated history, told line by line."""

from collections.abc import Iterator
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
from tarry.testing.simulation.shrink import shortest
from tarry.testing.simulation.stage import EPOCH

FAULTS = {
    "kill": "is killed",
    "leave": "stops as it should",
    "stall": "stalls",
    "cut": "loses its requests",
    "deaf": "loses its replies",
    "lag": "gets its messages late",
    "step": "has its clock stepped",
    "slow": "every request is slow",
    "mute": "wake-ups get lost",
    "contend": "claims find what is due locked",
    "crash": "the medium crashes",
    "clock": "the store's clock is stepped",
}
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
    teller = _Teller()
    for time, entry in zip(history.times, history.entries, strict=True):
        who, what = teller.line(entry)
        if claims or not (isinstance(entry, Asked) and entry.verb == "claim"):
            yield _WHAT.format(f"{time / 1e6:.3f} ms", who, what).rstrip()


def verdict_of(history: History) -> Iterator[str]:
    """Yield what was broken."""
    teller = _Teller()
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
    yield ""
    yield "The plan"
    planned = [(step.at, step.who, _step(step)) for step in plan.steps]
    planned += [(fault.at, fault.who, _fault(fault)) for fault in plan.faults]
    for at, who, what in sorted(planned, key=lambda one: one[0]):
        yield _WHAT.format(f"{at} ms", who, what)


def _step(step: Step) -> str:
    ref = f"{step.kind}/{step.key}"
    match step.verb:
        case "schedule":
            every = f", every {step.every} ms" if step.every else ""
            attempts = ", ".join(step.script)
            return (
                f"schedule {ref} in {step.delay} ms{every}, on conflict {step.mode}; "
                f"attempts of {step.run} ms: {attempts}"
            )
        case "move":
            return f"move {ref}: {step.mode} {step.delay} ms"
        case "pause" | "resume":
            return f"{step.verb} {step.kind}"
        case _:
            return f"{step.verb} {ref}"


def _fault(fault: Fault) -> str:
    amount = f" by {fault.amount} ms" if fault.amount else ""
    span = f", for {fault.span} ms" if fault.span else ""
    return f"fault: {FAULTS.get(fault.what, fault.what)}{amount}{span}"


class _Teller:
    """Turns entries into words; leases are numbered as they appear, for tokens say nothing."""

    def __init__(self) -> None:
        self._by: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        self._holders: dict[int, str] = {}

    def _lease(self, token: int) -> str:
        return f"lease {self._numbers.setdefault(token, len(self._numbers) + 1)}"

    def plain(self, said: str) -> str:
        """Return *said* with numbers in the place of tokens."""
        for token, number in self._numbers.items():
            said = said.replace(f"token {token}", f"lease {number}")
        return said

    def line(self, entry: Entry) -> tuple[str, str]:
        """Return who, and what."""
        match entry:
            case Asked():
                self._by[entry.op] = entry.by
                return entry.by, f"asks: {entry.verb} {entry.ref}".rstrip()
            case Answered():
                return self._by.get(entry.op, ""), f"is told: {entry.status}{_facts(entry)}"
            case Started():
                self._holders[entry.token] = entry.by
                lost = f", {entry.lost} leases lost" if entry.lost else ""
                what = f"revision {entry.revision}, attempt {entry.attempt}{lost}"
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
                return "", "the end; what the store still holds:"
            case Left():
                because = f": {entry.reason}" if entry.reason else ""
                what = f"revision {entry.revision}, attempt {entry.attempt}"
                return "", f"{entry.ref} {entry.state}, {what}{because}"


def _facts(entry: Answered) -> str:
    revision = f", revision {entry.revision}" if entry.revision else ""
    due = f", due at {entry.due - EPOCH} ms" if entry.due else ""
    return revision + due
