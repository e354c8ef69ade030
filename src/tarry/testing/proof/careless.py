"""Careless stores and a lying disk: what power cuts must find out; each is one rule broken."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tarry.answers import CancelResult
from tarry.clock import Clock
from tarry.request import Cancellation
from tarry.stores.sqlite import steps
from tarry.stores.sqlite.doubt import Doubt
from tarry.stores.sqlite.store import SqliteStore
from tarry.testing.proof import power
from tarry.testing.proof.tally import Tally


class RelaxedCancel(SqliteStore):
    """Commits a cancel as if it were a settlement: it is answered before it is durable."""

    def cancel(
        self, cancellations: Sequence[Cancellation], *, call: str = ""
    ) -> list[CancelResult]:
        """Cancel tasks, without waiting for the disk."""
        del call
        return self._each(cancellations, steps.cancel, durability="normal")


def _boastful(path: str, *, sync: str, clock: Clock, rng: random.Random) -> SqliteStore:
    """Promise what the file is not asked to keep."""
    del sync
    return SqliteStore(path, sync="normal", clock=clock, rng=rng)


def _forgetful(path: str, *, sync: str, clock: Clock, rng: random.Random) -> SqliteStore:
    """Draw the same tokens after every start, as a counter in the file does."""
    del rng
    return SqliteStore(path, sync=sync, clock=clock, rng=random.Random(1))  # noqa: S311 - the bug


class _Trust(Doubt):
    """Takes a failed sync for one lost write, made up for by the next."""

    def stands(self) -> bool:
        """Never doubt."""
        return False


def _trusting(path: str, *, sync: str, clock: Clock, rng: random.Random) -> SqliteStore:
    """Promise as before after a failed sync."""
    store = SqliteStore(path, sync=sync, clock=clock, rng=rng)
    store._connections.doubt = _Trust()  # noqa: SLF001 - the bug
    return store


Control = Callable[[int, int], Tally]
"""Cuts the power from a seed on, so many times."""

CONTROLS: Mapping[str, Control] = {
    "a disk that does not sync": partial(power.run, lying=True),
    "sync=normal taken for full": partial(power.run, make=_boastful),
    "a relaxed cancel": partial(power.run, make=RelaxedCancel),
    "a token reused after a crash": partial(power.run, make=_forgetful),
    "a failed sync taken for the last": partial(power.run, make=_trusting),
}
