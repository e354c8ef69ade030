"""Shrink: the shortest plan that still shows what went wrong."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tarry.testing.simulation.history import History, run
from tarry.testing.simulation.plan import Fault, Plan, Step
from tarry.testing.simulation.stage import REAL, Bench

_SEEDS = 12
"""How many other dice a shorter plan is tried with: chance may have helped the longer one."""


def shortest(plan: Plan, breaks: Callable[[History], bool], bench: Bench = REAL) -> Plan:
    """Return a plan that *breaks* what *plan* does, with as little in it as can be."""
    changed = True
    while changed:
        changed = False
        for candidate in _shorter(plan):
            kept = _with_luck(candidate, breaks, bench)
            if kept is not None:
                plan, changed = kept, True
                break
    return plan


def _with_luck(plan: Plan, breaks: Callable[[History], bool], bench: Bench) -> Plan | None:
    for luck in range(_SEEDS):
        tried = plan if luck == 0 else replace(plan, seed=luck)
        if breaks(run(tried, bench)):
            return tried
    return None


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Yield plans that say less, the boldest cuts first."""
    if len(plan.steps) > 3:
        half = len(plan.steps) // 2
        yield replace(plan, steps=plan.steps[:half])
        yield replace(plan, steps=plan.steps[half:])
    for place in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:place] + plan.faults[place + 1 :])
    for place in range(len(plan.steps)):
        yield replace(plan, steps=plan.steps[:place] + plan.steps[place + 1 :])
    if len(plan.workers) > 1:
        yield replace(plan, workers=plan.workers[:-1])
    used = tuple(name for name in plan.producers if any(step.who == name for step in plan.steps))
    if used and used != plan.producers:
        yield replace(plan, producers=used)
    for place, step in enumerate(plan.steps):
        for simpler in _simpler(step):
            yield replace(plan, steps=(*plan.steps[:place], simpler, *plan.steps[place + 1 :]))
    for place, fault in enumerate(plan.faults):
        for milder in _milder(fault):
            yield replace(plan, faults=(*plan.faults[:place], milder, *plan.faults[place + 1 :]))


def _simpler(step: Step) -> Iterator[Step]:
    if step.verb == "batch":
        yield replace(step, verb="schedule")
    elif step.named:
        yield replace(step, named=0)
    elif step.verb == "schedule":
        plain = Step(at=0, who=step.who, verb=step.verb)
        for name in ("script", "run", "max_wait", "mode", "every", "delay"):
            if getattr(step, name) != getattr(plain, name):
                yield replace(step, **{name: getattr(plain, name)})
    elif step.verb != "move":
        bare = Step(step.at, step.who, step.verb, step.kind, step.key)
        if bare != step:
            yield bare
    elif step.script != ("ok",) or step.run:
        yield replace(step, script=("ok",), run=0)


def _milder(fault: Fault) -> Iterator[Fault]:
    if fault.span > 100:
        yield replace(fault, span=fault.span // 2)
