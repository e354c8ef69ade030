"""Campaigns: all the ways in which `tarry prove` tries to break tarry.

Each function does one slice, in a process of its own; it imports what it stands on by itself, so
that a tool that is missing takes only its own campaign away.
"""

import sys
from collections import Counter
from functools import partial
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from tarry.stores.connect import file_of
from tarry.stores.store import Store
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import Asked, Entry, Failed, Started
from tarry.testing.proof.campaign import FILE, Campaign, Caught, Slice
from tarry.testing.proof.place import leave, lodge, lodged, lodging
from tarry.testing.proof.tally import Broken, Tally

_MODEL = 10
"""Hypothesis draws another series of histories if it is asked for more of them."""
_STEPS = 40
_LONG_MS = 86_400_000
"""Longer than any lease of a model history."""


def simulation(first: int, count: int, url: str) -> Tally:
    """Run the histories of *count* seeds from *first* on."""
    from tarry.testing.proof.ground import ground  # noqa: PLC0415 - see above
    from tarry.testing.simulation import run  # noqa: PLC0415 - see above

    tally = Tally()
    with ground(url) as there:
        for seed in range(first, first + count):
            replay = f"tarry prove --seed {seed}{_on(url, 'memory:')}"
            tally.tried += 1
            try:
                history = run(there.plan(seed), there.bench)
            except Exception as error:  # noqa: BLE001 - a finding, whatever it is
                tally.broken.append(Broken("crashed", f"{type(error).__name__}: {error}", replay))
                continue
            tally.count(_counts(history.entries).items())
            tally.broken += [
                Broken(found.rule, f"{found.ref}: {found.said}".removeprefix(": "), replay)
                for found in history.violations
            ]
    return tally


def _on(url: str, by_default: str) -> str:
    """Return the option that names the store, without its name, which may hold secrets."""
    return "" if url == by_default else " --store URL"


def _counts(entries: list[Entry]) -> Counter[str]:
    """Count what happened: a run in which nothing did proves nothing."""
    counts: Counter[str] = Counter()
    for entry in entries:
        match entry:
            case Asked(verb="claim"):
                counts["claims"] += 1
            case Asked():
                counts["calls"] += 1
            case Started(lost=lost):
                counts["attempts"] += 1
                counts["attempts after a lost lease"] += lost > 0
            case Failed(how=how):
                counts[how] += 1
            case _:
                pass
    return counts


def controls(first: int, count: int, _url: str) -> Tally:
    """Hunt for the negative controls from number *first* on."""
    from tarry.testing.proof.ground import controls as every  # noqa: PLC0415 - see above

    found = Slice()
    for control in every()[first : first + count]:
        found.tried += 1
        found.caught[control.name] = None
        seed = control.hunt()
        history = None if seed is None else control.caught(seed)
        if seed is not None and history is not None:
            [rule, *_] = [one.rule for one in history.violations if one.rule in control.rules]
            found.caught[control.name] = Caught(seed, rule)
            found.count([("histories", seed + 1)])
    return found


def model(first: int, count: int, url: str) -> Tally:
    """Drive a store beside the memory store, and compare whatever they answer."""
    import hypothesis  # noqa: PLC0415 - see above
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 - see above

    from tarry.testing.state_machine import compare  # noqa: PLC0415 - see above

    tally = Tally()
    settings = hypothesis.settings(
        max_examples=count,
        stateful_step_count=_STEPS,
        database=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with lodging(url) as own:
        clocks: list[ManualClock] = []

        def make(clock: ManualClock) -> Store:
            tally.tried = min(tally.tried + 1, count)
            clocks[:] = [clock]
            return lodge(own, clock)

        def close(store: Store) -> None:
            clocks[0].advance(_LONG_MS)
            leave(store)

        machine = hypothesis.seed(first)(compare(make, close))
        try:
            run_state_machine_as_test(machine, settings=settings)
        except Exception as error:  # noqa: BLE001 - a finding, whatever it is
            said = f"{type(error).__name__}: {error}; {'; '.join(getattr(error, '__notes__', ()))}"
            replay = f"tarry prove --only model --first {first} --budget 1s{_on(url, FILE)}"
            tally.broken.append(Broken("differs from the model", said, replay))
    return tally


def kills(first: int, count: int, url: str) -> Tally:
    """Kill real producers and workers."""
    from tarry.testing.proof import kills as murder  # noqa: PLC0415 - see above

    with lodging(url) as own:
        return murder.run(first, count, url=own)


def stalls(first: int, count: int, url: str) -> Tally:
    """Stop real workers for longer than their leases."""
    from tarry.testing.proof import kills as murder  # noqa: PLC0415 - see above

    with lodging(url) as own:
        return murder.stalls(first, count, url=own)


def server_kills(first: int, count: int, url: str) -> Tally:
    """Kill a server of our own, of the kind that *url* names, under producers and workers."""
    from tarry.testing.proof import kills as murder  # noqa: PLC0415 - see above

    return murder.server_kills(first, count, medium=url.partition(":")[0])


def _is_mysql(url: str) -> bool:
    return url.partition(":")[0] in {"mysql", "mariadb"}


def power_cuts(first: int, count: int, url: str) -> Tally:
    """Cut the power under a file."""
    from tarry.testing.proof import power  # noqa: PLC0415 - see above

    options = dict(parse_qsl(urlsplit(url).query))
    return power.run(first, count, sync=options.get("sync", "full"))


def system_calls(first: int, count: int, _url: str) -> Tally:
    """Let one system call after the other fail, in each way: units in a row miss none."""
    from tarry.testing.proof import syscalls  # noqa: PLC0415 - see above

    points = syscalls.sample(0, sys.maxsize)
    ways = list(syscalls.FAULTS)
    units = [divmod(number, len(ways)) for number in range(first, first + count)]
    tally = Tally()
    for way, how in enumerate(ways):
        chosen = [points[place % len(points)] for place, which in units if which == way]
        if chosen:
            tally.add(syscalls.run(first, len(chosen), how=how, points=chosen))
    return tally


# ---- what each stands on


def lacking(module: str, package: str, _url: str = "") -> str:
    """Say that *module* is not installed, and how to get it; empty if it is."""
    there = find_spec(module) is not None
    return "" if there else f"{module} is not installed: pip install {package}"


def _needs_processes(url: str) -> str:
    with lodging(url) as own, lodged(own) as store:
        shared = store.capabilities.shared
        medium = store.capabilities.medium
    return "" if shared else f"{medium} lives in one process: there is nobody to kill"


def _needs_server(url: str) -> str:
    from tarry.testing.proof import (  # noqa: PLC0415 - see above
        mysql_server,
        postgres_server,
        redis_server,
    )

    if url == _OWN_POSTGRES:
        return postgres_server.unavailable()
    if _is_mysql(url):
        return mysql_server.unavailable()
    if url != _OWN_SERVER:
        return (
            "it kills a Redis that it starts itself, and no other: leave --store out, or write "
            f"--store {_OWN_POSTGRES} for a PostgreSQL of its own"
        )
    return redis_server.unavailable()


def _needs_power(url: str) -> str:
    from tarry.testing.proof import power  # noqa: PLC0415 - see above

    return _needs_file(url) or power.unavailable()


def _needs_strace(url: str) -> str:
    from tarry.testing.proof import syscalls  # noqa: PLC0415 - see above

    why = syscalls.unavailable()
    if why:
        why += "; apt-get install strace brings it where it is missing"
    return _needs_file(url) or why


def _needs_file(url: str) -> str:
    return "" if file_of(url) else "it is about files, and this store is none"


_OWN_SERVER = "redis:"
"""Stands for a server that the campaign starts itself."""
_OWN_POSTGRES = "postgresql:"
"""The same, if somebody asks for it."""
_prove = partial(lacking, "greenlet", "'tarry[prove]'")
_HERE = __name__

CAMPAIGNS = (
    Campaign(
        "controls",
        "controls",
        "algorithms known to be wrong, from tutorials and from tarry's own rules broken one at a "
        "time: the simulation must catch each of them",
        f"{_HERE}:controls",
        _prove,
        "memory:",
        share=20,
        finite=True,
    ),
    Campaign(
        "simulation",
        "histories",
        "the real code in virtual time: many processes, crashes, stalls, wrong clocks, a bad "
        "network; a seed is a history, always the same",
        f"{_HERE}:simulation",
        _prove,
        "memory:",
        share=8,
        least=20,
        most=1_000,
    ),
    Campaign(
        "model",
        "model histories",
        "a store beside the memory store: whatever is asked, both answer the same",
        f"{_HERE}:model",
        partial(lacking, "hypothesis", "'tarry[prove]'"),
        least=_MODEL,
        most=_MODEL,
    ),
    Campaign(
        "kills",
        "kills",
        "real producers and workers, killed (SIGKILL) at random instants",
        f"{_HERE}:kills",
        _needs_processes,
        share=3,
        least=15,
        most=100,
    ),
    Campaign(
        "stalls",
        "stalls",
        "real workers, stopped (SIGSTOP) for longer than their leases, then let go on",
        f"{_HERE}:stalls",
        _needs_processes,
        least=3,
        most=9,
    ),
    Campaign(
        "server-kills",
        "server kills",
        "a server of its own, killed at once under real producers and workers, and started again",
        f"{_HERE}:server_kills",
        _needs_server,
        _OWN_SERVER,
        least=5,
        most=25,
    ),
    Campaign(
        "power-cuts",
        "power cuts",
        "a file whose disk forgets what was not synced, cut at every kind of step",
        f"{_HERE}:power_cuts",
        _needs_power,
        share=2,
        least=50,
        most=1_000,
    ),
    Campaign(
        "system-calls",
        "system calls",
        "a process that is killed, or gets EIO or ENOSPC, at each write and sync it asks for",
        f"{_HERE}:system_calls",
        _needs_strace,
        least=6,
        most=60,
    ),
)
