"""Ground: what a simulated history runs on: a real store, tarry's own model, or a control."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import msgspec
from msgspec.structs import replace

from tarry.clock import Clock
from tarry.errors import ConfigError
from tarry.stores.store import Capabilities, Store, Watcher
from tarry.testing.controls.control import Control
from tarry.testing.proof.place import leave, lodge, lodged, lodging
from tarry.testing.simulation import REAL, Bench, Plan, draw
from tarry.testing.simulation.plan import Fault
from tarry.testing.simulation.wire import Wire

_OF_THE_NETWORK = {"cut", "deaf", "lag"}


class Ground(msgspec.Struct, frozen=True):
    """Which plan a seed stands for, and what it is run on."""

    bench: Bench = REAL
    plan: Callable[[int], Plan] = draw
    rules: tuple[str, ...] = ()
    """What a control is known to break."""


@contextmanager
def ground(url: str) -> Iterator[Ground]:
    """Lend the code of the store at *url*; memory: is the model, with crashes that forget."""
    if url.startswith("memory:"):
        yield Ground()
        return
    with lodging(url) as own:
        with lodged(own) as store:
            networked = store.capabilities.remembers_calls
        stores = _Stores(own)
        try:
            if networked:
                yield Ground(Bench(store=stores, wire=_Deaf), draw_deaf)
            else:
                yield Ground(Bench(store=stores), draw_embedded)
        finally:
            stores.leave()


class _Stores:
    """Opens a store for each history, and leaves the one before it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[Store] = []

    def __call__(self, clock: Clock, _dice: Random, _able: Capabilities) -> Store:
        self.leave()
        self._open.append(lodge(self._url, clock))
        return self._open[-1]

    def leave(self) -> None:
        """Leave the last one."""
        while self._open:
            leave(self._open.pop())


class _Deaf(Wire):
    """A way to a server whose wake-ups come in real time, and so have no place in virtual time."""

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Hear of nothing."""
        del callback
        return lambda: None


def draw_deaf(seed: int) -> Plan:
    """Return the plan of *seed* for workers that hear of nothing, and look every two seconds."""
    plan = draw(seed)
    return replace(plan, faults=(*plan.faults, Fault(0, "mute")))


def draw_embedded(seed: int) -> Plan:
    """Return the plan of *seed* without a network: what forgets calls must not lie behind one."""
    plan = draw(seed)
    faults = tuple(fault for fault in plan.faults if fault.what not in _OF_THE_NETWORK)
    return replace(plan, networked=False, faults=faults)


def controls() -> tuple[Control, ...]:
    """Return every negative control."""
    from tarry.testing.controls.shortest import CONTROLS  # noqa: PLC0415 - as needed

    return CONTROLS


def of_control(name: str) -> Ground:
    """Return what the control called *name* runs on."""
    known = {control.name: control for control in controls()}
    if name not in known:
        message = f"there is no control {name!r}; there are: {', '.join(sorted(known))}"
        raise ConfigError(message)
    control = known[name]
    return Ground(control.bench, rules=control.rules)
