"""Power cuts: what the disk was not told to keep is gone; what callers were promised is not.

The real SqliteStore does a seeded series of deeds while `vfs` records what SQLite asks of the disk.
Then the power is cut at steps of the recording, `disk` says what is left of the files, and the real
store opens them. Judged is that

- it opens, is sound (`check`, integrity_check) and holds exactly what it held after one of the
  calls: never half a transaction;
- at sync=full that is no earlier than the last acknowledged schedule, move, cancel, revive, purge
  or pause, and the ledger is in order after a drain; claims, renewals and settlements may be
  forgotten;
- neither a token nor (at sync=full) a revision that was seen before the cut is given out again.

In every other uptime a sync has failed: what is acknowledged after that must be kept all the same.
One of the cuts is where the next uptime begins, so that recovery is cut as well. What a disk may do
that is not modelled stands in `disk`.
"""

import random
import sqlite3
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from tarry.clock import Clock
from tarry.errors import StoreError
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef
from tarry.testing import ledger
from tarry.testing.clock import ManualClock
from tarry.testing.ledger import Entry, Failed
from tarry.testing.proof import vfs
from tarry.testing.proof.deeds import KINDS, PROMISED, Deeds
from tarry.testing.proof.disk import Disk
from tarry.testing.proof.tally import Broken, Tally
from tarry.testing.proof.uptime import (
    FILE,
    Call,
    Files,
    Past,
    State,
    Uptime,
    look,
    revisions,
    tokens,
)
from tarry.testing.proof.vfs import Step

UPTIMES = 2
"""How often the power comes on in a history."""
CUTS = 25
"""How often each uptime is cut."""

_SOON = 40
"""After so many steps the WAL has often started over."""

Progress = Callable[[int], None]


class Make(Protocol):
    """Opens the store under test."""

    def __call__(self, path: str, *, sync: str, clock: Clock, rng: random.Random) -> SqliteStore:
        """Return a store on the file *path*."""
        ...


def unavailable() -> str:
    """Say why no power can be cut here; empty if it can."""
    return vfs.unavailable()


def _silent(_tried: int) -> None:
    """Show no progress."""


def run(
    seed: int,
    count: int,
    *,
    sync: str = "full",
    progress: Progress = _silent,
    make: Make = SqliteStore,
    lying: bool = False,
) -> Tally:
    """Cut the power *count* times; each history has a seed, from *seed* on.

    *make* and *lying* (a disk that does not sync) are for the negative controls.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="tarry-power-") as folder:
        while tally.tried < count:
            history = _History(seed, sync, make, tally, folder, lying=lying)
            tried = history.run(count - tally.tried)
            tally.tried += tried
            seed += 1
            progress(tried)
    return tally


class _Cut(msgspec.Struct):
    """A power cut after so many steps of an uptime, and what it left."""

    uptime: Uptime
    at: int
    files: Files

    def begun(self) -> list[Call]:
        """Return the calls that had begun."""
        return [call for call in self.uptime.calls if call.begun <= self.at]

    def acknowledged(self) -> list[tuple[int, Call]]:
        """Return the calls whose effect was promised, each with its place among the states.

        An answer like "absent" promises nothing: it may rest on what was committed relaxed.
        """
        states = self.states()
        return [
            (place, call)
            for place, call in enumerate(self.begun(), 1)
            if call.verb in PROMISED and call.done <= self.at and call.state != states[place - 1]
        ]

    def states(self) -> list[State]:
        """Return what the store may hold: as the power came on, and after each call."""
        return [self.uptime.past.state, *(call.state for call in self.begun())]

    def seen(self) -> list[State]:
        """Return the states that somebody can have seen."""
        return [call.state for call in self.uptime.calls if call.done <= self.at]

    def entries(self) -> tuple[Entry, ...]:
        """Return what the ledger says."""
        noted = (entry for steps, entry in self.uptime.entries if steps <= self.at)
        return (*self.uptime.past.entries, *noted, Failed(by="", how="power cut"))


class _History:
    """One seed: uptimes, each cut many times."""

    def __init__(
        self, seed: int, sync: str, make: Make, tally: Tally, folder: str, *, lying: bool
    ) -> None:
        self._seed = seed
        self._strict = sync == "full"
        planted = lying or make is not SqliteStore
        self._replay = "" if planted else f"python -m tarry.testing.proof.power {seed} {sync}"
        self._make = partial(make, sync=sync)
        self._tally = tally
        self._folder = folder
        self._lying = lying
        self._chance = random.Random(seed)  # noqa: S311 - a seed of the campaign

    def run(self, most: int) -> int:
        """Cut at most *most* times; returns how often."""
        past, tried = Past(), 0
        for number in range(UPTIMES):
            self._fill(past.files)
            uptime = Uptime(self._folder, past, self._make, f"{self._seed} {number}")
            self._tally.count([("syncs failed", bool(uptime.failed()))])
            sound = []
            for cut in self._cuts(uptime, min(CUTS, most - tried)):
                tried += 1
                self._count(cut)
                sound += self._judge(cut)
            if not sound:
                break
            past = self._chance.choice(sound)
        return tried

    def _fill(self, files: Files) -> None:
        folder = Path(self._folder)
        for path in folder.iterdir():
            path.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def _cuts(self, uptime: Uptime, most: int) -> Iterator[_Cut]:
        """Cut anywhere, as often at the steps of each kind, and soon after a failed sync."""
        kinds = defaultdict(list)
        for at, step in enumerate(uptime.steps, 1):
            kinds[_kind(step)].append(at)
        anywhere = list(range(len(uptime.steps) + 1))
        choices = [anywhere] * len(kinds) + list(kinds.values())
        if failed := uptime.failed():
            choices += [anywhere[failed : failed + _SOON]] * len(kinds)
        places = sorted(self._chance.choice(self._chance.choice(choices)) for _ in range(most))
        disk, taken = Disk(uptime.past.files), 0
        for at in places:
            for step in uptime.steps[taken:at]:
                if not (self._lying and step.what == "sync"):
                    disk.take(step)
            taken = at
            files, forgotten = disk.cut(self._chance)
            self._tally.count([("sectors forgotten", forgotten)])
            yield _Cut(uptime, at, files)

    def _count(self, cut: _Cut) -> None:
        kind = _kind(cut.uptime.steps[cut.at - 1]) if cut.at else "nothing"
        last = cut.begun()[-1]
        during = last.verb if last.done > cut.at else "nothing"
        acknowledged = sum(call.answers for _, call in cut.acknowledged())
        names = (f"cuts after {kind}", f"cuts during {during}")
        self._tally.count([("acknowledged", acknowledged), *((name, 1) for name in names)])
        self._tally.count([("cuts behind a failed sync", 0 < cut.uptime.failed() <= cut.at)])

    # ---- judging

    def _break(self, rule: str, cut: _Cut, said: str) -> None:
        where = f"cut after step {cut.at} of {len(cut.uptime.steps)}: "
        self._tally.broken.append(Broken(rule, where + said, self._replay))

    def _judge(self, cut: _Cut) -> list[Past]:
        """Open what the cut left; returns it, if it is sound, as the past of another uptime."""
        self._fill(cut.files)
        path = f"{self._folder}/{FILE}"
        now = cut.uptime.clock.now() + 1
        clock = ManualClock(now)
        chance = random.Random(cut.at)  # noqa: S311 - any will do
        try:
            with (
                vfs.recorded(self._folder),  # for its speed: nothing waits for the disk
                closing(self._make(path, clock=clock, rng=chance)) as store,
            ):
                with closing(sqlite3.connect(path, isolation_level=None)) as db:
                    state = look(db)
                    report = [row[0] for row in db.execute("PRAGMA integrity_check")]
                if (problems := store.check() + report) != ["ok"]:
                    self._break("damaged", cut, "; ".join(problems))
                    return []
                place = self._place(cut, state)
                if place is None:
                    return []
                kept = self._keeps(cut, place)
                self._go_on(cut, store, clock)
        except (StoreError, sqlite3.Error) as error:
            self._break("damaged", cut, f"{type(error).__name__}: {error}")
            return []
        return [Past(cut.files, state, cut.entries(), now)] if kept else []

    def _place(self, cut: _Cut, state: State) -> int | None:
        """Return after which of the calls the file held what it holds now."""
        states = cut.states()
        places = [place for place, held in enumerate(states) if held == state]
        if places:
            return places[-1]
        self._break("half a transaction", cut, f"as after none of {len(states)} calls")
        return None

    def _keeps(self, cut: _Cut, place: int) -> bool:
        """Count the promises made after *place*: they are lost; says whether that is allowed."""
        forgotten = [call for number, call in cut.acknowledged() if number > place]
        lost = sum(call.answers for call in forgotten)
        self._tally.count([("lost", lost), ("cuts that lost", bool(forgotten))])
        if forgotten and self._strict:
            verbs = ", ".join(call.verb for call in forgotten)
            self._break("forgotten", cut, f"acknowledged, yet gone: {verbs}")
        return not (forgotten and self._strict)

    def _go_on(self, cut: _Cut, store: SqliteStore, clock: ManualClock) -> None:
        """Use the store, run all that is left, and let the ledger judge."""
        before = cut.entries()
        entries = list(before)
        past = Past(entries=before)
        deeds = Deeds(clock, self._chance, entries.append, first_op=past.first_op())
        deeds.producer = deeds.worker = store
        [fresh] = deeds.schedule([TaskRef(KINDS[0], "fresh")])
        if self._strict and fresh.revision <= max(revisions(cut.seen(), before), default=0):
            self._break("revision used twice", cut, f"{fresh.revision} was seen before the cut")
        leases = deeds.drain()
        seen = {*tokens(cut.seen(), before)}
        if again := [lease.token for lease in leases if lease.token in seen]:
            self._break("token used twice", cut, f"{again[0]} was seen before the cut")
        if self._strict:
            for found in ledger.check(entries):
                self._break(found.rule, cut, f"{found.ref}: {found.said}")


def _kind(step: Step) -> str:
    """Return what a step does to which of the files."""
    return f"{step.what} {step.name.removeprefix(FILE).removeprefix('-') or 'db'}"


def main(seed: str, sync: str = "full") -> int:
    """Show one history again."""
    tally = run(int(seed), UPTIMES * CUTS, sync=sync)
    for broken in tally.broken:
        sys.stdout.write(f"{broken.rule}: {broken.said}\n")
    return bool(tally.broken)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
