"""Setting: what a broken rule is put into, and the plans it is looked for in."""

import random

from msgspec.structs import replace

from tarry.clock import Clock
from tarry.life import Life
from tarry.stores.store import Capabilities
from tarry.task import TaskRef
from tarry.testing.simulation import Bench, Fault, Plan, draw
from tarry.testing.simulation.medium import ForgetfulStore


def on(store: type[ForgetfulStore]) -> Bench:
    """Return a bench whose medium is a *store*."""

    def make(clock: Clock, dice: random.Random, able: Capabilities) -> ForgetfulStore:
        return store(clock=clock, rng=dice, capabilities=able)

    return Bench(store=make)


def mark(store: ForgetfulStore, ref: TaskRef, *, cancelled: bool) -> None:
    """Mark the running attempt of *ref* as cancelled, or take the mark away."""
    life = store.life_of(ref)
    if life.running is not None and life.running.cancelled is not cancelled:
        task = replace(life.running.task, cancelled=cancelled)
        store.put_life(ref, Life(life.waiting, replace(life.running, task=task)))


def calm(seed: int) -> Plan:
    """Let nothing go wrong."""
    return draw(seed, "calm")


def network(seed: int) -> Plan:
    """Lose and delay what is sent."""
    return replace(draw(seed, "network"), networked=True)


def power(seed: int) -> Plan:
    """Cut the power of one machine."""
    plan = draw(seed, "medium")
    cuts = tuple(Fault(at=fault.at, what="crash", span=fault.span) for fault in plan.faults)
    return replace(plan, networked=False, faults=cuts)


def crashes_of_the_medium(seed: int) -> Plan:
    """Cut the power of a medium that lies behind a network."""
    return replace(power(seed), networked=True)
