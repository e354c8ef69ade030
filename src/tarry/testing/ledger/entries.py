"""Entries: what is written down while a history runs, and what a checker says about it."""

import msgspec


class Asked(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """An operation leaves its caller: schedule, move, cancel, revive, purge or claim."""

    op: int
    """Names the operation within the history."""
    verb: str
    ref: str = ""
    by: str = ""
    """The process that asks."""
    series: bool = False
    """The schedule carries a rule: later revisions come of themselves."""
    earliest: int = 0
    """What is accepted may not begin before: the store's clock plus the delay; 0: not known."""
    declared: bool = False
    """The series belongs to the code: it is there for as long as workers are."""
    if_revision: int = 0
    """It is to act only on this revision, which is all it conflicts with; 0: on any."""
    delay_ms: int = 0
    """How long after it is accepted it is to be due."""
    max_wait_ms: int = 0
    """It puts off what waits, but never so long beyond when that was made; 0: as long as it is."""
    anew: bool = False
    """What it replaces does not matter to it: how long something waits counts from its answer."""
    drop_after_ms: int = 0
    """A task that is so late becomes a dead letter; 0: none does, however late it is."""


class Answered(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The answer to an operation reaches its caller; `status` is the answer's word, lower case."""

    op: int
    status: str
    revision: int = 0
    due: int = 0


class Started(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A handler begins."""

    ref: str
    revision: int
    token: int
    attempt: int
    lost: int
    due: int
    now: int
    """The store's clock: the latest instant it has shown since the lease was granted."""
    by: str
    claim: int = 0
    """The op of the claim that brought the lease; 0: not known."""
    op: int = 0
    """The op of the schedule whose payload the handler was given; 0: not known."""


class Finished(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The worker has decided what becomes of a lease; `outcome` is its name, lower case."""

    token: int
    outcome: str
    earliest: int = 0
    """A retry or snooze may not begin before: the store's clock plus its delay; 0: not known."""


class Settled(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The store's answer to a settlement reaches the worker: settled, superseded, lease_lost."""

    token: int
    outcome: str
    answer: str


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """Something broke: a process died, stalled or was cut off.

    `by` is empty if it was the medium itself, which may have forgotten what it need not keep, and
    "clock" if the store's clock stepped: leases end early or late, and nothing is forgotten.
    """

    by: str
    how: str


class Drained(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """Nothing is asked any more, and whatever was due has had its time; `Left` entries follow."""


class Left(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """What the store holds after the drain; `state` is scheduled, leased or dead."""

    ref: str
    state: str
    revision: int
    attempt: int = 0
    lost: int = 0
    reason: str = ""
    due: int = 0
    ended: int = 0
    """When it died, by the store's clock; 0: that is not known."""
    declared: bool = False


Entry = Asked | Answered | Started | Finished | Settled | Failed | Drained | Left


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept: which rule, of whom, and the entries that show it."""

    rule: str
    ref: str
    said: str
    entries: tuple[Entry, ...] = ()
