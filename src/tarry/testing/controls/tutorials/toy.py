"""Toy: the least that a history asks of a medium; the tutorials' media stand on it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.due import resolve
from tarry.lease import Lease
from tarry.life import claim
from tarry.request import Request
from tarry.runtime import Runtime
from tarry.stores.store import Capabilities, Counts, Filter, Page, Watcher
from tarry.task import Task, TaskState


class Toy(ABC):
    """A medium that can be asked what is left in it. It wakes nobody: the tutorials poll."""

    capabilities: Capabilities

    @abstractmethod
    def waiting(self) -> Iterable[Task]:
        """Return everything that may still run."""

    def pause(self, kind: str, paused: bool, *, call: str) -> bool:  # noqa: FBT001 - see Store
        """Pause nothing: no tutorial speaks of it."""
        del kind, paused, call
        return False

    def counts(self) -> Mapping[str, Counts]:
        """Count what waits, by kind."""
        tally = Counter(task.ref.kind for task in self.waiting())
        return {kind: Counts(scheduled=count) for kind, count in tally.items()}

    def scan(self, where: Filter, *, cursor: str | None, limit: int) -> Page:
        """Show what waits, all at once."""
        del cursor, limit
        return Page(list(self.waiting()) if where.state is TaskState.SCHEDULED else [], None)

    def check(self) -> list[str]:
        """Find nothing wrong: that is left to the ledger."""
        return []

    def watch(self, _callback: Watcher) -> Callable[[], None]:
        """Tell nobody."""
        return lambda: None


def draft(request: Request, now: int, revision: int) -> Task:
    """Return the task that *request* asks for; it has a revision so that the ledger can tell."""
    due = resolve(request.due, now)
    return Task(ref=request.ref, due=due, revision=revision, created=now, payload=request.payload)


def hand_out(tasks: Sequence[Task], holder: str, expires: int, runtime: Runtime) -> list[Lease]:
    """Return tasks as tarry's worker takes them; nothing else knows of these leases."""
    return [claim(task, token=runtime.unique(62), holder=holder, expires=expires) for task in tasks]


def as_it_was(lease: Lease) -> Task:
    """Return a task as it was before it was handed out."""
    return replace(lease.task, attempt=0, state=TaskState.SCHEDULED)
