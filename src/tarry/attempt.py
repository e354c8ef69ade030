"""Outcomes of an attempt: Done, Retry, Snooze, Skip, Dead, Release."""

from typing import TypeAlias

from tarry.due import At, Due, In, When

REASON_LIMIT = 2_000
"""Longer reasons are cut: a store keeps the end of a story, not its whole traceback."""


class Outcome(Exception):  # noqa: N818 - a wish of the handler, not an error
    """How an attempt ended; a handler may return one or, from deep inside, raise it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = _kept(reason)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.reason))

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value)
        return f"{type(self).__name__}({facts})"


class Done(Outcome):
    """The task did what it was for."""


class Skip(Outcome):
    """There was nothing to do; the task ends well."""


class Dead(Outcome):
    """The task can never succeed; it becomes a dead letter with *reason*."""


class Release(Outcome):
    """The worker gives the attempt back unstarted; nothing about the task changes."""


class _Later(Outcome):
    """The task waits again until *when*."""

    def __init__(self, when: "When | Due", reason: str = "") -> None:
        super().__init__(reason)
        self.when = when

    @property
    def due(self) -> Due:
        """When the task is to be attempted again, once `when` has been read."""
        if isinstance(self.when, At | In):
            return self.when
        message = f"{self!r} has not been read yet"
        raise TypeError(message)


class Retry(_Later):
    """The attempt failed; the next one is at *when* (or as the kind's policy says). Counted."""


class Snooze(_Later):
    """Not yet: the attempt is given back and the task waits until *when*. No failure."""


AnyOutcome: TypeAlias = Done | Skip | Dead | Release | Retry | Snooze


def _kept(reason: object) -> str:
    """Return *reason* as every medium can keep it: text of a bounded length, valid Unicode."""
    text = "" if reason is None else str(reason)[:REASON_LIMIT]
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


DONE = Done()
RELEASE = Release()
