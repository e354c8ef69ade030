"""Verbs as plans: read the lives of refs, let `tarry.life` change them, write what changed."""

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tarry import life as lives
from tarry.answers import (
    CancelResult,
    Moved,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import Done, Skip
from tarry.lease import Lease
from tarry.life import Change
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.joining import Rows, Statement
from tarry.stores.mysql import record, rows, upsert
from tarry.stores.mysql.plan import Plan, Told, marks
from tarry.stores.mysql.record import Found
from tarry.stores.store import WAKE_MS
from tarry.task import Task, TaskRef, TaskState

A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item, as A is an answer

Lanes = Mapping[str, int]
_STATUS = {
    upsert.CREATED: ScheduleStatus.CREATED,
    upsert.REPLACED: ScheduleStatus.REPLACED,
    upsert.KEPT: ScheduleStatus.KEPT,
    upsert.CONFLICT: ScheduleStatus.CONFLICT,
}


class Setting(msgspec.Struct, frozen=True):
    """What plans must know of where they run: the time as SQL, and if writes answer with rows."""

    now: str
    returns: bool


# ---- one ref after the other


def reschedule(moves: Sequence[Move], lanes: Lanes, setting: Setting) -> Plan[Moved]:
    """Give waiting tasks a new due."""

    def step(found: Found, move: Move, now: int) -> Change[Moved]:
        return lives.reschedule(found.life, move, now, found.draw)

    return _each(moves, [move.ref for move in moves], lanes, setting, step)


def cancel(
    cancellations: Sequence[Cancellation], lanes: Lanes, setting: Setting
) -> Plan[CancelResult]:
    """Cancel tasks."""

    def step(found: Found, item: Cancellation, now: int) -> Change[CancelResult]:
        return lives.cancel(found.life, item, now)

    return _each(cancellations, [item.ref for item in cancellations], lanes, setting, step)


def settle(settlements: Sequence[Settlement], lanes: Lanes, setting: Setting) -> Plan[SettleResult]:
    """Record outcomes and end leases; what is done and leaves nothing behind goes in one go."""
    settled: set[int] = set()
    writes: list[Statement] = []
    leases = [item.lease for item in settlements if is_simple(item)]
    if leases and len({lease.token for lease in leases}) == len(settlements):
        [found] = yield [_done(leases, setting)]
        settled = {int(row[0]) for row in found}
        if settled and not setting.returns:
            writes.append(record.delete(sorted(settled)))
    rest = [item for item in settlements if item.lease.place not in settled]
    told = {}
    news: Sequence[tuple[int, int]] = ()
    if rest:
        ended = yield from _each(
            rest,
            [item.lease.ref for item in rest],
            lanes,
            setting,
            lambda found, item, now: lives.settle(found.life, item, now, found.draw),
        )
        told = dict(zip(map(id, rest), ended.answers, strict=True))
        writes += ended.writes
        news = ended.news
    answers = [told.get(id(item), SettleResult.SETTLED) for item in settlements]
    return Told(answers, writes, news)


def is_simple(settlement: Settlement) -> bool:
    """Say whether an attempt is done and leaves nothing behind."""
    return (
        isinstance(settlement.outcome, Done | Skip)
        and settlement.successor is None
        and not settlement.lease.task.keep_ms
    )


def _done(leases: Sequence[Lease], setting: Setting) -> Statement:
    """Return the statement that deletes what is done and has nothing behind it, and tells which.

    Tokens are unique, so that a row that has one of the ids and one of the tokens has its own.
    """
    verb, end = ("DELETE", "RETURNING id") if setting.returns else ("SELECT id", "FOR UPDATE")
    # A statement that deletes takes no hint; the ids are its shortest way in any case.
    hint = "" if setting.returns else "FORCE INDEX (PRIMARY) "
    places = marks(len(leases))
    return Statement(
        f"{verb} FROM tarry_task {hint}WHERE id IN ({places}) AND token IN ({places}) "
        f"AND b_due IS NULL {end}",
        (*(lease.place for lease in leases), *(lease.token for lease in leases)),
    )


def pause(lane: int, setting: Setting, *, paused: bool) -> Plan[bool]:
    """Stop or resume claims of a lane; waits for those that are under way."""
    del setting
    [found] = yield [Statement("SELECT paused FROM tarry_lane WHERE id = %s FOR UPDATE", (lane,))]
    write = Statement("UPDATE tarry_lane SET paused = %s WHERE id = %s", (paused, lane), rows=False)
    return Told([bool(found and found[0][0])], [write])


def _each(
    items: Sequence[I],
    refs: Sequence[TaskRef],
    lanes: Lanes,
    setting: Setting,
    step: Callable[[Found, I, int], Change[A]],
) -> Plan[A]:
    known = {ref: Found(lanes[ref.kind], ref) for ref in dict.fromkeys(refs)}
    now, _ = yield from _read(known, setting, [])
    answers = []
    for item, ref in zip(items, refs, strict=True):
        found = known[ref]
        change = step(found, item, now)
        found.life = change.life
        found.ended += change.ended
        answers.append(change.answer)
    return Told(answers, record.writes(known.values()), _news(known, now))


def _read(
    known: Mapping[TaskRef, Found], setting: Setting, more: Sequence[Statement]
) -> Generator[Sequence[Statement], Sequence[Rows], tuple[int, Sequence[Rows]]]:
    """Fill in the rows of *known*; returns the time, and the rows of what was asked beside."""
    asked = record.read(known.values())
    time = Statement(f"SELECT {setting.now}")
    replies = yield [time, *asked, *more]
    record.fill(known.values(), replies[1 : 1 + len(asked)])
    for found in known.values():
        if found.is_used_up:
            # Changed thousands of times: it goes on from another number.
            found.rebase((yield from _fresh_base(found.lane)))
    return int(replies[0][0][0]), replies[1 + len(asked) :]


def _fresh_base(lane: int) -> Generator[Sequence[Statement], Sequence[Rows], int]:
    """Return a number that nobody has counted revisions from.

    The one that a new row would draw: it is above all that were drawn so far.
    """
    dummy = b"tarry.%s" % os.urandom(12).hex().encode()
    values = (lane, dummy)
    replies = yield [
        Statement(
            "INSERT INTO tarry_task (lane, `key`, leased, at, due, created, rule, reason, headers, "
            "payload) VALUES (%s, %s, 2, 0, 0, 0, '', '', '', '')",
            values,
            rows=False,
        ),
        Statement("SELECT LAST_INSERT_ID()"),
        Statement("DELETE FROM tarry_task WHERE lane = %s AND `key` = %s", values, rows=False),
    ]
    return int(replies[1][0][0])


def _news(known: Mapping[TaskRef, Found], now: int) -> list[tuple[int, int]]:
    """Return lane and due of what is claimable soon, and was not so before."""
    found = []
    for each in known.values():
        due = each.claimable() if each.changed else None
        if due is not None and due <= now + WAKE_MS:
            found.append((each.lane, due))
    return found


# ---- dead letters


def revive(refs: Sequence[DeadRef], lanes: Lanes, setting: Setting) -> Plan[ReviveResult]:
    """Make dead letters waiting tasks again."""
    known = {item.ref: Found(lanes[item.ref.kind], item.ref) for item in refs}
    now, replies = yield from _read(known, setting, _dead_letters(known))
    letters = _Letters(known, replies)
    answers = []
    for item in refs:
        found = known[item.ref]
        dead = letters.newest(item)
        change = lives.revive(found.life, dead, now, found.draw)
        found.life = change.life
        found.ended += change.ended
        if dead is not None and change.answer is ReviveResult.REVIVED:
            letters.remove(dead)
        answers.append(change.answer)
    return Told(answers, record.writes(known.values()) + letters.writes(), _news(known, now))


def purge(refs: Sequence[DeadRef], lanes: Lanes, setting: Setting) -> Plan[bool]:
    """Delete dead letters."""
    del setting
    known = {item.ref: Found(lanes[item.ref.kind], item.ref) for item in refs}
    letters = _Letters(known, (yield _dead_letters(known)))
    answers = []
    for item in refs:
        dead = letters.newest(item)
        if dead is not None:
            letters.remove(dead)
        answers.append(dead is not None)
    return Told(answers, letters.writes())


def take_over(tasks: Sequence[Task], lanes: Lanes, setting: Setting, *, over: bool) -> Plan[bool]:
    """Place records of another store.

    What comes to wait behind a running attempt begins with its first one: there is no column for
    the attempts of both.
    """
    known = {task.ref: Found(lanes[task.ref.kind], task.ref) for task in tasks}
    dead = {task.ref: known[task.ref] for task in tasks if task.state is TaskState.DEAD}
    alone = [_alone({found.lane for found in dead.values()})] if dead else []
    now, replies = yield from _read(known, setting, [*alone, *_dead_letters(dead)])
    ends = _Letters(dead, replies[len(alone) :]).ends()
    base = (yield from _fresh_base(next(iter(dead.values())).lane)) if dead else 0
    unused = count(base * rows.SPAN)
    answers = []
    for task in tasks:
        found = known[task.ref]
        if task.state is not TaskState.DEAD:
            change = lives.take_over(found.life, task, now, found.draw, over=over)
        elif (task.ref, task.ended) in ends:
            change = Change(answer=False, life=found.life)
        else:
            ends.add((task.ref, task.ended))
            # A row that is there counts this revision, too, and must be written for it.
            letter = replace(task, revision=found.draw() or next(unused))
            change = Change(answer=True, life=replace(found.life), ended=(letter,))
        found.life = change.life
        found.ended += change.ended
        answers.append(change.answer)
    return Told(answers, record.writes(known.values()), _news(known, now))


def _alone(lanes: Collection[int]) -> Statement:
    """Return what lets others wait who bring letters of the same kinds: each must see the other's.

    Claims wait as well, for as long as the transaction takes.
    """
    return Statement(
        f"SELECT id FROM tarry_lane WHERE id IN ({marks(len(lanes))}) ORDER BY id FOR UPDATE",
        sorted(lanes),
    )


def _dead_letters(known: Mapping[TaskRef, Found]) -> list[Statement]:
    keys: dict[int, list[bytes]] = {}
    for found in known.values():
        keys.setdefault(found.lane, []).append(found.ref.key.encode())
    return [
        Statement(
            f"SELECT {rows.ENDED} FROM tarry_ended FORCE INDEX (ref) "
            f"WHERE lane = %s AND `key` IN ({marks(len(those))}) AND state = 'dead' FOR UPDATE",
            (lane, *sorted(those)),
        )
        for lane, those in sorted(keys.items())
    ]


class _Letters:
    """The dead letters of some refs."""

    def __init__(self, known: Mapping[TaskRef, Found], replies: Sequence[Rows]) -> None:
        self._letters: dict[TaskRef, dict[int, tuple[int, Task]]] = {}
        self._removed: list[int] = []
        lanes = sorted({found.lane: ref.kind for ref, found in known.items()}.items())
        for (_, kind), reply in zip(lanes, replies, strict=True):
            for row in reply:
                dead = rows.ended(kind, row)
                self._letters.setdefault(dead.ref, {})[dead.revision] = (rows.place(row), dead)

    def newest(self, item: DeadRef) -> Task | None:
        """Return the letter that is meant."""
        letters = self._letters.get(item.ref, {})
        revision = item.revision or max(letters, default=0)
        return letters[revision][1] if revision in letters else None

    def ends(self) -> set[tuple[TaskRef, int]]:
        """Return when the letters of each ref ended."""
        return {
            (ref, dead.ended) for ref, found in self._letters.items() for _, dead in found.values()
        }

    def remove(self, dead: Task) -> None:
        """Note that a letter goes."""
        self._removed.append(self._letters[dead.ref].pop(dead.revision)[0])

    def writes(self) -> list[Statement]:
        """Return the statement that removes what goes."""
        if not self._removed:
            return []
        return [
            Statement(
                f"DELETE FROM tarry_ended WHERE id IN ({marks(len(self._removed))})",
                sorted(self._removed),
                rows=False,
            )
        ]


# ---- schedule


def schedule(requests: Sequence[Request], lanes: Lanes, setting: Setting) -> Plan[Scheduled]:
    """Place each request in its ref's waiting slot: by one statement if nothing has expired."""
    answers: dict[int, Scheduled] = {}
    news: list[tuple[int, int]] = []
    writes: Sequence[Statement] = ()
    for run in _runs(requests):
        if writes:
            yield writes
        placing = _Placing(requests, run, lanes, setting)
        later = [place for place in run if requests[place].if_revision is not None]
        if len(later) < len(run):
            later += placing.read((yield placing.statements()))
        answers |= placing.answers
        news += placing.news
        writes = ()
        if later:
            told = yield from _each(
                [requests[place] for place in later],
                [requests[place].ref for place in later],
                lanes,
                setting,
                lambda found, item, now: lives.schedule(found.life, item, now, found.draw),
            )
            answers |= dict(zip(later, told.answers, strict=True))
            news += told.news
            writes = told.writes
    return Told([answers[place] for place in range(len(requests))], writes, news)


def _runs(requests: Sequence[Request]) -> list[list[int]]:
    """Cut a batch where a ref comes again: items of one ref act one after the other."""
    runs: list[list[int]] = []
    seen: set[TaskRef] = set()
    for place, request in enumerate(requests):
        if not runs or request.ref in seen:
            runs.append([])
            seen = set()
        runs[-1].append(place)
        seen.add(request.ref)
    return runs


class _Placing:
    """The upserts of one run, and what they answered."""

    def __init__(
        self, requests: Sequence[Request], run: Sequence[int], lanes: Lanes, setting: Setting
    ) -> None:
        self._requests = requests
        self._lanes = lanes
        self._setting = setting
        self._groups: dict[upsert.Group, list[int]] = {}
        for place in run:
            request = requests[place]
            if request.if_revision is None:
                self._groups.setdefault(upsert.group_of(request), []).append(place)
        for places in self._groups.values():
            # In the order of the index: callers that meet wait for each other, not in a circle.
            places.sort(key=self._order)
        self.answers: dict[int, Scheduled] = {}
        self.news: list[tuple[int, int]] = []

    def _order(self, place: int) -> tuple[int, str]:
        ref = self._requests[place].ref
        return self._lanes[ref.kind], ref.key

    def statements(self) -> list[Statement]:
        """Return the upserts, and what reads their answers."""
        now = self._setting.now
        found: list[Statement] = []
        for group, places in self._groups.items():
            items = [(self._lanes[self._requests[n].ref.kind], self._requests[n]) for n in places]
            statement = upsert.upsert(group, items, now)
            if self._setting.returns:
                found.append(upsert.answering(statement))
                continue
            found.append(statement)
            keys: dict[int, list[bytes]] = {}
            for lane, request in items:
                keys.setdefault(lane, []).append(request.ref.key.encode())
            found += (upsert.answers(lane, those) for lane, those in keys.items())
        return found

    def read(self, replies: Sequence[Rows]) -> list[int]:
        """Note the answers; returns the places of what must be looked at."""
        later = []
        reply = iter(replies)
        for places in self._groups.values():
            if self._setting.returns:
                texts = [row[0] for row in next(reply)]
            else:
                next(reply)
                texts = self._asked(places, reply)
            for place, text in zip(places, texts, strict=True):
                if not self._note(place, text):
                    later.append(place)
        return later

    def _asked(self, places: Sequence[int], reply: Iterator[Rows]) -> list[str]:
        """Return the answers of one group that were read by key, in the order of its places."""
        by_name: dict[tuple[int, bytes], str] = {}
        for lane in dict.fromkeys(self._lanes[self._requests[n].ref.kind] for n in places):
            by_name |= {(lane, row[1]): row[0] for row in next(reply)}
        refs = [self._requests[place].ref for place in places]
        return [by_name[self._lanes[ref.kind], ref.key.encode()] for ref in refs]

    def _note(self, place: int, text: str) -> bool:
        said, leased, due, revision = upsert.read(text)
        if said == upsert.LATER:
            return False
        ref = self._requests[place].ref
        self.answers[place] = Scheduled(ref, due, revision, _STATUS[said])
        if said < upsert.KEPT and not leased:
            self.news.append((self._lanes[ref.kind], due))
        return True
