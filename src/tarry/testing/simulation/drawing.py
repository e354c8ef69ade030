"""Drawing: from a seed to a plan.

Most plans are made of dice: who asks for what, when, and what breaks meanwhile. One in five is a
situation known to be delicate.
"""

import random

from msgspec.structs import replace

from tarry.testing.simulation.plan import KEYS, KINDS, SERIES, Declared, Fault, Plan, Step
from tarry.testing.simulation.situations import SITUATIONS

_DELICATE = 1 / 5

WEATHERS = ("calm", "crashes", "network", "medium", "clocks", "poison", "storm")
"""What may go wrong in a history: nothing, processes, the network, …, everything."""


def draw(seed: int, weather: str = "") -> Plan:
    """Return the plan of *seed*; *weather* narrows down what goes wrong in it."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    drawn = dice.choices(WEATHERS, (2, 3, 3, 2, 1, 1, 3))[0]
    if not weather and dice.random() < _DELICATE:
        return dice.choice(SITUATIONS)(seed)
    weather = weather or drawn
    networked = weather == "network" or dice.random() < 0.7
    producers = tuple(dice.sample(("p1", "p2", "a1", "a2"), dice.choice((1, 2, 2, 3))))
    workers = dice.choice((("w1",), ("w1", "w2"), ("w1", "w2"), ("w1", "w2", "w3"), ("wa", "wp")))
    span = dice.choice((400, 1_000, 1_000, 3_000))
    keys = KEYS[: dice.choice((1, 2, 2, 3))]
    steps = [
        _step(dice, span, producers, keys, poison=weather == "poison")
        for _ in range(dice.choice((2, 3, 4, 6, 9, 14)))
    ]
    if dice.random() < 0.15:
        steps += _pause(dice, span, producers)
    declared = _declared(dice) if dice.random() < _RARELY else None
    if declared is not None:
        steps += [_about_series(dice, span, producers) for _ in range(dice.choice((0, 1, 2, 3)))]
    lease = dice.choice((300, 500, 800, 1_500))
    faults = _faults(dice, weather, span, lease, producers + workers, networked=networked)
    steps, faults = _crowd(dice, steps, faults, lease)
    return Plan(
        seed=seed,
        networked=networked,
        lease=lease,
        concurrency=dice.choice((1, 2, 3, 4)),
        latency_us=dice.choice((200, 800, 3_000)),
        producers=producers,
        workers=workers,
        retries=dice.choice((0, 1, 2)),
        declared=declared,
        timeout=dice.choice((60, 300)) if dice.random() < _RARELY else 0,
        drop_after=dice.choice((100, 500)) if dice.random() < _RARELY else 0,
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _crowd(
    dice: random.Random, steps: list[Step], faults: list[Fault], lease: int
) -> tuple[list[Step], list[Fault]]:
    """Move some of what happens to where it matters: around a due, or around a lease's end."""
    moments = [step.at + step.delay for step in steps if step.verb in {"schedule", "batch"}]
    if not moments:
        return steps, faults

    def near() -> int:
        after = dice.choice((0, 0, 0, lease))
        return max(0, dice.choice(moments) + after + dice.randrange(-3, 12))

    return (
        [
            replace(step, at=near()) if step.verb not in _MAKES and dice.random() < _OFTEN else step
            for step in steps
        ],
        [replace(fault, at=near()) if dice.random() < _OFTEN else fault for fault in faults],
    )


_MAKES = {"schedule", "batch", "pause", "resume"}
_NAMING = {"schedule", "move", "cancel"}
_OFTEN = 0.4
_RARELY = 0.08


def _step(
    dice: random.Random, span: int, who: tuple[str, ...], keys: tuple[str, ...], *, poison: bool
) -> Step:
    verbs = ("schedule", "batch", "move", "cancel", "revive", "purge")
    verb = dice.choices(verbs, (10, 1, 4, 5, 1, 0.7))[0]
    moves = ("set", "set", "shift", "earlier", "later")
    modes = ("replace", "replace", "replace", "keep", "earliest", "latest", "fail")
    delay = dice.choice((0, 0, 5, 50, 200, 500, 1_000, dice.randrange(3_000)))
    recurs = verb == "schedule" and dice.random() < 0.06
    mode = dice.choice(moves if verb == "move" else modes)
    debounces = verb == "schedule" and mode == "latest"
    return Step(
        at=dice.randrange(span),
        who=dice.choice(who),
        verb=verb,
        kind=dice.choice(KINDS),
        key=dice.choice(keys),
        delay=delay,
        mode=mode,
        script=_script(dice, poison=poison),
        run=dice.choice((0, 0, 1, 20, 150, 600)),
        every=dice.choice((200, 700)) if recurs else 0,
        max_wait=dice.choice((0, 100, 600)) if debounces else 0,
        named=dice.choice((1, 1, 2)) if verb in _NAMING and dice.random() < _RARELY else 0,
    )


def _declared(dice: random.Random) -> Declared:
    script = dice.choice((("ok",), ("ok",), ("fail", "ok"), ("dead",), ("snooze", "ok")))
    return Declared(dice.choice((250, 700)), dice.choice((0, 20, 150)), script)


def _about_series(dice: random.Random, span: int, who: tuple[str, ...]) -> Step:
    """Let somebody meddle with the declared series: skip an occurrence, most of the time."""
    verb = dice.choice(("cancel", "cancel", "cancel", "move", "schedule"))
    return Step(
        at=dice.randrange(span),
        who=dice.choice(who),
        verb=verb,
        kind=SERIES,
        key=SERIES,
        delay=dice.choice((0, 50, 400)),
        mode="replace" if verb == "schedule" else "set",
        run=dice.choice((0, 20, 150)),
        named=dice.choice((1, 1, 2)) if dice.random() < _RARELY else 0,
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
    "crashes": ("kill", "kill", "leave", "stall", "stall"),
    "network": ("cut", "deaf", "lag", "mute", "lag", "deaf"),
    "medium": ("crash", "crash", "slow", "contend", "odd"),
    "clocks": ("clock", "step", "stall"),
    "storm": (
        *("kill", "leave", "stall", "cut", "deaf", "lag", "slow"),
        *("mute", "contend", "crash", "odd", "clock", "step"),
    ),
}
_OF_THE_NETWORK = {"cut", "deaf", "lag"}
_OF_ALL = {"slow", "mute", "contend", "crash", "odd", "clock"}


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
