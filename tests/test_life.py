"""The two-slot life of a ref, rule by rule, as tables."""

from collections.abc import Callable
from itertools import count

import pytest
from msgspec.structs import replace

from tarry import life as lives
from tarry.answers import (
    CancelResult,
    Moved,
    MoveStatus,
    RenewResult,
    ReviveResult,
    Scheduled,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import AnyOutcome, Dead, Done, Release, Retry, Skip, Snooze
from tarry.clock import MS_PER_YEAR_9999
from tarry.due import At, By, Due, In
from tarry.lease import Lease
from tarry.life import NOTHING, Life
from tarry.request import (
    Cancellation,
    Move,
    OnConflict,
    Only,
    Request,
    Settlement,
    Successor,
)
from tarry.task import Task, TaskRef, TaskState

NOW = 1_000_000
REF = TaskRef("order.cancel", "42")
WAITING = Task(
    ref=REF,
    due=NOW + 500,
    revision=5,
    created=NOW - 900,
    payload=b"old",
    attempt=3,
    snoozes=2,
    lost=1,
    reason="failed",
)
RUNNING = Lease(
    task=Task(
        ref=REF,
        due=NOW - 10,
        revision=4,
        created=NOW - 900,
        attempt=2,
        snoozes=1,
        lost=1,
        state=TaskState.LEASED,
    ),
    token=77,
    holder="w1",
    expires=NOW + 1,
)
EXPIRED = replace(RUNNING, expires=NOW)
LEFT = replace(RUNNING.task, lost=2, state=TaskState.SCHEDULED)
"""What an expired lease leaves behind."""


def marked(lease: Lease, **changes: object) -> Lease:
    return replace(lease, task=replace(lease.task, cancelled=True, **changes))


def draw() -> Callable[[], int]:
    numbers = count(9)
    return lambda: next(numbers)


def never() -> int:
    pytest.fail("a revision was drawn for nothing")


def schedule(life: Life, **options: object) -> lives.Change[Scheduled]:
    due = options.pop("due", In(700))
    assert isinstance(due, At | In)
    request = Request(REF, due, b"new", b"h", **options)  # type: ignore[arg-type]
    return lives.schedule(life, request, NOW, draw())


# ---- an expired lease has ended


@pytest.mark.parametrize(
    ("life", "after", "ended"),
    [
        (NOTHING, NOTHING, []),
        (Life(WAITING), Life(WAITING), []),
        (Life(None, RUNNING), Life(None, RUNNING), []),
        (Life(WAITING, RUNNING), Life(WAITING, RUNNING), []),
        (Life(None, marked(RUNNING)), Life(None, marked(RUNNING)), []),
        (Life(None, EXPIRED), Life(LEFT), []),
        (Life(WAITING, EXPIRED), Life(WAITING), []),
        (Life(None, marked(EXPIRED)), NOTHING, [4]),
        (Life(WAITING, marked(EXPIRED)), Life(WAITING), [4]),
        (
            Life(None, marked(EXPIRED, declared=True)),
            Life(replace(LEFT, cancelled=True, declared=True)),
            [],
        ),
        (Life(WAITING, marked(EXPIRED, declared=True)), Life(WAITING), [4]),
    ],
)
def test_a_life_as_it_is_seen_now(life: Life, after: Life, ended: list[int]) -> None:
    change = lives.at(life, NOW)

    assert change.answer is None
    assert change.life == after
    assert [(task.revision, task.state, task.ended) for task in change.ended] == [
        (revision, TaskState.CANCELLED, NOW) for revision in ended
    ]


@pytest.mark.parametrize(
    ("life", "shown"),
    [
        (NOTHING, None),
        (Life(WAITING), WAITING),
        (Life(WAITING, RUNNING), WAITING),
        (Life(None, RUNNING), RUNNING.task),
        (Life(None, EXPIRED), LEFT),
        (Life(None, marked(EXPIRED)), None),
    ],
)
def test_what_get_shows_of_a_life(life: Life, shown: Task | None) -> None:
    assert lives.view(life, NOW) == shown


# ---- schedule

CREATED, REPLACED = ScheduleStatus.CREATED, ScheduleStatus.REPLACED
KEPT, CONFLICT = ScheduleStatus.KEPT, ScheduleStatus.CONFLICT
REPLACE, KEEP, FAIL = OnConflict.REPLACE, OnConflict.KEEP, OnConflict.FAIL
EARLIEST, LATEST = OnConflict.EARLIEST, OnConflict.LATEST


@pytest.mark.parametrize("mode", OnConflict)
@pytest.mark.parametrize(
    "life", [NOTHING, Life(None, RUNNING), Life(None, marked(RUNNING)), Life(None, marked(EXPIRED))]
)
def test_every_mode_creates_where_nothing_waits(life: Life, mode: OnConflict) -> None:
    change = schedule(life, on_conflict=mode, max_wait_ms=1)

    assert change.answer == Scheduled(REF, NOW + 700, 9, CREATED)
    assert change.life.waiting == Task(
        ref=REF, due=NOW + 700, revision=9, created=NOW, payload=b"new", headers=b"h"
    )
    assert change.life.running == lives.at(life, NOW).life.running


@pytest.mark.parametrize(
    ("mode", "due", "max_wait", "status", "after_due", "created"),
    [
        (REPLACE, In(700), None, REPLACED, NOW + 700, NOW),
        (REPLACE, In(0), None, REPLACED, NOW, NOW),
        (REPLACE, At(5), None, REPLACED, NOW, NOW),
        (REPLACE, In(MS_PER_YEAR_9999), None, REPLACED, MS_PER_YEAR_9999, NOW),
        (EARLIEST, In(700), None, REPLACED, NOW + 500, NOW - 900),
        (EARLIEST, In(300), None, REPLACED, NOW + 300, NOW - 900),
        (LATEST, In(700), None, REPLACED, NOW + 700, NOW - 900),
        (LATEST, In(300), None, REPLACED, NOW + 500, NOW - 900),
        (LATEST, In(700), 1_500, REPLACED, NOW + 600, NOW - 900),
        (LATEST, In(700), 1_000, REPLACED, NOW + 500, NOW - 900),
        (LATEST, In(700), 9_000, REPLACED, NOW + 700, NOW - 900),
        (EARLIEST, In(700), 10, REPLACED, NOW + 500, NOW - 900),
    ],
)
@pytest.mark.parametrize("running", [None, RUNNING])
def test_what_waits_is_replaced(
    *,
    mode: OnConflict,
    due: Due,
    max_wait: int | None,
    status: ScheduleStatus,
    after_due: int,
    created: int,
    running: Lease | None,
) -> None:
    change = schedule(Life(WAITING, running), due=due, on_conflict=mode, max_wait_ms=max_wait)

    assert change.answer == Scheduled(REF, after_due, 9, status)
    assert change.life == Life(
        Task(ref=REF, due=after_due, revision=9, created=created, payload=b"new", headers=b"h"),
        running,
    )
    assert change.ended == ()


@pytest.mark.parametrize(
    ("life", "mode", "wanted", "status", "old"),
    [
        (Life(WAITING), KEEP, None, KEPT, WAITING),
        (Life(WAITING), KEEP, 5, KEPT, WAITING),
        (Life(WAITING), FAIL, None, CONFLICT, WAITING),
        (Life(WAITING), FAIL, 5, CONFLICT, WAITING),
        (Life(WAITING), KEEP, 4, CONFLICT, WAITING),
        (Life(WAITING), REPLACE, 4, CONFLICT, WAITING),
        (Life(WAITING, RUNNING), REPLACE, 4, CONFLICT, WAITING),
        (Life(None, RUNNING), REPLACE, 4, CONFLICT, None),
        (NOTHING, REPLACE, 1, CONFLICT, None),
        (NOTHING, KEEP, 1, CONFLICT, None),
        (Life(None, EXPIRED), KEEP, None, KEPT, LEFT),
        (Life(None, EXPIRED), FAIL, None, CONFLICT, LEFT),
    ],
)
def test_what_is_not_accepted_draws_no_revision(
    life: Life, mode: OnConflict, wanted: int | None, status: ScheduleStatus, old: Task | None
) -> None:
    request = Request(REF, In(0), on_conflict=mode, if_revision=wanted)

    change = lives.schedule(life, request, NOW, never)

    due, revision = (old.due, old.revision) if old else (0, 0)
    assert change.answer == Scheduled(REF, due, revision, status)
    assert change.life == lives.at(life, NOW).life


SERIES = replace(WAITING, rule="hourly", nominal=NOW + 400, declared=True)
OCCURRENCE = replace(RUNNING, task=replace(RUNNING.task, rule="hourly", nominal=NOW - 20))
DECLARED = replace(OCCURRENCE, task=replace(OCCURRENCE.task, declared=True))


@pytest.mark.parametrize(
    ("life", "options", "expected"),
    [
        (NOTHING, {}, ("", 0, False)),
        (NOTHING, {"rule": "daily"}, ("daily", NOW + 700, False)),
        (NOTHING, {"rule": "daily", "nominal": 5, "declared": True}, ("daily", 5, True)),
        (Life(SERIES), {}, ("hourly", NOW + 400, True)),
        (Life(SERIES), {"rule": "daily"}, ("daily", NOW + 700, False)),
        (Life(WAITING), {}, ("", 0, False)),
        (Life(None, OCCURRENCE), {}, ("hourly", NOW - 20, False)),
        (Life(None, DECLARED), {}, ("hourly", NOW - 20, True)),
        (Life(None, marked(OCCURRENCE)), {}, ("", 0, False)),
        (Life(None, marked(DECLARED)), {}, ("hourly", NOW - 20, True)),
        (Life(WAITING, OCCURRENCE), {}, ("", 0, False)),
        (Life(None, OCCURRENCE), {"rule": "daily"}, ("daily", NOW + 700, False)),
    ],
)
def test_which_series_a_new_revision_belongs_to(
    life: Life, options: dict[str, object], expected: tuple[str, int, bool]
) -> None:
    task = schedule(life, **options).life.waiting

    assert task is not None
    assert (task.rule, task.nominal, task.declared) == expected


# ---- reschedule

NOT_MET: list[tuple[Only, Due | By]] = [
    (Only.EARLIER, In(500)),
    (Only.EARLIER, In(501)),
    (Only.EARLIER, By(0)),
    (Only.LATER, In(500)),
    (Only.LATER, In(499)),
    (Only.LATER, By(-1)),
]


@pytest.mark.parametrize(
    ("life", "move", "answer"),
    [
        (NOTHING, Move(REF, In(5)), Moved(REF, 0, 0, MoveStatus.ABSENT)),
        (NOTHING, Move(REF, In(5), if_revision=1), Moved(REF, 0, 0, MoveStatus.ABSENT)),
        (Life(None, marked(EXPIRED)), Move(REF, In(5)), Moved(REF, 0, 0, MoveStatus.ABSENT)),
        (Life(None, RUNNING), Move(REF, In(5)), Moved(REF, 0, 0, MoveStatus.RUNNING)),
        (
            Life(None, RUNNING),
            Move(REF, In(5), if_revision=1),
            Moved(REF, 0, 0, MoveStatus.RUNNING),
        ),
        (
            Life(WAITING),
            Move(REF, In(5), Only.LATER, if_revision=4),
            Moved(REF, NOW + 500, 5, MoveStatus.CONFLICT),
        ),
        *(
            (Life(WAITING), Move(REF, due, only), Moved(REF, NOW + 500, 5, MoveStatus.UNCHANGED))
            for only, due in NOT_MET
        ),
        (
            Life(None, EXPIRED),
            Move(REF, In(0), Only.EARLIER),
            Moved(REF, NOW - 10, 4, MoveStatus.UNCHANGED),
        ),
    ],
)
def test_what_cannot_be_moved(life: Life, move: Move, answer: Moved) -> None:
    change = lives.reschedule(life, move, NOW, never)

    assert change.answer == answer
    assert change.life == lives.at(life, NOW).life


@pytest.mark.parametrize("running", [None, RUNNING])
@pytest.mark.parametrize(
    ("move", "due"),
    [
        (Move(REF, In(700)), NOW + 700),
        (Move(REF, In(500)), NOW + 500),
        (Move(REF, At(NOW + 3), if_revision=5), NOW + 3),
        (Move(REF, At(3)), NOW),
        (Move(REF, In(MS_PER_YEAR_9999)), MS_PER_YEAR_9999),
        (Move(REF, By(70)), NOW + 570),
        (Move(REF, By(-70)), NOW + 430),
        (Move(REF, By(-9_000)), NOW),
        (Move(REF, By(MS_PER_YEAR_9999)), MS_PER_YEAR_9999),
        (Move(REF, In(499), Only.EARLIER), NOW + 499),
        (Move(REF, In(501), Only.LATER), NOW + 501),
    ],
)
def test_a_move_changes_due_and_revision_only(move: Move, due: int, running: Lease | None) -> None:
    change = lives.reschedule(Life(WAITING, running), move, NOW, draw())

    assert change.answer == Moved(REF, due, 9, MoveStatus.MOVED)
    assert change.life == Life(replace(WAITING, due=due, revision=9), running)


def test_a_move_of_an_ended_lease_counts_the_loss() -> None:
    change = lives.reschedule(Life(None, EXPIRED), Move(REF, In(5)), NOW, draw())

    assert change.life == Life(replace(LEFT, due=NOW + 5, revision=9))


def test_a_move_takes_the_mark_of_a_cancelled_occurrence_away() -> None:
    life = Life(None, marked(replace(DECLARED, expires=NOW)))

    moved = lives.reschedule(life, Move(REF, In(5), nominal=NOW + 5), NOW, draw()).life.waiting

    assert moved is not None
    assert (moved.cancelled, moved.nominal, moved.rule) == (False, NOW + 5, "hourly")


# ---- cancel


@pytest.mark.parametrize(
    ("life", "wanted", "answer", "after", "ended"),
    [
        (NOTHING, None, CancelResult.ABSENT, NOTHING, []),
        (NOTHING, 5, CancelResult.ABSENT, NOTHING, []),
        (Life(WAITING), None, CancelResult.CANCELLED, NOTHING, [5]),
        (Life(WAITING), 5, CancelResult.CANCELLED, NOTHING, [5]),
        (Life(WAITING), 4, CancelResult.CONFLICT, Life(WAITING), []),
        (Life(None, RUNNING), None, CancelResult.RUNNING, Life(None, marked(RUNNING)), []),
        (Life(None, RUNNING), 4, CancelResult.RUNNING, Life(None, marked(RUNNING)), []),
        (Life(None, RUNNING), 5, CancelResult.CONFLICT, Life(None, RUNNING), []),
        (Life(WAITING, RUNNING), None, CancelResult.RUNNING, Life(None, marked(RUNNING)), [5]),
        (Life(WAITING, RUNNING), 5, CancelResult.RUNNING, Life(None, marked(RUNNING)), [5]),
        (Life(WAITING, RUNNING), 4, CancelResult.CONFLICT, Life(WAITING, RUNNING), []),
        (Life(None, EXPIRED), None, CancelResult.CANCELLED, NOTHING, [4]),
        (Life(WAITING, EXPIRED), None, CancelResult.CANCELLED, NOTHING, [5]),
        (Life(None, marked(EXPIRED)), None, CancelResult.ABSENT, NOTHING, [4]),
        (Life(WAITING, marked(EXPIRED)), None, CancelResult.CANCELLED, NOTHING, [4, 5]),
    ],
)
def test_a_cancel(
    life: Life, wanted: int | None, answer: CancelResult, after: Life, ended: list[int]
) -> None:
    change = lives.cancel(life, Cancellation(REF, wanted), NOW)

    assert (change.answer, change.life) == (answer, after)
    assert [task.revision for task in change.ended] == ended
    assert {task.state for task in change.ended} <= {TaskState.CANCELLED}


def test_a_cancel_of_what_runs_leaves_alone_what_waits_again() -> None:
    lease = replace(DECLARED, expires=NOW)
    wanted = Cancellation(REF, lease.task.revision, only_running=True)

    lost = lives.cancel(Life(None, lease), wanted, NOW)
    held = lives.cancel(Life(None, lease), wanted, NOW - 1)

    again = lives.at(Life(None, lease), NOW).life
    assert (lost.answer, lost.life) == (CancelResult.CONFLICT, again)
    assert (held.answer, held.life) == (CancelResult.RUNNING, Life(None, marked(lease)))


# ---- claim and renew


def test_a_claim_counts_the_attempt() -> None:
    lease = lives.claim(WAITING, token=1, holder="w", expires=NOW + 9, place=3)

    assert lease == Lease(
        task=replace(WAITING, attempt=4, state=TaskState.LEASED),
        token=1,
        holder="w",
        expires=NOW + 9,
        place=3,
    )


@pytest.mark.parametrize(
    ("life", "token", "answer"),
    [
        (NOTHING, 77, RenewResult.LOST),
        (Life(WAITING), 77, RenewResult.LOST),
        (Life(None, RUNNING), 78, RenewResult.LOST),
        (Life(None, RUNNING), 77, RenewResult.RENEWED),
        (Life(WAITING, RUNNING), 77, RenewResult.RENEWED),
        (Life(None, EXPIRED), 77, RenewResult.RENEWED),
        (Life(None, marked(RUNNING)), 77, RenewResult.CANCELLED),
        (Life(WAITING, marked(EXPIRED)), 77, RenewResult.CANCELLED),
    ],
)
def test_a_renewal(life: Life, token: int, answer: RenewResult) -> None:
    change = lives.renew(life, token, NOW + 99)

    assert change.answer is answer
    assert change.life.waiting == life.waiting
    if not answer or life.running is None:
        assert change.life == life
    else:
        assert change.life.running == replace(life.running, expires=NOW + 99)


# ---- settle

NEXT = Successor(NOW + 3_600, NOW + 3_580)
FOLLOWING = replace(
    RUNNING.task,
    state=TaskState.SCHEDULED,
    due=NEXT.due,
    nominal=NEXT.nominal,
    created=NOW,
    revision=9,
    attempt=0,
    snoozes=0,
    lost=0,
)
ENDINGS: list[tuple[AnyOutcome, TaskState]] = [
    (Done(), TaskState.DONE),
    (Skip("paid"), TaskState.DONE),
    (Dead("broken"), TaskState.DEAD),
]
AGAINS: list[tuple[AnyOutcome, dict[str, object]]] = [
    (Retry(In(50), "failed"), {"due": NOW + 50, "reason": "failed"}),
    (Retry(At(5)), {"due": NOW}),
    (Snooze(In(50), "later"), {"due": NOW + 50, "reason": "later", "attempt": 1, "snoozes": 2}),
    (Release(), {"attempt": 1}),
]


@pytest.mark.parametrize("life", [NOTHING, Life(WAITING), Life(None, replace(RUNNING, token=78))])
def test_a_settlement_without_the_newest_token_writes_nothing(life: Life) -> None:
    change = lives.settle(life, Settlement(RUNNING, Done()), NOW, never)

    assert (change.answer, change.life, change.ended) == (SettleResult.LEASE_LOST, life, ())


@pytest.mark.parametrize("lease", [RUNNING, EXPIRED])
@pytest.mark.parametrize(("outcome", "state"), ENDINGS)
def test_an_attempt_that_ends_is_recorded(
    lease: Lease, outcome: AnyOutcome, state: TaskState
) -> None:
    change = lives.settle(Life(None, lease), Settlement(lease, outcome), NOW, never)

    assert (change.answer, change.life) == (SettleResult.SETTLED, NOTHING)
    assert change.ended == (replace(lease.task, state=state, ended=NOW, reason=outcome.reason),)


@pytest.mark.parametrize("successor", [None, NEXT])
@pytest.mark.parametrize(("outcome", "changes"), AGAINS)
def test_an_attempt_that_is_not_the_last_makes_the_task_wait_again(
    outcome: AnyOutcome, changes: dict[str, object], successor: Successor | None
) -> None:
    settlement = Settlement(RUNNING, outcome, successor)

    change = lives.settle(Life(None, RUNNING), settlement, NOW, never)

    again = replace(RUNNING.task, state=TaskState.SCHEDULED, **changes)
    assert (change.answer, change.life) == (SettleResult.SETTLED, Life(again))
    assert change.ended == ()


@pytest.mark.parametrize(
    ("lease", "outcome", "ended"),
    [
        *((RUNNING, outcome, [state]) for outcome, state in ENDINGS),
        *((RUNNING, outcome, []) for outcome, _ in AGAINS),
        *((marked(RUNNING), outcome, [state]) for outcome, state in ENDINGS),
        *((marked(RUNNING), outcome, [TaskState.CANCELLED]) for outcome, _ in AGAINS),
    ],
)
def test_every_outcome_yields_to_a_newer_revision(
    lease: Lease, outcome: AnyOutcome, ended: list[TaskState]
) -> None:
    settlement = Settlement(lease, outcome, NEXT)

    change = lives.settle(Life(WAITING, lease), settlement, NOW, never)

    assert (change.answer, change.life) == (SettleResult.SUPERSEDED, Life(WAITING))
    assert [task.state for task in change.ended] == ended


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in AGAINS])
def test_a_cancelled_attempt_does_not_wait_again(outcome: AnyOutcome) -> None:
    lease = marked(RUNNING)

    change = lives.settle(Life(None, lease), Settlement(lease, outcome, NEXT), NOW, never)

    assert (change.answer, change.life) == (SettleResult.SETTLED, NOTHING)
    assert change.ended == (
        replace(lease.task, state=TaskState.CANCELLED, ended=NOW, reason=outcome.reason),
    )


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in ENDINGS])
def test_the_next_occurrence_follows_one_that_ended(outcome: AnyOutcome) -> None:
    settlement = Settlement(RUNNING, outcome, NEXT)

    change = lives.settle(Life(None, RUNNING), settlement, NOW, draw())

    assert (change.answer, change.life) == (SettleResult.SETTLED, Life(FOLLOWING))


def test_a_next_occurrence_in_the_past_is_due_now() -> None:
    settlement = Settlement(RUNNING, Done(), Successor(NOW - 5, NOW - 5))

    change = lives.settle(Life(None, RUNNING), settlement, NOW, draw())

    assert change.life == Life(replace(FOLLOWING, due=NOW, nominal=NOW - 5))


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in [*ENDINGS, *AGAINS]])
def test_a_declared_series_outlives_a_cancelled_occurrence(outcome: AnyOutcome) -> None:
    lease = marked(RUNNING, declared=True)

    change = lives.settle(Life(None, lease), Settlement(lease, outcome, NEXT), NOW, draw())

    assert change.life == Life(replace(FOLLOWING, declared=True))


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in ENDINGS])
def test_a_callers_series_ends_with_a_cancelled_occurrence(outcome: AnyOutcome) -> None:
    lease = marked(RUNNING)

    change = lives.settle(Life(None, lease), Settlement(lease, outcome, NEXT), NOW, never)

    assert change.life == NOTHING


# ---- revive

LETTER = replace(
    SERIES, state=TaskState.DEAD, revision=3, ended=NOW - 50, cancelled=True, keep_ms=8
)


@pytest.mark.parametrize(
    ("life", "dead", "answer"),
    [
        (NOTHING, None, ReviveResult.ABSENT),
        (Life(WAITING), None, ReviveResult.ABSENT),
        (Life(WAITING), LETTER, ReviveResult.SKIPPED),
        (Life(None, RUNNING), LETTER, ReviveResult.SKIPPED),
        (Life(None, EXPIRED), LETTER, ReviveResult.SKIPPED),
    ],
)
def test_what_is_not_revived(life: Life, dead: Task | None, answer: ReviveResult) -> None:
    change = lives.revive(life, dead, NOW, never)

    assert (change.answer, change.life) == (answer, lives.at(life, NOW).life)


@pytest.mark.parametrize("life", [NOTHING, Life(None, marked(EXPIRED))])
def test_a_revived_task_starts_anew_without_its_series(life: Life) -> None:
    change = lives.revive(life, LETTER, NOW, draw())

    assert change.answer is ReviveResult.REVIVED
    assert change.life == Life(
        Task(ref=REF, due=NOW, revision=9, created=NOW, payload=b"old", keep_ms=8)
    )


# ---- what ended on the way is told, whatever the answer

GONE = Life(None, marked(EXPIRED, keep_ms=8))
"""Its attempt was cancelled and its lease has ended: the first verb that looks tells so."""
BEHIND = Life(WAITING, GONE.running)
ENDED = (replace(marked(EXPIRED, keep_ms=8).task, state=TaskState.CANCELLED, ended=NOW),)


@pytest.mark.parametrize(
    ("life", "verb"),
    [
        (GONE, schedule),
        (GONE, lambda life: schedule(life, if_revision=1)),
        (BEHIND, schedule),
        (BEHIND, lambda life: schedule(life, on_conflict=KEEP)),
        (GONE, lambda life: lives.reschedule(life, Move(REF, In(5)), NOW, draw())),
        (BEHIND, lambda life: lives.reschedule(life, Move(REF, In(5)), NOW, draw())),
        (BEHIND, lambda life: lives.reschedule(life, Move(REF, In(5), if_revision=1), NOW, draw())),
        (BEHIND, lambda life: lives.cancel(life, Cancellation(REF, 1), NOW)),
        (BEHIND, lambda life: lives.cancel(life, Cancellation(REF, only_running=True), NOW)),
        (GONE, lambda life: lives.cancel(life, Cancellation(REF), NOW)),
        (GONE, lambda life: lives.revive(life, None, NOW, draw())),
        (GONE, lambda life: lives.revive(life, LETTER, NOW, draw())),
        (BEHIND, lambda life: lives.revive(life, LETTER, NOW, draw())),
    ],
)
def test_the_verb_that_finds_a_cancelled_attempt_ended_tells_of_its_end(
    life: Life, verb: Callable[[Life], lives.Change[object]]
) -> None:
    assert verb(life).ended == ENDED


def test_a_cancelled_revision_is_recorded_with_its_end() -> None:
    change = lives.cancel(Life(WAITING), Cancellation(REF), NOW)

    assert change.ended == (replace(WAITING, state=TaskState.CANCELLED, ended=NOW, reason=""),)


def test_a_task_keeps_its_history_as_long_as_its_schedule_asked_for() -> None:
    task = schedule(NOTHING, keep_ms=7).life.waiting

    assert task is not None
    assert task.keep_ms == 7


def test_a_claim_that_names_no_place_has_none() -> None:
    assert lives.claim(WAITING, token=1, holder="w", expires=NOW + 9).place == 0


def test_the_next_occurrence_does_not_carry_the_reason_of_the_one_before() -> None:
    lease = replace(RUNNING, task=replace(RUNNING.task, reason="failed once"))

    change = lives.settle(Life(None, lease), Settlement(lease, Done(), NEXT), NOW, draw())

    assert change.life == Life(FOLLOWING)


# ---- what another store has shown


def test_what_is_taken_over_waits_whatever_it_was() -> None:
    odd = replace(WAITING, state=TaskState.LEASED, cancelled=True, ended=NOW - 1)

    change = lives.take_over(NOTHING, odd, NOW, draw(), over=False)

    assert change.answer
    assert change.life.waiting is not None
    assert change.life.waiting == replace(WAITING, revision=change.life.waiting.revision)
    assert change.life.waiting.revision != WAITING.revision


@pytest.mark.parametrize("running", [None, RUNNING])
@pytest.mark.parametrize("over", [False, True])
def test_one_that_waits_yields_to_what_is_taken_over_only_if_asked_to(
    over: bool, running: Lease | None
) -> None:
    new = replace(WAITING, payload=b"new", revision=0)

    change = lives.take_over(Life(WAITING, running), new, NOW, draw(), over=over)

    assert change.answer is over
    assert change.life.running == running
    assert change.life.waiting is not None
    assert change.life.waiting.payload == (b"new" if over else b"old")
    assert change.ended == ()


@pytest.mark.parametrize("over", [False, True])
def test_a_lease_that_has_ended_is_no_running_attempt_when_something_is_taken_over(
    over: bool,
) -> None:
    for waiting in (None, WAITING):
        life = Life(waiting, marked(EXPIRED))

        change = lives.take_over(life, WAITING, NOW, draw(), over=over)

        assert change.answer is (over or waiting is None)
        assert change.life.running is None
        assert [task.revision for task in change.ended] == [RUNNING.task.revision]
