"""A claim in two steps: read what is due, then mark it."""

from collections.abc import Sequence
from typing import Any

from tarry import life as lives
from tarry.lease import Lease
from tarry.life import Life
from tarry.stores.store import Claimed
from tarry.task import Task
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench
from tarry.testing.simulation.medium import ForgetfulStore
from tarry.testing.simulation.wire import Wire


class _Store(ForgetfulStore):
    def due(self, kinds: Sequence[str], limit: int) -> list[Task]:
        """SELECT … WHERE state = 'waiting' AND due <= now LIMIT …."""
        now = self._clock.now()
        self._reclaim(list(kinds), now)
        waiting = [life.waiting for _, life in self.lives() if life.running is None]
        found = [task for task in waiting if task is not None and task.due <= now]
        return sorted(found, key=lambda task: (task.due, task.revision))[:limit]

    def mark(self, tasks: Sequence[Task], lease_ms: int, holder: str) -> list[Lease]:
        """UPDATE … SET state = 'leased', holder = … WHERE key IN (…)."""
        expires = self._clock.now() + lease_ms
        leases = []
        for task in tasks:
            lease = lives.claim(
                task, token=self._random.getrandbits(62), holder=holder, expires=expires
            )
            waiting = self.life_of(task.ref).waiting
            self.put_life(task.ref, Life(None if waiting == task else waiting, lease))
            leases.append(lease)
        return leases


class _Wire(Wire):
    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Exchange; a claim is two exchanges and a look at what comes next."""
        if verb != "claim":
            return super().ask(verb, *args, **kwargs)
        [kinds] = args
        tasks = super().ask("due", kinds, kwargs["limit"])
        # The step in which it goes wrong: it marks what was due a moment ago, on the condition
        # of nothing, though another worker may have marked, or a caller cancelled it since.
        leases = super().ask("mark", tasks, kwargs["lease_ms"], kwargs["holder"]) if tasks else []
        ahead: Claimed = super().ask("claim", kinds, limit=0, lease_ms=1, holder="")
        return Claimed(leases, ahead.now, ahead.micros, ahead.next_due)


TWO_STEP_CLAIM = Control(
    name="two-step-claim",
    title="a worker reads which tasks are due, then marks them as its own",
    wrong=(
        "Two workers that look at the same moment read the same tasks, and both mark them: the "
        "second mark overwrites the first, and both run them. The update needs the condition the "
        "read had (still waiting, still this revision), and a worker may only run what the update "
        "says it got; or the two must be one step."
    ),
    rules=("double start", "after cancel"),
    bench=Bench(
        store=lambda clock, dice, able: _Store(clock=clock, rng=dice, capabilities=able),
        wire=_Wire,
    ),
)
