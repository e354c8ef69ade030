"""The ledger's rules fire when a promise is broken, and only then; a book outlives its writers."""

import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tarry.attempt import AnyOutcome, Dead, Done, Release, Retry, Skip, Snooze
from tarry.backoff import Backoff
from tarry.due import In
from tarry.lease import Lease
from tarry.outcome.decide import before, name
from tarry.recurrence import Rule
from tarry.request import (
    Cancellation,
    DeadRef,
    Move,
    OnConflict,
    Request,
    Settlement,
    Successor,
)
from tarry.stores.memory import MemoryStore
from tarry.stores.store import Filter
from tarry.task import TaskRef, TaskState
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import (
    RULES,
    Answered,
    Asked,
    Book,
    Drained,
    Entry,
    Failed,
    Finished,
    Left,
    Settled,
    Started,
    check,
    earliest,
)

Part = Entry | list[Entry]
_PAGE = os.sysconf("SC_PAGE_SIZE")

# ---- the words in which a history is told; its one ref is "a" unless it says another


def ask(
    op: int,
    verb: str = "schedule",
    *,
    ref: str = "a",
    series: bool = False,
    declared: bool = False,
    earliest: int = 0,
    if_revision: int = 0,
    delay_ms: int = 0,
    max_wait_ms: int = 0,
    anew: bool = False,
    drop_after_ms: int = 0,
) -> Entry:
    return Asked(
        op=op,
        verb=verb,
        ref="" if verb == "claim" else ref,
        by="p",
        series=series or declared,
        declared=declared,
        earliest=earliest,
        if_revision=if_revision,
        delay_ms=delay_ms,
        max_wait_ms=max_wait_ms,
        anew=anew,
        drop_after_ms=drop_after_ms,
    )


def said(op: int, status: str, revision: int = 0, *, due: int = 0) -> Entry:
    return Answered(op=op, status=status, revision=revision, due=due)


def schedule(op: int, status: str, revision: int, *, ref: str = "a", due: int = 0) -> list[Entry]:
    return [ask(op, ref=ref), said(op, status, revision, due=due)]


def move(op: int, status: str, revision: int = 0) -> list[Entry]:
    return [ask(op, "move"), said(op, status, revision)]


def cancel(op: int, status: str) -> list[Entry]:
    return [ask(op, "cancel"), said(op, status)]


def start(
    revision: int,
    token: int,
    *,
    ref: str = "a",
    by: str = "w",
    lost: int = 0,
    due: int = 0,
    now: int = 0,
    claim: int = 0,
    op: int = 0,
) -> Entry:
    return Started(
        ref=ref,
        revision=revision,
        token=token,
        attempt=1 + lost,
        lost=lost,
        due=due,
        now=now,
        by=by,
        claim=claim,
        op=op,
    )


def finish(token: int, outcome: str = "done", *, earliest: int = 0) -> Entry:
    return Finished(token=token, outcome=outcome, earliest=earliest)


def settled(token: int, outcome: str = "done", answer: str = "settled") -> Entry:
    return Settled(token=token, outcome=outcome, answer=answer)


def killed(by: str = "w") -> Entry:
    return Failed(by=by, how="killed")


def run(
    revision: int, token: int, outcome: str = "done", *, lost: int = 0, op: int = 0
) -> list[Entry]:
    begun = start(revision, token, lost=lost, op=op)
    return [begun, finish(token, outcome), settled(token, outcome)]


def dead(revision: int, reason: str, *, lost: int = 0) -> Entry:
    return Left(ref="a", state="dead", revision=revision, lost=lost, reason=reason)


def of_revision(
    op: int, wanted: int, status: str, revision: int = 0, *, verb: str = "move"
) -> list[Entry]:
    return [ask(op, verb, if_revision=wanted), said(op, status, revision)]


def put_off(op: int, status: str, revision: int, *, due: int, max_wait: int = 100) -> list[Entry]:
    asked = ask(op, delay_ms=50, max_wait_ms=max_wait)
    return [asked, said(op, status, revision, due=due)]


def due_run(revision: int, token: int, due: int) -> list[Entry]:
    return [start(revision, token, due=due, now=due), finish(token), settled(token)]


def purge(op: int, status: str) -> list[Entry]:
    return [ask(op, "purge"), said(op, status)]


def expired(late: int) -> Entry:
    reason = f"expired: {late / 1_000:.3f} s late"
    return Left(ref="a", state="dead", revision=1, reason=reason, due=1_000, ended=1_000 + late)


def declare(op: int, status: str, revision: int) -> list[Entry]:
    return [ask(op, declared=True), said(op, status, revision)]


def skip(op: int, revision: int, *, of: int) -> list[Entry]:
    """Cancel an occurrence of a declared series: a move to the next one."""
    inner = [ask(op + 1, "move", if_revision=of), said(op + 1, "moved", revision)]
    return [ask(op, "cancel"), *inner, said(op, "cancelled")]


def goes_on(revision: int) -> Entry:
    return Left(ref="a", state="scheduled", revision=revision, declared=True)


SERIES = Rule.make(every="1s").text()
CRASH = Failed(by="", how="the medium crashed")
STEP = Failed(by="clock", how="the clock was stepped")
LOST_ONCE = "lost too often: 1 workers died or stalled while attempting it"
LOST_TWICE = "lost too often: 2 workers died or stalled while attempting it"
DRAINED = Drained()


def told(parts: Iterable[Part]) -> list[Entry]:
    """Return a history as it is told, drained at its end unless it says where."""
    entries: list[Entry] = []
    for part in parts:
        entries += part if isinstance(part, list) else [part]
    if DRAINED not in entries:
        lefts = [entry for entry in entries if isinstance(entry, Left)]
        entries = [entry for entry in entries if entry not in lefts]
        entries += [DRAINED, *lefts]
    return entries


def rules(entries: list[Entry]) -> list[str]:
    return [violation.rule for violation in check(entries)]


# ---- each rule beside the nearest history that is legal

PLANTED: dict[str, list[tuple[str, list[Part], list[Part]]]] = {
    "lost": [
        (
            "never attempted; or attempted",
            [schedule(1, "created", 1)],
            [schedule(1, "created", 1), run(1, 10)],
        ),
        (
            "cut off and forgotten; or attempted again",
            [schedule(1, "created", 1), start(1, 10), killed()],
            [schedule(1, "created", 1), start(1, 10), killed(), run(1, 11, lost=1)],
        ),
        (
            "failed once and not again; or became a dead letter",
            [schedule(1, "created", 1), run(1, 10, "retry")],
            [schedule(1, "created", 1), run(1, 10, "retry"), dead(1, "failed too often (2)")],
        ),
        (
            "only the older revision ran; or the newer one, too",
            [schedule(1, "created", 1), run(1, 10), schedule(2, "created", 2)],
            [schedule(1, "created", 1), run(1, 10), schedule(2, "created", 2), run(2, 11)],
        ),
        (
            "a cancel answered before it was asked; or after",
            [cancel(1, "cancelled"), schedule(2, "created", 1)],
            [ask(2), ask(1, "cancel"), said(2, "created", 1), said(1, "cancelled")],
        ),
        (
            "a cancel that found another revision; or that got no answer",
            [schedule(1, "created", 1), cancel(2, "conflict")],
            [schedule(1, "created", 1), ask(2, "cancel")],
        ),
        (
            "a schedule without an answer excuses nothing; and owes nothing",
            [schedule(1, "created", 1), ask(2)],
            [ask(2), ask(3, "move")],
        ),
        (
            "a cancel that found an attempt running, before; or after",
            [
                schedule(1, "created", 1),
                start(1, 10),
                cancel(2, "running"),
                finish(10),
                schedule(3, "created", 2),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                schedule(3, "created", 2),
                cancel(2, "running"),
                finish(10),
            ],
        ),
        (
            "an overlapping cancel that made room for it; an attempt may have made it",
            [
                schedule(1, "created", 1),
                ask(2, "cancel"),
                schedule(3, "created", 2),
                said(2, "cancelled"),
            ],
            [
                schedule(1, "created", 1),
                ask(2, "cancel"),
                schedule(3, "created", 2),
                finish(10, "release"),
                said(2, "cancelled"),
            ],
        ),
        (
            "a dead letter that was revived and never ran; or ran",
            [schedule(1, "created", 1), run(1, 10, "dead"), ask(2, "revive"), said(2, "revived")],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                ask(2, "revive"),
                said(2, "revived"),
                run(2, 11),
            ],
        ),
        (
            "a revision that was said to wait and never ran; or was purged as a dead letter",
            [ask(1), schedule(2, "kept", 1)],
            [ask(1), schedule(2, "kept", 1), ask(3, "purge")],
        ),
        (
            "a dead letter that was dropped; or kept",
            [schedule(1, "created", 1), run(1, 10, "dead")],
            [schedule(1, "created", 1), run(1, 10, "dead"), dead(1, "no such order")],
        ),
        (
            "a dead letter that was dropped, the newer one was not; or it was purged",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                schedule(2, "created", 2),
                run(2, 11),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                schedule(2, "created", 2),
                run(2, 11),
                ask(3, "purge"),
            ],
        ),
        (
            "a dead letter that was purged before it was one; a medium that crashed forgot it",
            [
                schedule(1, "created", 1),
                ask(2, "purge"),
                said(2, "purged"),
                run(1, 10, "dead"),
            ],
            [schedule(1, "created", 1), run(1, 10, "dead"), CRASH, run(1, 11)],
        ),
        (
            "a dead letter that a step of the clock does not excuse; kept in spite of it",
            [schedule(1, "created", 1), run(1, 10, "dead"), STEP],
            [schedule(1, "created", 1), run(1, 10, "dead"), STEP, dead(1, "no such order")],
        ),
        (
            "a declared series that ended with an occurrence; or goes on",
            [declare(1, "created", 1), run(1, 10)],
            [declare(1, "created", 1), run(1, 10), goes_on(2)],
        ),
        (
            "a declared series that ended with a cancel; or skipped an occurrence",
            [declare(1, "created", 1), cancel(2, "cancelled")],
            [declare(1, "created", 1), skip(2, 2, of=1), run(2, 10), goes_on(3)],
        ),
        (
            "a declared series that ended while it was cancelled; what waited first was kept",
            [declare(1, "created", 1), start(1, 10), cancel(2, "running"), finish(10)],
            [schedule(2, "created", 1), declare(1, "kept", 1), run(1, 10)],
        ),
        (
            "dead by a word that did not reach the store, and gone; or attempted again",
            [schedule(1, "created", 1), start(1, 10), finish(10, "dead"), killed()],
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10, "dead"),
                killed(),
                run(1, 11, lost=1),
            ],
        ),
    ],
    "early": [
        (
            "before the due of the lease; or at it",
            [schedule(1, "created", 1), start(1, 10, due=500, now=499), finish(10)],
            [schedule(1, "created", 1), start(1, 10, due=500, now=500), finish(10)],
        ),
        (
            "before the due that was acknowledged; which binds the first attempt only",
            [schedule(1, "created", 1, due=500), start(1, 10, due=400, now=450), finish(10)],
            [
                schedule(1, "created", 1, due=500),
                start(1, 10, due=500, now=500),
                finish(10, "retry"),
                start(1, 11, due=450, now=450),
                finish(11),
            ],
        ),
        (
            "before the delay that was asked for, whatever the store says; or after it",
            [
                ask(1, earliest=500),
                said(1, "created", 1, due=100),
                start(1, 10, due=100, now=499),
                finish(10),
            ],
            [
                ask(1, earliest=500),
                said(1, "created", 1, due=500),
                start(1, 10, due=500, now=500),
                finish(10),
            ],
        ),
        (
            "the clock stepped when the delay had begun; or before the store had accepted it",
            [
                ask(1, earliest=500),
                said(1, "created", 1, due=100),
                STEP,
                start(1, 10, due=100, now=100),
                finish(10),
            ],
            [
                ask(1, earliest=500),
                STEP,
                said(1, "created", 1, due=100),
                start(1, 10, due=100, now=100),
                finish(10),
            ],
        ),
        (
            "before the delay of a move; a schedule that changed nothing delays nothing",
            [
                schedule(1, "created", 1),
                ask(2, "move", earliest=500),
                said(2, "moved", 2),
                start(2, 10, now=499),
                finish(10),
            ],
            [
                schedule(1, "created", 1),
                ask(2, earliest=500),
                said(2, "kept", 1),
                start(1, 10, now=0),
                finish(10),
            ],
        ),
        (
            "before the delay of a retry; the medium may have forgotten that one",
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10, "retry", earliest=500),
                settled(10, "retry"),
                start(1, 11, due=100, now=499),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10, "retry", earliest=500),
                settled(10, "retry"),
                CRASH,
                start(1, 11, now=499),
                finish(11),
            ],
        ),
        (
            "before the delay of a snooze; one that came too late delays nothing",
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10, "snooze", earliest=500),
                settled(10, "snooze"),
                start(1, 11, now=499),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                killed(),
                finish(10, "snooze", earliest=500),
                settled(10, "snooze", "lease_lost"),
                start(1, 11, lost=1, now=499),
                finish(11),
            ],
        ),
    ],
    "after cancel": [
        (
            "of what was cancelled; or before the answer was there",
            [schedule(1, "created", 1), cancel(2, "cancelled"), run(1, 10)],
            [schedule(1, "created", 1), ask(2, "cancel"), run(1, 10), said(2, "absent")],
        ),
        (
            "of a retry; or of what was scheduled anew",
            [
                schedule(1, "created", 1),
                run(1, 10, "retry"),
                cancel(2, "cancelled"),
                run(1, 11),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "retry"),
                cancel(2, "cancelled"),
                schedule(3, "created", 2),
                run(2, 11),
            ],
        ),
        (
            "the schedule was answered before the cancel was asked; or they overlap",
            [ask(1), said(1, "created", 1), ask(2, "cancel"), said(2, "cancelled"), run(1, 10)],
            [ask(1), ask(2, "cancel"), said(1, "created", 1), said(2, "cancelled"), run(1, 10)],
        ),
        (
            "an overlapping schedule came before one that did not; or after it",
            [
                ask(1),
                schedule(2, "created", 2),
                ask(3, "cancel"),
                said(1, "created", 1),
                said(3, "cancelled"),
                run(1, 10),
            ],
            [
                ask(1),
                schedule(2, "created", 1),
                ask(3, "cancel"),
                said(1, "created", 2),
                said(3, "cancelled"),
                run(2, 10),
            ],
        ),
        (
            "a cancel leaves nothing to move; a schedule without an answer may come later",
            [
                schedule(1, "created", 1),
                ask(2, "cancel"),
                move(3, "moved", 2),
                said(2, "cancelled"),
                run(2, 10),
            ],
            [
                schedule(1, "created", 1),
                ask(4),
                ask(2, "cancel"),
                move(3, "moved", 2),
                said(2, "cancelled"),
                run(2, 10),
            ],
        ),
        (
            "a successor of a series that was cancelled; or that was scheduled meanwhile",
            [
                ask(1, series=True),
                said(1, "created", 1),
                run(1, 10),
                cancel(2, "cancelled"),
                run(2, 11),
            ],
            [
                ask(1, series=True),
                ask(2, "cancel"),
                said(1, "created", 1),
                said(2, "cancelled"),
                run(1, 10),
                run(2, 11),
                cancel(3, "cancelled"),
            ],
        ),
        (
            "claimed again after its cancel; or claimed before and started late",
            [
                schedule(1, "created", 1),
                ask(2, "claim"),
                start(1, 10, claim=2),
                cancel(3, "running"),
                finish(10, "retry"),
                ask(4, "claim"),
                start(1, 11, claim=4),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                ask(2, "claim"),
                cancel(3, "running"),
                start(1, 10, claim=2),
                finish(10),
            ],
        ),
        (
            "a second attempt after the one in flight; the lease may have changed hands before",
            [
                schedule(1, "created", 1),
                start(1, 10),
                cancel(3, "running"),
                finish(10, "retry"),
                start(1, 11, by="v"),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                Failed(by="w", how="stalled"),
                cancel(3, "running"),
                finish(10, "retry"),
                start(1, 11, by="v", lost=1),
                finish(11),
            ],
        ),
        (
            "two attempts that began after the cancel; or one of them is of a later schedule",
            [
                schedule(1, "created", 1),
                cancel(2, "running"),
                start(1, 10),
                killed(),
                start(1, 11, lost=1),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                cancel(2, "running"),
                start(1, 10),
                schedule(3, "created", 2),
                killed(),
                run(2, 11),
            ],
        ),
        (
            "a successor placed despite the cancel of its series; of a series nobody cancelled",
            [
                ask(1, series=True),
                said(1, "created", 1),
                start(1, 10),
                cancel(2, "running"),
                finish(10),
                ask(3, "claim"),
                start(2, 11, claim=3),
                finish(11),
            ],
            [
                ask(1, series=True),
                said(1, "created", 1),
                run(1, 10),
                ask(3, "claim"),
                start(2, 11, claim=3),
                cancel(2, "running"),
                finish(11),
            ],
        ),
        (
            "a first try that acts again after the cancel, nothing else said of it",
            [schedule(1, "created", 1), cancel(2, "cancelled"), run(2, 10)],
            [schedule(1, "created", 1), ask(3), cancel(2, "cancelled"), run(2, 10)],
        ),
        (
            "a skipped occurrence of a declared series; or the one after it",
            [
                declare(1, "created", 1),
                [ask(2, "cancel"), said(2, "cancelled")],
                run(1, 10),
                goes_on(2),
            ],
            [declare(1, "created", 1), skip(2, 2, of=1), run(2, 10), goes_on(3)],
        ),
        (
            "an occurrence that was cancelled while it ran; or the one after it",
            [
                declare(1, "created", 1),
                start(1, 10),
                cancel(2, "running"),
                finish(10, "retry"),
                ask(4, "claim"),
                start(1, 11, claim=4),
                finish(11),
                goes_on(2),
            ],
            [
                declare(1, "created", 1),
                start(1, 10),
                cancel(2, "running"),
                finish(10, "retry"),
                ask(4, "claim"),
                start(2, 11, claim=4),
                finish(11),
                goes_on(3),
            ],
        ),
    ],
    "after expiry": [
        (
            "too late to be attempted; or as late as may be",
            [ask(1, drop_after_ms=500), said(1, "created", 1), start(1, 10, now=601), finish(10)],
            [ask(1, drop_after_ms=500), said(1, "created", 1), start(1, 10, now=600), finish(10)],
        ),
        (
            "too late, and another worker was slow; a worker that heard late thinks it is earlier",
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1), killed("v")],
                [start(1, 10, now=900), finish(10)],
            ],
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1), killed("w")],
                [start(1, 10, now=900), finish(10)],
            ],
        ),
        (
            "too late after its retry was due; the retry has a due of its own",
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1)],
                run(1, 10, "retry"),
                [start(1, 11, due=100, now=900), finish(11)],
            ],
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1)],
                run(1, 10, "retry"),
                [start(1, 11, due=800, now=900), finish(11)],
            ],
        ),
    ],
    "double start": [
        (
            "again for no reason; or after a retry",
            [schedule(1, "created", 1), start(1, 10), start(1, 11), finish(11)],
            [schedule(1, "created", 1), run(1, 10, "retry"), run(1, 11)],
        ),
        (
            "another worker was killed; or its own",
            [schedule(1, "created", 1), start(1, 10), killed("v"), run(1, 11, lost=1)],
            [schedule(1, "created", 1), start(1, 10), killed("w"), run(1, 11, lost=1)],
        ),
        (
            "its worker had been killed before the claim; or after it was asked",
            [
                schedule(1, "created", 1),
                killed(),
                ask(2, "claim"),
                start(1, 10, claim=2),
                run(1, 11, lost=1),
            ],
            [
                schedule(1, "created", 1),
                ask(2, "claim"),
                killed(),
                start(1, 10, claim=2),
                run(1, 11, lost=1),
            ],
        ),
        (
            "the lost lease was not counted; a medium that crashed may forget it",
            [schedule(1, "created", 1), start(1, 10), killed(), run(1, 11)],
            [schedule(1, "created", 1), start(1, 10), killed(), CRASH, run(1, 11)],
        ),
        (
            "a step of the clock ends a lease, and that is counted",
            [schedule(1, "created", 1), start(1, 10), STEP, run(1, 11)],
            [schedule(1, "created", 1), start(1, 10), STEP, run(1, 11, lost=1)],
        ),
        (
            "who was leased first begins last; a step of the clock ended the lease it counts on",
            [
                schedule(1, "created", 1),
                ask(2, "claim"),
                ask(3, "claim"),
                start(1, 10, claim=3, lost=1),
                finish(10),
                start(1, 11, claim=2),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                ask(2, "claim"),
                ask(3, "claim"),
                STEP,
                start(1, 10, claim=3, lost=1),
                finish(10),
                start(1, 11, claim=2),
                finish(11),
            ],
        ),
        (
            "a retry that was decided only afterwards; a release before",
            [schedule(1, "created", 1), start(1, 10), run(1, 11), finish(10, "retry")],
            [schedule(1, "created", 1), start(1, 10), finish(10, "release"), run(1, 11)],
        ),
        (
            "done is no reason; done and then killed before it was settled is",
            [schedule(1, "created", 1), start(1, 10), finish(10), run(1, 11)],
            [schedule(1, "created", 1), start(1, 10), finish(10), killed(), run(1, 11, lost=1)],
        ),
        (
            "a newer revision begins while the older one runs; or after it",
            [
                schedule(1, "created", 1),
                start(1, 10),
                schedule(2, "created", 2),
                start(2, 11),
                finish(10),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                schedule(2, "created", 2),
                finish(10),
                start(2, 11),
                finish(11),
            ],
        ),
    ],
    "double settlement": [
        (
            "one token twice; the second was refused",
            [schedule(1, "created", 1), run(1, 10), settled(10)],
            [schedule(1, "created", 1), run(1, 10), settled(10, answer="lease_lost")],
        ),
        (
            "a lease that never began, twice",
            [finish(9, "release"), settled(9, "release"), settled(9, "release")],
            [finish(9, "release"), settled(9, "release")],
        ),
        (
            "one revision by two tokens; the medium may have forgotten the first",
            [
                schedule(1, "created", 1),
                run(1, 10),
                Failed(by="w", how="stalled"),
                run(1, 11, lost=1),
            ],
            [schedule(1, "created", 1), run(1, 10), CRASH, run(1, 11, lost=1)],
        ),
        (
            "one revision by two tokens, and a clock forgets nothing; it may end a lease",
            [schedule(1, "created", 1), run(1, 10), STEP, run(1, 11, lost=1)],
            [
                schedule(1, "created", 1),
                start(1, 10),
                STEP,
                run(1, 11, lost=1),
                finish(10),
                settled(10, answer="lease_lost"),
            ],
        ),
        (
            "superseded ends a revision as well; a retry does not",
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10, "retry"),
                settled(10, "retry", "superseded"),
                run(1, 11),
            ],
            [schedule(1, "created", 1), run(1, 10, "retry"), run(1, 11)],
        ),
    ],
    "stale revision": [
        (
            "the replaced one begins; or began before the answer was there",
            [schedule(1, "created", 1), schedule(2, "replaced", 2), run(1, 10), run(2, 11)],
            [schedule(1, "created", 1), ask(2), run(1, 10), said(2, "replaced", 2), run(2, 11)],
        ),
        (
            "the moved one begins; it may be what a schedule without an answer made anew",
            [schedule(1, "created", 1), move(2, "moved", 3), run(1, 10), run(3, 11)],
            [schedule(1, "created", 1), ask(3), move(2, "moved", 3), run(1, 10), run(3, 11)],
        ),
        (
            "what waited behind the attempt was replaced; the attempt itself was not",
            [
                schedule(1, "created", 1),
                schedule(2, "created", 2),
                schedule(3, "replaced", 3),
                run(1, 10),
                run(2, 11),
                run(3, 12),
            ],
            [
                schedule(1, "created", 1),
                schedule(2, "created", 2),
                schedule(3, "replaced", 3),
                run(1, 10),
                run(3, 12),
            ],
        ),
        (
            "claimed after a newer one had been accepted; or claimed before",
            [
                schedule(1, "created", 1),
                run(1, 10, "retry"),
                schedule(2, "created", 2),
                ask(3, "claim"),
                start(1, 11, claim=3),
                finish(11),
                run(2, 12),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "retry"),
                ask(3, "claim"),
                schedule(2, "created", 2),
                start(1, 11, claim=3),
                finish(11),
                run(2, 12),
            ],
        ),
        (
            "the older begins after the newer has begun; or before",
            [schedule(1, "created", 1), schedule(2, "created", 2), run(2, 10), run(1, 11)],
            [schedule(1, "created", 1), schedule(2, "created", 2), run(1, 10), run(2, 11)],
        ),
        (
            "the clock stepped before the older was claimed; or between its claim and its start",
            [
                schedule(1, "created", 1),
                schedule(2, "created", 2),
                STEP,
                ask(3, "claim"),
                run(2, 10),
                start(1, 11, claim=3),
                finish(11),
            ],
            [
                schedule(1, "created", 1),
                ask(3, "claim"),
                schedule(2, "created", 2),
                STEP,
                run(2, 10),
                start(1, 11, claim=3),
                finish(11),
            ],
        ),
        (
            "with the payload of what was replaced; with its own",
            [schedule(1, "created", 1), schedule(2, "replaced", 2), run(2, 10, op=1)],
            [schedule(1, "created", 1), schedule(2, "replaced", 2), run(2, 10, op=2)],
        ),
        (
            "with a payload that is not the one that was moved; or that is",
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                move(3, "moved", 3),
                run(3, 10, op=1),
            ],
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                move(3, "moved", 3),
                run(3, 10, op=2),
            ],
        ),
        (
            "with the payload of a schedule that changed nothing; of one without an answer",
            [schedule(1, "created", 1), schedule(2, "kept", 1), run(1, 10, op=2)],
            [schedule(1, "created", 1), ask(2), move(3, "moved", 3), run(3, 10, op=2)],
        ),
        (
            "with a payload of another ref; of an occurrence before it",
            [
                ask(1, series=True),
                said(1, "created", 1),
                schedule(2, "created", 2, ref="b"),
                [start(2, 9, ref="b", op=2), finish(9)],
                run(1, 10, op=1),
                run(3, 11, op=2),
            ],
            [ask(1, series=True), said(1, "created", 1), run(1, 10, op=1), run(3, 11, op=1)],
        ),
        (
            "with the payload of a later schedule; of a dead letter that was revived",
            [
                schedule(1, "created", 1),
                move(2, "moved", 2),
                run(2, 10, op=3),
                schedule(3, "created", 3),
                run(3, 11, op=3),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead", op=1),
                schedule(2, "created", 2),
                run(2, 11, op=2),
                [ask(3, "revive"), said(3, "revived")],
                run(3, 12, op=1),
            ],
        ),
        (
            "a successor with a payload from before its series; a revision may be drawn twice",
            [
                schedule(1, "created", 1),
                run(1, 10, op=1),
                [ask(2, series=True), said(2, "created", 2)],
                run(2, 11, op=2),
                run(3, 12, op=1),
            ],
            [
                [ask(1, series=True), said(1, "created", 1)],
                run(1, 10, op=1),
                start(2, 11, op=1),
                CRASH,
                run(1, 12, op=1),
                schedule(2, "replaced", 2),
                run(2, 13, op=2),
            ],
        ),
        (
            "an occurrence whose place a move took that named it; or a step of the clock ended it",
            [
                [ask(1, series=True), said(1, "created", 1)],
                [ask(2, "move", if_revision=1), said(2, "moved", 2)],
                run(1, 10),
                run(2, 11),
            ],
            [
                [ask(1, series=True), said(1, "created", 1)],
                [ask(3, "claim"), STEP],
                [ask(2, "move", if_revision=1), said(2, "moved", 2)],
                [start(1, 10, claim=3), finish(10)],
                run(2, 11),
            ],
        ),
    ],
    "token reused": [
        (
            "by two attempts of one task; of different ones",
            [schedule(1, "created", 1), start(1, 10), finish(10, "retry"), run(1, 10)],
            [schedule(1, "created", 1), start(1, 10), finish(10, "retry"), run(1, 11)],
        ),
        (
            "by two refs",
            [
                schedule(1, "created", 1),
                schedule(2, "created", 2, ref="b"),
                run(1, 10),
                start(2, 10, ref="b"),
                finish(10),
            ],
            [
                schedule(1, "created", 1),
                schedule(2, "created", 2, ref="b"),
                run(1, 10),
                start(2, 11, ref="b"),
                finish(11),
            ],
        ),
    ],
    "dead without cause": [
        (
            "lost too often without an attempt of its own; cut off twice",
            [schedule(1, "created", 1), killed(), killed(), dead(1, LOST_TWICE, lost=2)],
            [
                schedule(1, "created", 1),
                start(1, 10),
                killed(),
                start(1, 11, lost=1),
                killed(),
                dead(1, LOST_TWICE, lost=2),
            ],
        ),
        (
            "lost more often than anything failed; the outcome did not reach the store",
            [schedule(1, "created", 1), start(1, 10), killed(), dead(1, LOST_TWICE, lost=2)],
            [
                schedule(1, "created", 1),
                start(1, 10),
                finish(10),
                killed(),
                killed(),
                dead(1, LOST_TWICE, lost=2),
            ],
        ),
        (
            "the loss was of what was settled long before; a move keeps the count",
            [
                schedule(1, "created", 1),
                run(1, 10, "retry"),
                killed(),
                killed(),
                dead(1, LOST_TWICE, lost=2),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                killed(),
                move(2, "moved", 2),
                killed(),
                dead(2, LOST_TWICE, lost=2),
            ],
        ),
        (
            "failed without an attempt; with one",
            [schedule(1, "created", 1), dead(1, "failed too often (1): ValueError")],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                dead(1, "failed too often (1): ValueError"),
            ],
        ),
        (
            "dead by its handler's word, which said done; or expired, before it began",
            [schedule(1, "created", 1), run(1, 10), dead(1, "no such order")],
            [
                [ask(1, drop_after_ms=1_000), said(1, "created", 1)],
                finish(10, "dead"),
                dead(1, "expired: 3.000 s late"),
            ],
        ),
        (
            "expired though it cannot; or its handler says so",
            [schedule(1, "created", 1), run(1, 10), dead(1, "expired: 3.000 s late")],
            [schedule(1, "created", 1), run(1, 10, "dead"), dead(1, "expired: the voucher")],
        ),
        (
            "cut off by a clock that stepped when all was settled; or before",
            [schedule(1, "created", 1), run(1, 10, "retry"), STEP, dead(1, LOST_ONCE, lost=1)],
            [schedule(1, "created", 1), start(1, 10), STEP, dead(1, LOST_ONCE, lost=1)],
        ),
        (
            "expired though it was not late enough; or it was",
            [ask(1, drop_after_ms=500), said(1, "created", 1), finish(10, "dead"), expired(499)],
            [ask(1, drop_after_ms=500), said(1, "created", 1), finish(10, "dead"), expired(500)],
        ),
        (
            "expired though it was not late enough; by a clock that stepped it was",
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1), killed()],
                [finish(10, "dead"), expired(400)],
            ],
            [
                [ask(1, drop_after_ms=500), said(1, "created", 1), STEP],
                [finish(10, "dead"), expired(400)],
            ],
        ),
    ],
    "undrained": [
        (
            "something still waits; nothing does",
            [
                schedule(1, "created", 1),
                DRAINED,
                Left(ref="a", state="scheduled", revision=1),
            ],
            [schedule(1, "created", 1), run(1, 10), DRAINED],
        ),
        (
            "a declared series still runs; or waits for its next occurrence",
            [
                declare(1, "created", 1),
                start(1, 10),
                DRAINED,
                Left(ref="a", state="leased", revision=1, declared=True),
            ],
            [declare(1, "created", 1), run(1, 10), DRAINED, goes_on(2)],
        ),
        (
            "something still runs",
            [
                schedule(1, "created", 1),
                start(1, 10),
                DRAINED,
                Left(ref="a", state="leased", revision=1),
            ],
            [schedule(1, "created", 1), run(1, 10, "dead"), DRAINED, dead(1, "no such order")],
        ),
        (
            "something happens afterwards",
            [schedule(1, "created", 1), start(1, 10), DRAINED, finish(10)],
            [schedule(1, "created", 1), start(1, 10), finish(10), DRAINED],
        ),
    ],
    "unasked": [
        (
            "nobody ever asked; somebody did and got no answer",
            [run(1, 10)],
            [ask(1), run(1, 10)],
        ),
        (
            "asked only afterwards; or before",
            [run(1, 10), schedule(1, "created", 1)],
            [ask(1), run(1, 10), said(1, "created", 1)],
        ),
        (
            "a first try that acts again; a retry of a caller that got no answer",
            [schedule(1, "created", 1), run(1, 10), run(2, 11)],
            [schedule(1, "created", 1), run(1, 10), ask(2), run(2, 11)],
        ),
        (
            "one schedule without an answer explains one revision; two explain two",
            [ask(1), run(1, 10), run(2, 11)],
            [ask(1), ask(2), run(1, 10), run(2, 11)],
        ),
        (
            "what was kept is nothing new; a revive is",
            [schedule(1, "created", 1), schedule(2, "kept", 1), run(1, 10), run(2, 11)],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                ask(2, "revive"),
                said(2, "revived"),
                run(2, 11),
            ],
        ),
        (
            "an older revision than the series; a newer one is its successor",
            [ask(1, series=True), said(1, "created", 2), run(1, 10), run(2, 11)],
            [ask(1, series=True), said(1, "created", 2), run(2, 10), run(3, 11)],
        ),
        (
            "a dead letter of nothing; of what got no answer",
            [dead(1, "expired: 3.000 s late")],
            [ask(1, drop_after_ms=1_000), dead(1, "expired: 3.000 s late")],
        ),
        (
            "a revision drawn twice; a crash may forget the successor that had it first",
            [schedule(1, "created", 1), run(1, 10), run(2, 11), CRASH, schedule(2, "created", 2)],
            [
                ask(1, series=True),
                said(1, "created", 1),
                run(1, 10),
                start(2, 11),
                CRASH,
                run(1, 12),
                schedule(2, "replaced", 2),
                run(2, 13),
            ],
        ),
    ],
    "false answer": [
        (
            "cancelled while an attempt runs; or before it began",
            [
                schedule(1, "created", 1),
                start(1, 10),
                cancel(2, "cancelled"),
                finish(10),
            ],
            [
                schedule(1, "created", 1),
                ask(2, "cancel"),
                start(1, 10),
                said(2, "running"),
                finish(10),
            ],
        ),
        (
            "revived while an attempt runs; or one whose worker was killed meanwhile",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                schedule(2, "created", 2),
                start(2, 11),
                ask(3, "revive"),
                said(3, "revived", 3),
                finish(11),
                run(3, 12),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                schedule(2, "created", 2),
                start(2, 11),
                killed(),
                cancel(4, "cancelled"),
                ask(3, "revive"),
                said(3, "revived", 3),
                run(3, 12),
            ],
        ),
        (
            "nothing found where something waits; or where another cancel may have been first",
            [schedule(1, "created", 1), move(2, "absent"), run(1, 10)],
            [schedule(1, "created", 1), ask(3, "cancel"), move(2, "absent")],
        ),
        (
            "a declared occurrence was skipped while the one before it ran; a cancel of no series",
            [schedule(1, "created", 1), start(1, 10), cancel(2, "cancelled"), finish(10)],
            [
                declare(1, "created", 1),
                start(1, 10),
                schedule(4, "created", 2),
                skip(2, 3, of=2),
                finish(10),
                run(3, 11),
                goes_on(4),
            ],
        ),
        (
            "a named revision was moved though a newer one waited; or a newer one overlapped",
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                of_revision(3, 1, "moved", 3),
                run(3, 10),
            ],
            [
                schedule(1, "created", 1),
                ask(2),
                of_revision(3, 1, "moved", 2),
                said(2, "replaced", 3),
                run(3, 10),
            ],
        ),
        (
            "a named revision was cancelled though a newer one waited; or was the newest",
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                of_revision(3, 1, "cancelled", verb="cancel"),
            ],
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                of_revision(3, 2, "cancelled", verb="cancel"),
            ],
        ),
        (
            "a named revision was cancelled though a newer one ran; a move finds that one runs",
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                start(2, 10),
                of_revision(3, 1, "running", verb="cancel"),
                finish(10),
            ],
            [
                schedule(1, "created", 1),
                schedule(2, "replaced", 2),
                start(2, 10),
                of_revision(3, 1, "running"),
                finish(10),
            ],
        ),
        (
            "a named attempt was cancelled though a newer one waited; or that was cancelled first",
            [
                schedule(1, "created", 1),
                start(1, 10),
                schedule(2, "created", 2),
                of_revision(3, 1, "running", verb="cancel"),
                finish(10),
            ],
            [
                schedule(1, "created", 1),
                start(1, 10),
                schedule(2, "created", 2),
                cancel(4, "running"),
                of_revision(3, 1, "running", verb="cancel"),
                finish(10),
            ],
        ),
        (
            "a conflict that shows the revision that was named; or another one",
            [schedule(1, "created", 1), of_revision(2, 1, "conflict", 1), run(1, 10)],
            [
                schedule(1, "created", 1),
                schedule(3, "replaced", 2),
                of_revision(2, 1, "conflict", 2),
                run(2, 10),
            ],
        ),
        (
            "a cancel that conflicts with what waits untouched; or what somebody may have moved",
            [
                schedule(1, "created", 1),
                of_revision(2, 1, "conflict", verb="cancel"),
                run(1, 10),
            ],
            [
                schedule(1, "created", 1),
                ask(3, "move"),
                of_revision(2, 1, "conflict", verb="cancel"),
                said(3, "moved", 2),
                run(2, 10),
            ],
        ),
        (
            "a schedule that conflicts where another revision waits; it may have been claimed",
            [
                schedule(1, "created", 1),
                of_revision(2, 1, "conflict", 1, verb="schedule"),
                run(1, 10),
            ],
            [
                schedule(1, "created", 1),
                of_revision(2, 1, "conflict", verb="schedule"),
                run(1, 10),
            ],
        ),
        (
            "put off beyond what it may wait; or up to that",
            [
                put_off(1, "created", 1, due=1_050),
                put_off(2, "replaced", 2, due=1_101),
                due_run(2, 10, 1_101),
            ],
            [
                put_off(1, "created", 1, due=1_050),
                put_off(2, "replaced", 2, due=1_100),
                due_run(2, 10, 1_100),
            ],
        ),
        (
            "put off beyond what it may wait since it was made; it was made anew",
            [
                put_off(1, "created", 1, due=1_050),
                put_off(2, "replaced", 2, due=1_090),
                put_off(3, "replaced", 3, due=1_140),
                due_run(3, 10, 1_140),
            ],
            [
                put_off(1, "created", 1, due=1_050),
                [ask(2, delay_ms=50, anew=True), said(2, "replaced", 2, due=1_090)],
                put_off(3, "replaced", 3, due=1_140),
                due_run(3, 10, 1_140),
            ],
        ),
        (
            "moved beyond what it may wait, and put off still; it is not brought back",
            [
                put_off(1, "created", 1, due=1_050),
                [ask(2, "move"), said(2, "moved", 2, due=1_500)],
                put_off(3, "replaced", 3, due=1_501),
                due_run(3, 10, 1_501),
            ],
            [
                put_off(1, "created", 1, due=1_050),
                [ask(2, "move"), said(2, "moved", 2, due=1_500)],
                put_off(3, "replaced", 3, due=1_500),
                due_run(3, 10, 1_500),
            ],
        ),
        (
            "brought forward by what puts it off; an attempt that was retried has another due",
            [
                put_off(1, "created", 1, due=1_050),
                put_off(2, "replaced", 2, due=1_040),
                due_run(2, 10, 1_040),
            ],
            [
                put_off(1, "created", 1, due=1_050),
                [start(1, 10, due=1_050, now=1_050), finish(10, "retry"), settled(10, "retry")],
                put_off(2, "replaced", 2, due=1_400),
                due_run(2, 11, 1_400),
            ],
        ),
        (
            "a purge that found no dead letter where one was; or somebody was faster",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                purge(2, "absent"),
                dead(1, "no such order"),
            ],
            [schedule(1, "created", 1), run(1, 10, "dead"), purge(3, "purged"), purge(2, "absent")],
        ),
        (
            "a purge that found no dead letter where one was; or a medium that crashed forgot it",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                killed(),
                purge(2, "absent"),
                dead(1, "no such order"),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                CRASH,
                purge(2, "absent"),
                run(1, 11, "dead"),
                dead(1, "no such order"),
            ],
        ),
        (
            "a purge of what is still there; or of the newer of two",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                purge(2, "purged"),
                dead(1, "no such order"),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                schedule(3, "created", 2),
                run(2, 11, "dead"),
                purge(2, "purged"),
                dead(1, "no such order"),
            ],
        ),
        (
            "a dead letter that was purged twice; or one that never began may have been there",
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                purge(2, "purged"),
                purge(3, "purged"),
            ],
            [
                schedule(1, "created", 1),
                run(1, 10, "dead"),
                purge(2, "purged"),
                finish(11, "dead"),
                purge(3, "purged"),
            ],
        ),
    ],
}
CASES = [(rule, *case) for rule, cases in PLANTED.items() for case in cases]
NAMES = [f"{rule}: {name}" for rule, name, _, _ in CASES]


@pytest.mark.parametrize(("rule", "name", "broken", "_legal"), CASES, ids=NAMES)
def test_a_broken_promise_is_found_and_nothing_else(
    rule: str, name: str, broken: list[Part], _legal: list[Part]
) -> None:
    found = check(told(broken))

    assert [violation.rule for violation in found] == [rule], found
    assert all(entry in told(broken) for violation in found for entry in violation.entries)
    assert all(violation.said for violation in found)


@pytest.mark.parametrize(("_rule", "name", "_broken", "legal"), CASES, ids=NAMES)
def test_the_legal_history_beside_it_is_not_flagged(
    _rule: str, name: str, _broken: list[Part], legal: list[Part]
) -> None:
    assert check(told(legal)) == []


def test_every_rule_has_a_planted_history() -> None:
    assert set(PLANTED) == set(RULES)


def test_a_history_without_its_drain_is_undrained_and_nothing_is_lost_yet() -> None:
    [violation] = check(schedule(1, "created", 1))

    assert violation.rule == "undrained"


def test_an_operator_reads_what_happened_in_one_sentence() -> None:
    history = told([schedule(1, "created", 1, due=500), start(1, 10, due=500, now=493), finish(10)])

    [violation] = check(history)

    assert violation.said == "token 10 of revision 1 began at 493, 7 ms before its due 500"
    assert violation.entries == (history[2],)


# ---- histories of a real store: whatever overlaps, fails or is cut off, nothing is flagged

REFS = [TaskRef("kind", key) for key in "ab"]
LEASE_MS = 1_000
VERBS = {"schedule": 10, "move": 4, "cancel": 4, "revive": 6, "purge": 0.3}
OUTCOMES: tuple[AnyOutcome, ...] = (
    *(Done(), Done(), Skip(), Dead("no such order"), Dead("no such order"), Dead("")),
    *(Retry(In(0)), Retry(In(200)), Snooze(In(300)), Release()),
)


class Call:
    """An operation on its way: it is carried out at some time, and its answer comes later."""

    def __init__(self, act: Callable[[], Entry], told: Callable[[], None] | None = None) -> None:
        self.act = act
        self.told = told
        self.answer: Entry | None = None

    def carry_out(self) -> None:
        self.answer = self.answer or self.act()


class Holder:
    """A worker process: the leases it was granted, those it runs, and those it has done with."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.granted: list[tuple[Lease, int]] = []
        self.running: list[Lease] = []
        self.finished: list[Lease] = []
        self.calls: list[Call] = []

    def leases(self) -> list[Lease]:
        return [*(lease for lease, _ in self.granted), *self.running, *self.finished]


class NoLimits:
    """A handler that is never too late."""

    retry = Backoff.fixed("1s", times=5)
    drop_after_ms = None


class World:
    """Callers and workers on a memory store, step by random step, and the ledger of it all."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, rng=self.dice)
        self.entries: list[Entry] = []
        self.ops = count(1)
        self.names = count(1)
        self.calls: list[Call] = []
        self.expires: dict[int, int] = {}
        self.holders = [self.hire(), self.hire()]
        self.stalled: Holder | None = None
        self.knows_claims = self.dice.random() < 0.6
        self.knows_revived = self.dice.random() < 0.5
        self.has_series = self.dice.random() < 0.3

    def history(self) -> list[Entry]:
        """Live for a while, drain, and return the ledger."""
        steps = (self.ask, self.go_on, self.claim, self.start, self.finish, self.tick, self.fail)
        for step in self.dice.choices(steps, (14, 26, 9, 18, 14, 7, 2), k=140):
            step()
        self.drain()
        return self.entries

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)

    def hire(self) -> Holder:
        return Holder(f"w{next(self.names)}")

    def now(self) -> int:
        return self.clock.now()

    def awake(self) -> list[Holder]:
        return [holder for holder in self.holders if holder is not self.stalled]

    # -- callers

    def ask(self) -> None:
        ref, op = self.dice.choice(REFS), next(self.ops)
        verb = self.dice.choices(list(VERBS), list(VERBS.values()))[0]
        series = verb == "schedule" and self.has_series and self.dice.random() < 0.3
        mode = self.dice.choice((*OnConflict, OnConflict.REPLACE, OnConflict.REPLACE))
        rule = SERIES if series else ""
        payload = msgspec.json.encode(op)
        request = Request(ref, self.delay(), payload, on_conflict=mode, rule=rule)
        moved = Move(ref, request.due)
        due = {"schedule": earliest(request, self.now()), "move": earliest(moved, self.now())}
        asked = Asked(op=op, verb=verb, ref=str(ref), series=series, earliest=due.get(verb, 0))
        self.write(asked)
        acts: dict[str, Callable[[], Entry]] = {
            "schedule": lambda: self.schedule(op, request),
            "move": lambda: self.move(op, moved),
            "cancel": lambda: self.cancel(op, ref),
            "revive": lambda: self.revive(op, ref),
            "purge": lambda: self.purge(op, ref),
        }
        self.calls.append(Call(acts[verb]))

    def delay(self) -> In:
        return In(self.dice.choice((0, 0, 0, 20, 300)))

    def schedule(self, op: int, request: Request) -> Entry:
        [said] = self.store.schedule([request])
        return Answered(op=op, status=said.status.value, revision=said.revision, due=said.due)

    def move(self, op: int, move: Move) -> Entry:
        [said] = self.store.reschedule([move])
        return Answered(op=op, status=said.status.value, revision=said.revision, due=said.due)

    def cancel(self, op: int, ref: TaskRef) -> Entry:
        [said] = self.store.cancel([Cancellation(ref)])
        return Answered(op=op, status=said.value)

    def revive(self, op: int, ref: TaskRef) -> Entry:
        [said] = self.store.revive([DeadRef(ref)])
        [task] = self.store.get([ref])
        known = said and self.knows_revived and task is not None
        return Answered(op=op, status=said.value, revision=task.revision if known and task else 0)

    def purge(self, op: int, ref: TaskRef) -> Entry:
        [found] = self.store.purge([DeadRef(ref)])
        return Answered(op=op, status="purged" if found else "absent")

    def go_on(self) -> None:
        """Bring one call a step further: carried out, answered, or lost on its way."""
        calls = self.dice.choice([self.calls, *(holder.calls for holder in self.awake())])
        if not calls:
            return
        call = self.dice.choice(calls)
        if calls is self.calls and self.dice.random() < 0.08:
            calls.remove(call)
        elif call.answer is None:
            call.carry_out()
        else:
            self.answer(call, calls)

    def answer(self, call: Call, calls: list[Call]) -> None:
        assert call.answer is not None
        self.write(call.answer)
        calls.remove(call)
        if call.told is not None:
            call.told()

    # -- workers

    def claim(self) -> None:
        due = self.store.next_due(["kind"])
        if due is not None:
            if self.clock.now() < due <= self.clock.now() + LEASE_MS // 2:
                self.tick(due - self.clock.now())
            self.claim_for(self.dice.choice(self.awake()))

    def claim_for(self, holder: Holder) -> None:
        op, leases = next(self.ops), []

        def act() -> Entry:
            limit = self.dice.randint(1, 3)
            claimed = self.store.claim(["kind"], limit=limit, lease_ms=LEASE_MS, holder=holder.by)
            leases.extend(claimed.leases)
            return Answered(op=op, status="claimed")

        def told() -> None:
            self.expires |= {lease.token: lease.expires for lease in leases}
            holder.granted += [(lease, op) for lease in leases]

        self.write(Asked(op=op, verb="claim", by=holder.by))
        call = Call(act, told)
        holder.calls.append(call)
        if self.dice.random() < 0.7:
            call.carry_out()
            self.answer(call, holder.calls)

    def start(self) -> None:
        holder = self.dice.choice(self.awake())
        if not holder.granted:
            return
        lease, op = holder.granted.pop(self.dice.randrange(len(holder.granted)))
        if self.expires[lease.token] <= self.clock.now():
            return
        refused = before(lease.task, NoLimits(), 0)
        if refused or self.dice.random() < 0.1:
            self.end(holder, lease, refused or Release())
            return
        self.write(
            Started(
                ref=str(lease.ref),
                revision=lease.task.revision,
                token=lease.token,
                attempt=lease.task.attempt,
                lost=lease.task.lost,
                due=lease.task.due,
                now=self.clock.now(),
                by=holder.by,
                claim=op if self.knows_claims else 0,
                op=msgspec.json.decode(lease.task.payload),
            )
        )
        holder.running.append(lease)

    def finish(self) -> None:
        holder = self.dice.choice(self.awake())
        if holder.running:
            lease = holder.running.pop(self.dice.randrange(len(holder.running)))
            self.end(holder, lease, self.dice.choice(OUTCOMES))

    def end(self, holder: Holder, lease: Lease, outcome: AnyOutcome) -> None:
        """Decide what becomes of a lease; the store hears of it sooner or later."""
        due = earliest(outcome, self.now())
        self.write(Finished(token=lease.token, outcome=name(outcome), earliest=due))
        holder.finished.append(lease)

        def act() -> Entry:
            holder.finished.remove(lease)
            next_due = self.clock.now() + 400
            successor = Successor(next_due, next_due) if lease.task.rule else None
            [said] = self.store.settle([Settlement(lease, outcome, successor)])
            return Settled(token=lease.token, outcome=name(outcome), answer=said.value)

        holder.calls.append(Call(act))

    # -- time and trouble

    def tick(self, ms: int = 0) -> None:
        """Let time pass; whoever is awake renews what it holds."""
        for holder in self.awake():
            leases = holder.leases()
            for lease, said in zip(
                leases, self.store.renew(leases, lease_ms=LEASE_MS), strict=True
            ):
                if said:
                    self.expires[lease.token] = self.clock.now() + LEASE_MS
                else:
                    holder.granted = [each for each in holder.granted if each[0] != lease]
        self.clock.advance(ms or self.dice.choice((1, 40, 200, 600)))

    def fail(self) -> None:
        self.dice.choice((self.kill, self.kill, self.stall, self.step_the_clock))()

    def kill(self) -> None:
        """End a worker; what it had sent may still arrive."""
        holder = self.dice.choice(self.holders)
        self.write(Failed(by=holder.by, how="killed"))
        for call in holder.calls:
            if self.dice.random() < 0.5:
                call.carry_out()
        self.holders[self.holders.index(holder)] = self.hire()

    def stall(self) -> None:
        if self.stalled is None:
            self.stalled = self.dice.choice(self.holders)
            self.write(Failed(by=self.stalled.by, how="stalled"))
        else:
            self.stalled = None

    def step_the_clock(self) -> None:
        self.write(STEP)
        for holder in self.holders:
            holder.granted.clear()
        self.clock.advance(5_000)

    # -- the end

    def drain(self) -> None:
        """Let every call come to its end or be lost, end all series, and run what is left."""
        while self.calls:
            self.go_on()
        self.stalled = None
        for ref in REFS if self.has_series else []:
            op = next(self.ops)
            self.write(Asked(op=op, verb="cancel", ref=str(ref)))
            self.write(self.cancel(op, ref))
        self.dice.random()
        while self.store.next_due(["kind"]) is not None:
            self.work_off()
        for holder in self.holders:
            self.flush(holder)
        self.write(Drained())
        for state in (TaskState.SCHEDULED, TaskState.LEASED, TaskState.DEAD):
            for task in self.store.scan(Filter(state=state)).tasks:
                self.write(
                    Left(
                        ref=str(task.ref),
                        state=state.value,
                        revision=task.revision,
                        lost=task.lost,
                        reason=task.reason,
                    )
                )

    def work_off(self) -> None:
        for holder in self.holders:
            self.claim_for(holder)
            self.flush(holder)
            while holder.granted:
                self.start()
            for _ in range(len(holder.running)):
                self.end(holder, holder.running.pop(), self.dice.choice(OUTCOMES))
            self.flush(holder)
        self.tick(300)

    def flush(self, holder: Holder) -> None:
        for call in list(holder.calls):
            call.carry_out()
            self.answer(call, holder.calls)


FEATURES = [
    *("created", "replaced", "moved", "kept", "revived", "cancelled", "running", "dead"),
    *("unknown", "series", "killed", "stalled", "lost", "superseded", "lease_lost"),
]
SEEDS = 2_000
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_of_a_real_store_are_not_flagged(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        history = World(seed).history()

        assert check(history) == [], f"seed {seed}\n" + "\n".join(map(str, history))
        seen.update(features(history))

    # Histories in which nothing happens prove nothing.
    assert [feature for feature in FEATURES if seen[feature] < 3] == []


def features(history: list[Entry]) -> Iterator[str]:
    """Name what happens in a history."""
    open_ops = {entry.op for entry in history if isinstance(entry, Asked)}
    for entry in history:
        match entry:
            case Answered(status=status, op=op):
                open_ops.discard(op)
                yield status
            case Settled(answer=answer):
                yield answer
            case Failed(how=how):
                yield how
            case Left(state=state):
                yield state
            case Started(lost=lost) if lost:
                yield "lost"
            case Asked(series=True):
                yield "series"
            case _:
                pass
    yield from ["unknown"] * len(open_ops)


# ---- the same histories with one thing put wrong: the rule for it fires


class Facts:
    """What a legal history says of each ref, in the plainest way: to find where to break it."""

    def __init__(self, history: list[Entry]) -> None:
        self.history = history
        self.asked = {
            entry.op: (place, entry)
            for place, entry in enumerate(history)
            if isinstance(entry, Asked)
        }
        self.answered = {
            entry.op: (place, entry)
            for place, entry in enumerate(history)
            if isinstance(entry, Answered)
        }
        self.starts = [entry for entry in history if isinstance(entry, Started)]
        self.finals = {
            entry.token
            for entry in history
            if isinstance(entry, Finished) and entry.outcome in {"done", "skip", "dead"}
        }
        self.failing = {
            entry.token
            for entry in history
            if isinstance(entry, Finished) and entry.outcome in {"dead", "retry"}
        }

    def spans(self, ref: str, *verbs: str) -> list[tuple[int, int, int, str]]:
        """Return (asked, answered, revision, status) of a ref's operations."""
        found = []
        for op, (place, entry) in self.asked.items():
            if entry.ref == ref and entry.verb in verbs:
                end, answer = self.answered.get(op, (len(self.history), Answered(op=op, status="")))
                found.append((place, end, answer.revision, answer.status))
        return found

    def accepting(self, ref: str) -> list[tuple[int, int, int, str]]:
        return self.spans(ref, "schedule", "move", "revive")

    def known(self, ref: str) -> dict[int, str]:
        """Return the accepted revisions of a ref, with their answers."""
        accepted = {"created", "replaced", "moved", "revived"}
        return {r: status for _, _, r, status in self.accepting(ref) if status in accepted and r}

    def is_certain(self, ref: str) -> bool:
        """Say whether all revisions of a ref are known."""
        series = any(entry.series and entry.ref == ref for _, entry in self.asked.values())
        loose = any(
            status in {"", "revived"} and not revision
            for _, _, revision, status in self.accepting(ref)
        )
        return not series and not loose


Breaking = Callable[[Facts], Iterator[list[Entry]]]
NEW_TOKEN = 7


def again(facts: Facts, ref: str, revision: int, claim: int = 0) -> Started:
    """Return a start that never was."""
    return Started(
        ref=ref,
        revision=revision,
        token=NEW_TOKEN,
        attempt=1,
        lost=0,
        due=0,
        now=1 << 50,
        by="intruder",
        claim=claim,
    )


def forget_the_end(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        known = facts.known(ref)
        if known and not facts.spans(ref, "cancel", "purge"):
            gone = {
                start.token
                for start in facts.starts
                if start.ref == ref and start.revision >= max(known)
            }
            yield [
                entry
                for entry in facts.history
                if not (isinstance(entry, Finished) and entry.token in gone & facts.finals)
                and not (isinstance(entry, Left) and entry.ref == ref)
            ]


def start_before_due(facts: Facts) -> Iterator[list[Entry]]:
    for start in facts.starts:
        wrong = replace(start, now=start.due - 1)
        yield [wrong if entry is start else entry for entry in facts.history]


def ignore_the_delay(facts: Facts) -> Iterator[list[Entry]]:
    """Let the store say that everything is due at once, and act on it."""
    for first in first_starts(facts):
        for place, asked in facts.asked.values():
            end, answer = facts.answered.get(asked.op, (place, Answered(op=0, status="")))
            mine = answer.revision == first.revision and asked.ref == first.ref
            changed = answer.status in {"created", "replaced", "moved"}
            if mine and changed and asked.earliest and STEP not in facts.history[place:end]:
                early = replace(first, due=0, now=asked.earliest - 1)
                said = replace(answer, due=0)
                wrong: dict[int, Entry] = {id(first): early, id(answer): said}
                yield [wrong.get(id(entry), entry) for entry in facts.history]


def ignore_the_wish(facts: Facts) -> Iterator[list[Entry]]:
    """Let the store attempt a task again at once, whatever the retry or the snooze said."""
    if STEP in facts.history:
        return
    wishes = {
        entry.token: entry.earliest
        for entry in facts.history
        if isinstance(entry, Finished) and entry.outcome in {"retry", "snooze"}
    }
    taken = {
        entry.token
        for entry in facts.history
        if isinstance(entry, Settled) and entry.answer == "settled"
    }
    for first, second in pairwise(sorted(facts.starts, key=lambda one: (one.ref, one.revision))):
        again = (first.ref, first.revision) == (second.ref, second.revision)
        if again and first.token in wishes and first.token in taken:
            early = replace(second, due=0, now=wishes[first.token] - 1)
            yield [early if entry is second else entry for entry in facts.history]


def first_starts(facts: Facts) -> list[Started]:
    """Return the first start of each revision."""
    found: dict[tuple[str, int], Started] = {}
    for start in facts.starts:
        found.setdefault((start.ref, start.revision), start)
    return list(found.values())


def keep_the_old_payload(facts: Facts) -> Iterator[list[Entry]]:
    for start in facts.starts:
        status = facts.known(start.ref).get(start.revision)
        if status in {"created", "replaced"}:
            wrong = replace(start, op=start.op + 1)
            yield [wrong if entry is start else entry for entry in facts.history]


def drop_a_letter(facts: Facts) -> Iterator[list[Entry]]:
    settled = {
        entry.token
        for entry in facts.history
        if isinstance(entry, Settled) and entry.outcome == "dead" and entry.answer != "lease_lost"
    }
    for start in facts.starts:
        touched = facts.spans(start.ref, "revive", "purge")
        if start.token in settled and not touched:
            yield [
                entry
                for entry in facts.history
                if not (isinstance(entry, Left) and entry.ref == start.ref)
            ]


def start_after_cancel(facts: Facts) -> Iterator[list[Entry]]:
    for place, ref, newest in cancels_that_bind(facts, "cancelled"):
        yield [*facts.history[:place], again(facts, ref, newest), *facts.history[place:]]


def claim_after_cancel(facts: Facts) -> Iterator[list[Entry]]:
    for place, ref, newest in cancels_that_bind(facts, "running"):
        claim = Asked(op=1 << 30, verb="claim", by="intruder")
        start = again(facts, ref, newest, claim.op)
        yield [*facts.history[:place], claim, start, *facts.history[place:]]


def cancels_that_bind(facts: Facts, wanted: str) -> Iterator[tuple[int, str, int]]:
    """Tell the places after cancels that nothing overlaps, and the newest revision before."""
    for ref in map(str, REFS):
        for asked, answered, _, status in facts.spans(ref, "cancel"):
            before = [op for op in facts.accepting(ref) if op[0] < answered]
            known = [op[2] for op in before if op[2]]
            if status == wanted and known and all(op[1] < asked for op in before):
                yield answered + 1, ref, max(known)


def start_twice(facts: Facts) -> Iterator[list[Entry]]:
    for start in facts.starts:
        place = facts.history.index(start) + 1
        second = replace(start, token=NEW_TOKEN)
        yield [*facts.history[:place], second, *facts.history[place:]]


def reuse_a_token(facts: Facts) -> Iterator[list[Entry]]:
    for first, second in pairwise(facts.starts):
        yield [
            replace(entry, token=first.token)
            if isinstance(entry, Started | Finished | Settled) and entry.token == second.token
            else entry
            for entry in facts.history
        ]


def settle_twice(facts: Facts) -> Iterator[list[Entry]]:
    for place, entry in enumerate(facts.history):
        if isinstance(entry, Settled) and entry.answer == "settled":
            yield [*facts.history[:place], entry, *facts.history[place:]]


def start_the_replaced(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        known = sorted(facts.known(ref))
        for _, answered, revision, status in facts.accepting(ref):
            if facts.is_certain(ref) and status in {"replaced", "moved"}:
                older = known[known.index(revision) - 1]
                place = answered + 1
                yield [*facts.history[:place], again(facts, ref, older), *facts.history[place:]]


def claim_the_older(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        known = sorted(facts.known(ref))
        for _, answered, revision, _ in facts.accepting(ref):
            if revision in known[1:]:
                claim = Asked(op=1 << 30, verb="claim", by="intruder")
                start = again(facts, ref, known[known.index(revision) - 1], claim.op)
                place = answered + 1
                yield [*facts.history[:place], claim, start, *facts.history[place:]]


def start_what_nobody_asked_for(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        said = {status for *_, status in facts.spans(ref, "cancel")}
        if facts.is_certain(ref) and said <= {"absent", ""}:
            place = facts.history.index(DRAINED)
            yield [*facts.history[:place], again(facts, ref, 1 << 30), *facts.history[place:]]


def leave_a_letter_nobody_asked_for(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        if facts.is_certain(ref):
            left = Left(ref=ref, state="dead", revision=1 << 30, reason="expired")
            yield [*facts.history, left]


def leave_a_letter_without_a_failure(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        failing = {
            start.revision
            for start in facts.starts
            if start.ref == ref and start.token in facts.failing
        }
        for revision, status in facts.known(ref).items():
            if status in {"created", "replaced"} and revision not in failing:
                left = Left(ref=ref, state="dead", revision=revision, reason="no such order")
                yield [*facts.history, left]


def leave_a_letter_without_a_loss(facts: Facts) -> Iterator[list[Entry]]:
    for ref in map(str, REFS):
        for revision in facts.known(ref):
            reason = "lost too often: 99 workers died or stalled while attempting it"
            left = Left(ref=ref, state="dead", revision=revision, lost=99, reason=reason)
            yield [*facts.history, left]


def leave_something_waiting(facts: Facts) -> Iterator[list[Entry]]:
    yield [*facts.history, Left(ref=str(REFS[0]), state="scheduled", revision=1)]


def forget_the_drain(facts: Facts) -> Iterator[list[Entry]]:
    yield [entry for entry in facts.history if entry != DRAINED]


@cache
def legal_histories() -> list[list[Entry]]:
    return [World(seed).history() for seed in range(150)]


BREAKINGS: list[tuple[str, Breaking]] = [
    ("lost", forget_the_end),
    ("lost", drop_a_letter),
    ("early", start_before_due),
    ("early", ignore_the_delay),
    ("early", ignore_the_wish),
    ("after cancel", start_after_cancel),
    ("after cancel", claim_after_cancel),
    ("double start", start_twice),
    ("double settlement", settle_twice),
    ("stale revision", start_the_replaced),
    ("stale revision", claim_the_older),
    ("stale revision", keep_the_old_payload),
    ("token reused", reuse_a_token),
    ("dead without cause", leave_a_letter_without_a_failure),
    ("dead without cause", leave_a_letter_without_a_loss),
    ("undrained", leave_something_waiting),
    ("undrained", forget_the_drain),
    ("unasked", start_what_nobody_asked_for),
    ("unasked", leave_a_letter_nobody_asked_for),
]


@pytest.mark.parametrize(("rule", "breaking"), BREAKINGS)
def test_a_history_with_one_thing_put_wrong_is_flagged(rule: str, breaking: Breaking) -> None:
    tried = 0
    for history in legal_histories():
        for broken in breaking(Facts(history)):
            assert rule in rules(broken), "\n".join(map(str, broken))
            tried += 1

    assert tried >= 5


# ---- the book


def test_a_book_gives_back_what_was_written(tmp_path: Path) -> None:
    entries = told([entry for _, _, *both in CASES for history in both for entry in history])
    book, other = Book(tmp_path / "book"), Book(tmp_path / "book")

    for n, entry in enumerate(entries):
        (book, other)[n % 2].write(entry)

    assert book.entries() == entries
    assert other.entries() == entries
    book.write(Failed(by="w", how="late"))
    assert other.entries() == [*entries, Failed(by="w", how="late")]
    book.close()
    other.close()


def test_a_torn_last_line_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "book"
    book = Book(path)
    book.write(DRAINED)
    line = msgspec.json.encode(ask(1)) + b"\n"

    with path.open("ab", buffering=0) as file:
        file.write(line[:12])
        assert book.entries() == [DRAINED]
        file.write(line[12:])

    assert book.entries() == [DRAINED, ask(1)]
    book.close()


def fill_page(book: Book) -> bytes:
    """Write until the next line goes over the end of a page; returns what fits of it."""
    line = b"\n" + msgspec.json.encode(ask(1)) + b"\n"
    left = len(line) // 2
    around = len(msgspec.json.encode(Failed(by="w", how=""))) + 2
    book.write(Failed(by="w", how="x" * (_PAGE - left - around)))
    return line[:left]


def test_what_a_kill_tore_at_the_end_of_a_page_was_never_written(tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    part = fill_page(book)
    before = list(book.entries())

    with book.path.open("ab", buffering=0) as file:
        file.write(part)
    book.write(ask(2))

    assert book.path.stat().st_size > _PAGE
    assert book.entries() == [*before, ask(2)]
    book.write(DRAINED)
    assert book.entries() == [*before, ask(2), DRAINED]
    book.close()


def test_a_line_that_is_torn_anywhere_else_is_not_passed_over(tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    part = fill_page(book)

    with book.path.open("ab", buffering=0) as file:
        file.write(part[:-1])
    book.write(ask(2))

    with pytest.raises(msgspec.DecodeError):
        book.entries()
    book.close()


def test_a_book_that_cannot_take_a_whole_line_says_so(tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="10 of"):
            book.write(ask(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert book.entries() == []
    book.close()


WRITERS = 4
LINES = 500
WRITING = """
import os, signal, sys
from pathlib import Path
from tarry.testing.ledger import Book, Finished

book = Book(Path(sys.argv[1]))
writers, lines = int(sys.argv[2]), int(sys.argv[3])

def write(writer, book):
    token = 0
    while token < lines or writer == 0:
        book.write(Finished(token=token, outcome=f"{writer}" + "x" * (token % 300)))
        token += 1
    os._exit(0)

children = []
for writer in range(writers):
    children.append(os.fork())
    if not children[-1]:
        write(writer, book if writer % 2 else Book(book.path))
while not any(entry.outcome == "0" for entry in book.entries()):
    os.sched_yield()
os.kill(children[0], signal.SIGKILL)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_processes_write_one_book_and_one_of_them_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "book"

    command = [sys.executable, "-c", WRITING, str(path), str(WRITERS), str(LINES)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)

    assert ended.stdout.split() == [str(-signal.SIGKILL), *["0"] * (WRITERS - 1)]
    assert path.read_bytes().endswith(b"\n")
    book = Book(path)
    lines: dict[str, list[int]] = {}
    for entry in book.entries():
        assert isinstance(entry, Finished)
        lines.setdefault(entry.outcome.rstrip("x"), []).append(entry.token)
    assert lines["0"] == list(range(len(lines["0"])))
    assert all(lines[str(n)] == list(range(LINES)) for n in range(1, WRITERS))
    book.close()
