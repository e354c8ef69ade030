"""Plan: everything that is going to happen in one simulated history.

A plan is data: it can be written down, cut shorter, and run again.
"""

import msgspec
from msgspec.structs import replace

KINDS = ("async.work", "plain.work")
"""The kinds of the simulated app: handlers on the loop, and on threads."""
KEYS = ("1", "2", "3")
SERIES = "series.work"
"""The kind that recurs by its declaration, where a plan has one; its key is the same word."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a process asks for, at an instant."""

    at: int
    """Milliseconds after the beginning, as all times of a plan."""
    who: str
    verb: str
    """schedule, move, cancel, revive, purge, pause, resume; batch: all keys in one schedule."""
    kind: str = KINDS[0]
    key: str = "1"
    delay: int = 0
    mode: str = "replace"
    """The on_conflict of a schedule; set, shift, earlier or later of a move."""
    script: tuple[str, ...] = ("ok",)
    """What each attempt comes to: ok, fail, retry, snooze, skip, dead, kill; the last one stays."""
    run: int = 0
    """How long each attempt takes."""
    every: int = 0
    """The task recurs, this often."""
    max_wait: int = 0
    """A schedule in the mode `latest` puts off what waits, but no longer than that."""
    named: int = 0
    """It is to act on one revision only: 1, the one that was told last; 2, the one before it."""


class Declared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A handler that is declared to recur: how often, and what its attempts come to."""

    every: int
    run: int = 0
    script: tuple[str, ...] = ("ok",)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that breaks: for whom, for how long, how badly."""

    at: int
    what: str
    """Of one process: kill, leave, stall, cut, deaf, lag, step; of all: slow, mute, contend, …"""
    who: str = ""
    span: int = 0
    amount: int = 0


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One history before it happens."""

    seed: int = 0
    networked: bool = True
    """A server behind a network; else a file on the machine all processes share."""
    lease: int = 800
    concurrency: int = 3
    latency_us: int = 800
    producers: tuple[str, ...] = ("p1",)
    """Names that begin with `a` know the handlers and call from coroutines; the others block."""
    workers: tuple[str, ...] = ("w1", "w2")
    """`wa` looks after the first kind only, `wp` after the second, all others after both."""
    retries: int = 2
    declared: Declared | None = None
    timeout: int = 0
    """Handlers are given this long; 0: as long as they like."""
    drop_after: int = 0
    """What is so late is not attempted any more; 0: everything is."""
    steps: tuple[Step, ...] = ()
    faults: tuple[Fault, ...] = ()

    def bare(self) -> "Plan":
        """Return the plan without what only tarry offers."""
        steps = tuple(
            replace(step, named=0, max_wait=0)
            for step in self.steps
            if step.kind != SERIES and step.verb != "purge"
        )
        return replace(self, steps=steps, declared=None, timeout=0, drop_after=0)

    @property
    def quiet(self) -> int:
        """The instant from which on nothing breaks any more."""
        ends = [fault.at + fault.span for fault in self.faults]
        return max([*ends, *(step.at for step in self.steps)], default=0)
