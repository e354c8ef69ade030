"""Plan: everything that is going to happen in one simulated history, drawn from one seed.

A plan is data: it can be written down, cut shorter, and run again.
"""

import random

import msgspec

KINDS = ("async.work", "plain.work")
"""The kinds of the simulated app: handlers on the loop, and on threads."""
KEYS = ("1", "2", "3")


WEATHERS = ("calm", "crashes", "network", "medium", "clocks", "poison", "storm")
"""What may go wrong in a history: nothing, processes, the network, …, everything."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a process asks for, at an instant."""

    at: int
    """Milliseconds after the beginning, as all times of a plan."""
    who: str
    verb: str
    """schedule, move, cancel, revive, pause, resume; batch: schedule all keys in one call."""
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
    steps: tuple[Step, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def quiet(self) -> int:
        """The instant from which on nothing breaks any more."""
        ends = [fault.at + fault.span for fault in self.faults]
        return max([*ends, *(step.at for step in self.steps)], default=0)


def draw(seed: int, weather: str = "") -> Plan:
    """Return the plan of *seed*; *weather* narrows down what goes wrong in it."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    drawn = dice.choices(WEATHERS, (2, 3, 3, 2, 1, 1, 3))[0]
    weather = weather or drawn
    networked = weather == "network" or dice.random() < 0.7
    producers = tuple(dice.sample(("p1", "p2", "a1", "a2"), dice.choice((1, 2, 2, 3))))
    workers = ("w1", "w2", "w3")[: dice.choice((1, 2, 2, 3))]
    span = dice.choice((400, 1_000, 1_000, 3_000))
    keys = KEYS[: dice.choice((1, 2, 2, 3))]
    steps = [
        _step(dice, span, producers, keys, poison=weather == "poison")
        for _ in range(dice.choice((2, 3, 4, 6, 9, 14)))
    ]
    if dice.random() < 0.15:
        steps += _pause(dice, span, producers)
    lease = dice.choice((300, 500, 800, 1_500))
    faults = _faults(dice, weather, span, lease, producers + workers, networked=networked)
    return Plan(
        seed=seed,
        networked=networked,
        lease=lease,
        concurrency=dice.choice((1, 2, 3, 4)),
        latency_us=dice.choice((200, 800, 3_000)),
        producers=producers,
        workers=workers,
        retries=dice.choice((0, 1, 2)),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _step(
    dice: random.Random, span: int, who: tuple[str, ...], keys: tuple[str, ...], *, poison: bool
) -> Step:
    verb = dice.choices(("schedule", "batch", "move", "cancel", "revive"), (10, 1, 4, 5, 1))[0]
    moves = ("set", "set", "shift", "earlier", "later")
    modes = ("replace", "replace", "replace", "keep", "earliest", "latest", "fail")
    delay = dice.choice((0, 0, 5, 50, 200, 500, 1_000, dice.randrange(3_000)))
    recurs = verb == "schedule" and dice.random() < 0.06
    return Step(
        at=dice.randrange(span),
        who=dice.choice(who),
        verb=verb,
        kind=dice.choice(KINDS),
        key=dice.choice(keys),
        delay=delay,
        mode=dice.choice(moves if verb == "move" else modes),
        script=_script(dice, poison=poison),
        run=dice.choice((0, 0, 1, 20, 150, 600)),
        every=dice.choice((200, 700)) if recurs else 0,
    )


def _script(dice: random.Random, *, poison: bool) -> tuple[str, ...]:
    if poison and dice.random() < 0.2:
        return ("kill",)
    if dice.random() < 0.6:
        return ("ok",)
    words = ("fail", "retry", "snooze", "ok")
    body = tuple(dice.choice(words) for _ in range(dice.choice((1, 1, 2, 3))))
    return (*body, dice.choice(("ok", "ok", "skip", "dead", "fail")))


def _pause(dice: random.Random, span: int, who: tuple[str, ...]) -> list[Step]:
    at, kind = dice.randrange(span), dice.choice(KINDS)
    return [
        Step(at=at, who=dice.choice(who), verb="pause", kind=kind),
        Step(at=at + dice.randrange(3_000), who=dice.choice(who), verb="resume", kind=kind),
    ]


_WEATHER = {
    "calm": (),
    "poison": (),
    "crashes": ("kill", "kill", "leave", "stall"),
    "network": ("cut", "deaf", "lag", "mute", "lag", "deaf"),
    "medium": ("crash", "slow", "contend"),
    "clocks": ("clock", "step", "stall"),
    "storm": (
        *("kill", "leave", "stall", "cut", "deaf", "lag", "slow"),
        *("mute", "contend", "crash", "clock", "step"),
    ),
}
_OF_THE_NETWORK = {"cut", "deaf", "lag"}
_OF_ALL = {"slow", "mute", "contend", "crash", "clock"}


def _faults(
    dice: random.Random,
    weather: str,
    span: int,
    lease: int,
    processes: tuple[str, ...],
    *,
    networked: bool,
) -> list[Fault]:
    choices = [what for what in _WEATHER[weather] if networked or what not in _OF_THE_NETWORK]
    if not choices:
        return []
    return [
        _fault(dice, dice.choice(choices), span, lease, processes)
        for _ in range(dice.choice((1, 2, 2, 3, 5)))
    ]


def _fault(
    dice: random.Random, what: str, span: int, lease: int, processes: tuple[str, ...]
) -> Fault:
    at = dice.randrange(span + 500)
    who = "" if what in _OF_ALL else dice.choice(processes)
    amount = 0
    length = dice.choice((20, 100, lease // 2, lease + 100, 2 * lease + 300))
    if what in {"lag", "slow"}:
        amount = dice.choice((40, 200, lease, lease + 400))
    elif what in {"clock", "step"}:
        amount = dice.choice((-4_000, -700, 400, 5_000))
        length = 0
    return Fault(at=at, what=what, who=who, span=length, amount=amount)
