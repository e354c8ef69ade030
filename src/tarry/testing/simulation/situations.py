"""Situations known to be delicate: small plans around one thing that may go wrong."""

import random
from collections.abc import Callable

from tarry.testing.simulation.plan import KINDS, SERIES, Declared, Fault, Plan, Step


def series(seed: int) -> Plan:
    """Cancel a task that recurs while it runs."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    kind = dice.choice(KINDS)
    first = Step(at=10, who="p1", verb="schedule", kind=kind, run=150, every=200)
    cancel = Step(at=dice.randrange(20, 800), who="p1", verb="cancel", kind=kind)
    return Plan(seed=seed, steps=(first, cancel))


def declared_series(seed: int) -> Plan:
    """Skip occurrences of a series that the code declares, while it waits and while it runs."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    ats = sorted(dice.randrange(20, 1_500) for _ in range(dice.choice((1, 2, 3))))
    steps = tuple(Step(at=at, who="p1", verb="cancel", kind=SERIES, key=SERIES) for at in ats)
    kill = Fault(at=dice.randrange(200, 900), what="kill", who="w1", span=100)
    return Plan(
        seed=seed,
        lease=300,
        latency_us=3_000,
        workers=("w1",),
        declared=Declared(every=300, run=dice.choice((0, 100))),
        steps=steps,
        faults=dice.choice(((), (), (kill,))),
    )


def overtime(seed: int) -> Plan:
    """Give handlers less time than some of them take, and more than others do."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = tuple(
        Step(
            at=10 + number,
            who="p1",
            verb="schedule",
            kind=dice.choice(KINDS),
            key=f"{number}",
            run=dice.choice((20, 80, 150, 600)),
        )
        for number in range(dice.choice((1, 3)))
    )
    return Plan(seed=seed, retries=1, timeout=100, steps=steps)


def debounced(seed: int) -> Plan:
    """Put a task off again and again, for as long as that is allowed."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    ats = sorted(dice.randrange(10, 700) for _ in range(dice.choice((3, 6))))
    steps = tuple(
        Step(at=at, who="p1", verb="schedule", delay=200, mode="latest", max_wait=450) for at in ats
    )
    return Plan(seed=seed, steps=steps)


def expired(seed: int) -> Plan:
    """Pause a kind for about as long as its tasks may be late."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    kind = dice.choice(KINDS)
    steps = (
        Step(at=10, who="p1", verb="pause", kind=kind),
        Step(at=30, who="p1", verb="schedule", kind=kind, delay=dice.choice((0, 200))),
        Step(at=dice.choice((100, 300, 500, 900)), who="p1", verb="resume", kind=kind),
        Step(at=1_000, who="p1", verb=dice.choice(("revive", "purge", "schedule")), kind=kind),
    )
    return Plan(seed=seed, drop_after=250, steps=steps)


def named_revisions(seed: int) -> Plan:
    """Ask for what is to be done to one revision only, while others make new ones."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    first = Step(at=10, who="p1", verb="schedule", delay=400)
    others = [
        Step(
            at=dice.randrange(15, 500),
            who=dice.choice(("p1", "a1")),
            verb=dice.choice(("schedule", "move", "cancel")),
            delay=dice.choice((0, 200)),
            named=dice.choice((0, 1, 1, 2)),
        )
        for _ in range(4)
    ]
    steps = (first, *sorted(others, key=lambda step: step.at))
    return Plan(seed=seed, producers=("p1", "a1"), latency_us=3_000, steps=steps)


def purged(seed: int) -> Plan:
    """Purge and revive dead letters of one key, in any order."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = [
        Step(at=10, who="p1", verb="schedule", script=("dead",)),
        Step(at=dice.randrange(20, 60), who="p1", verb="schedule", script=("dead",)),
        *(
            Step(
                at=dice.randrange(10, 120), who=who, verb=dice.choice(("purge", "purge", "revive"))
            )
            for who in ("p1", "p2", "p2")
        ),
    ]
    ordered = tuple(sorted(steps, key=lambda step: step.at))
    return Plan(seed=seed, producers=("p1", "p2"), latency_us=3_000, steps=ordered)


def cancelled_and_lost(seed: int) -> Plan:
    """Cancel a task while it runs, and kill its worker then."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    at = dice.randrange(50, 400)
    steps = (
        Step(at=10, who="p1", verb="schedule", run=600),
        Step(at=at, who="p1", verb="cancel"),
    )
    kill = Fault(at=at + dice.randrange(200), what="kill", who="w1", span=100)
    return Plan(seed=seed, lease=300, workers=("w1",), steps=steps, faults=(kill,))


def revived_while_running(seed: int) -> Plan:
    """Revive a dead letter while a newer revision of its ref runs."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = (
        Step(at=10, who="p1", verb="schedule", script=("dead",)),
        Step(at=100, who="p1", verb="schedule", run=600),
        Step(at=dice.randrange(100, 700), who="p1", verb="revive"),
    )
    return Plan(seed=seed, steps=steps)


def late_replies(seed: int) -> Plan:
    """Stall a worker between a claim and its reply for longer than the lease, and cancel then."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = (
        Step(at=10, who="p1", verb="schedule", delay=100),
        Step(at=dice.randrange(450, 600), who="p1", verb="cancel"),
    )
    stall = Fault(at=dice.randrange(110, 116), what="stall", who="w1", span=700)
    faults = (stall,)
    return Plan(seed=seed, lease=300, latency_us=3_000, workers=("w1",), steps=steps, faults=faults)


def unheard_claims(seed: int) -> Plan:
    """Let no reply reach the only worker for a long time."""
    steps = (Step(at=10, who="p1", verb="schedule", delay=100),)
    faults = (Fault(at=60, what="deaf", who="w1", span=14_000),)
    return Plan(seed=seed, lease=300, workers=("w1",), steps=steps, faults=faults)


def unheard_cancel(seed: int) -> Plan:
    """Let the reply to a cancel get lost, and schedule the key anew before it is repeated."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    at = dice.randrange(50, 100)
    steps = (
        Step(at=10, who="p1", verb="schedule", delay=900),
        Step(at=at, who="a1", verb="cancel"),
        Step(at=at + dice.randrange(10, 200), who="p1", verb="schedule", delay=900),
    )
    faults = (Fault(at=at - 5, what="deaf", who="a1", span=100),)
    return Plan(seed=seed, producers=("p1", "a1"), steps=steps, faults=faults)


def unheard_move(seed: int) -> Plan:
    """Let the reply to a move get lost, and what was moved run before the move is repeated."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    at = dice.randrange(50, 100)
    steps = (
        Step(at=10, who="p1", verb="schedule", delay=900),
        Step(at=at, who="a1", verb="move", mode="set", delay=dice.choice((0, 100, 250))),
    )
    faults = (Fault(at=at - 5, what="deaf", who="a1", span=100),)
    return Plan(seed=seed, producers=("p1", "a1"), steps=steps, faults=faults)


def pairs(seed: int) -> Plan:
    """Schedule two tasks within the time that one claim takes, a few times."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = []
    for at in range(100, 4_100, 800):
        again = at + dice.randrange(1, 8)
        steps += [
            Step(at=at, who="p1", verb="schedule", key=f"{at}"),
            Step(at=again, who="p2", verb="schedule", key=f"{again}"),
        ]
    producers = ("p1", "p2")
    return Plan(
        seed=seed, latency_us=3_000, producers=producers, workers=("w1",), steps=tuple(steps)
    )


def two_crews(seed: int) -> Plan:
    """Workers that look after one kind each, and tasks due a little later."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = [
        Step(
            at=dice.randrange(2_000),
            who="p1",
            verb="schedule",
            kind=dice.choice(KINDS),
            key=str(number),
            delay=dice.choice((0, 50, 300, 900)),
        )
        for number in range(6)
    ]
    ordered = tuple(sorted(steps, key=lambda step: step.at))
    return Plan(seed=seed, workers=("wa", "wp"), steps=ordered)


def paused(seed: int) -> Plan:
    """Pause a kind for a while, with something due in it."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    at = dice.randrange(50, 300)
    steps = (
        Step(at=10, who="p1", verb="pause"),
        Step(at=at, who="p1", verb="schedule"),
        Step(at=at + dice.randrange(4_000, 8_000), who="p1", verb="resume"),
    )
    return Plan(seed=seed, steps=steps)


def contended(seed: int) -> Plan:
    """Due tasks that others hold locked for a moment."""
    steps = (Step(at=100, who="p1", verb="schedule"),)
    faults = (Fault(at=50, what="contend", span=500),)
    return Plan(seed=seed, steps=steps, faults=faults)


def poisoned(seed: int) -> Plan:
    """One task that kills its worker, and others that are due with it."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    steps = [Step(at=10, who="p1", verb="schedule", delay=100, script=("kill",))]
    steps += [
        Step(at=11 + number, who="p1", verb="schedule", key=f"{number + 2}", delay=100)
        for number in range(dice.choice((1, 2, 3)))
    ]
    return Plan(seed=seed, lease=300, concurrency=4, workers=("w1",), steps=tuple(steps))


def late_tries(seed: int) -> Plan:
    """Hold up the first try of some calls until long after its repeat was answered."""
    dice = random.Random(seed)  # noqa: S311 - the same plan for the same seed
    verbs = ("schedule", "move", "cancel")
    steps = [Step(at=10, who="p1", verb="schedule", delay=700)]
    steps += [
        Step(at=dice.randrange(30, 200), who="a1", verb=dice.choice(verbs), delay=700, mode=mode)
        for mode in ("replace", "set")
    ]
    steps += [
        Step(at=dice.randrange(400, 700), who="p1", verb=dice.choice(verbs), delay=600)
        for _ in range(2)
    ]
    faults = (Fault(at=20, what="lag", who="a1", span=200, amount=1_200),)
    ordered = tuple(sorted(steps, key=lambda step: step.at))
    return Plan(seed=seed, producers=("p1", "a1"), steps=ordered, faults=faults)


SITUATIONS: tuple[Callable[[int], Plan], ...] = (
    series,
    declared_series,
    overtime,
    debounced,
    expired,
    named_revisions,
    purged,
    cancelled_and_lost,
    revived_while_running,
    late_replies,
    unheard_claims,
    unheard_cancel,
    unheard_move,
    pairs,
    two_crews,
    paused,
    contended,
    poisoned,
    late_tries,
)
