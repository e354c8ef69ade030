"""The vocabulary: names that are allowed, values that compare, answers that are true or not."""

import pytest

from tarry.answers import (
    CancelResult,
    Moved,
    MoveStatus,
    RenewResult,
    ReviveResult,
    SettleResult,
)
from tarry.attempt import (
    DONE,
    REASON_LIMIT,
    RELEASE,
    Dead,
    Done,
    Outcome,
    Release,
    Retry,
    Skip,
    Snooze,
)
from tarry.due import At, In
from tarry.errors import RefError, TarryError
from tarry.lease import Lease
from tarry.request import DeadRef, Move, OnConflict, Only, Request, Settlement, Successor
from tarry.task import (
    Task,
    TaskRef,
    TaskState,
    check_key,
    check_kind,
    check_namespace,
    check_ref,
)

REF = TaskRef("order.cancel", "42")
TASK = Task(ref=REF, due=5, revision=1, created=3)


@pytest.mark.parametrize("name", ["a", "shop", "shop-1.eu_west", "x" * 64, "0"])
def test_a_namespace_that_is_allowed(name: str) -> None:
    assert check_namespace(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a:b", "a/b", "ä", "a\n", "\N{ARABIC-INDIC DIGIT ONE}", None, 7]
)
def test_a_namespace_that_is_not_allowed(name: str) -> None:
    with pytest.raises(RefError, match="is not allowed: 1 to 64 of"):
        check_namespace(name)


@pytest.mark.parametrize("kind", ["a", "order.cancel", "shop:order_cancel-2", "x" * 128])
def test_a_kind_that_is_allowed(kind: str) -> None:
    assert check_kind(kind) == kind


@pytest.mark.parametrize("kind", ["", "x" * 129, "a b", "a/b", "ö", "a\n", "a\x00", None, b"a"])
def test_a_kind_that_is_not_allowed(kind: str) -> None:
    with pytest.raises(RefError, match="is not allowed: 1 to 128 of"):
        check_kind(kind)


@pytest.mark.parametrize(
    "key", ["1", " ", "order:42", "k" * 512, "ä" * 256, "🐢" * 128, "a b", "é", "\u2028", "\ue000"]
)
def test_a_key_that_is_allowed(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "this one has 0"),
        ("k" * 513, "this one has 513"),
        ("ä" * 257, "this one has 514"),
        ("a\x00b", "control character"),
        ("a\tb", "control character"),
        ("a\n", "control character"),
        ("\x7f", "control character"),
        ("\x85", "control character"),
        ("ä\x1b", "control character"),
        ("\ud800", "not valid Unicode"),
        (42, "not int"),
        (b"42", "not bytes"),
        (None, "not NoneType"),
    ],
)
def test_a_key_that_is_not_allowed(key: str, message: str) -> None:
    with pytest.raises(RefError, match=message):
        check_key(key)


def test_a_ref_that_is_not_allowed_is_an_error_of_tarry_and_of_the_value() -> None:
    with pytest.raises(TarryError):
        check_ref("order cancel", "42")
    with pytest.raises(ValueError, match="key"):
        check_ref("order.cancel", "")


def test_a_ref_is_a_value() -> None:
    ref = check_ref("order.cancel", "42")

    assert ref == REF
    assert {ref: 1}[REF] == 1
    assert str(ref) == "order.cancel/42"
    assert min(TaskRef("b", "1"), TaskRef("a", "2"), TaskRef("a", "1")) == TaskRef("a", "1")


def test_a_new_task_waits_and_has_counted_nothing() -> None:
    assert TASK.state is TaskState.SCHEDULED
    assert (TASK.attempt, TASK.snoozes, TASK.lost, TASK.failures) == (0, 0, 0, 0)
    assert (TASK.payload, TASK.headers) == (b"{}", b"")


@pytest.mark.parametrize(
    ("attempt", "lost", "failures"),
    [(0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 1, 1), (2, 1, 0), (1, 1, 0), (9, 0, 8)],
)
def test_failures_are_the_attempts_before_this_one_that_were_not_lost(
    attempt: int, lost: int, failures: int
) -> None:
    task = Task(ref=REF, due=5, revision=1, created=3, attempt=attempt, lost=lost)

    assert task.failures == failures


def test_a_lease_knows_its_task() -> None:
    lease = Lease(task=TASK, token=7, holder="w1", expires=9)
    marked = Lease(
        task=Task(ref=REF, due=5, revision=1, created=3, cancelled=True),
        token=7,
        holder="w1",
        expires=9,
    )

    assert lease.ref == REF
    assert (lease.cancelled, marked.cancelled) == (False, True)


def test_outcomes_are_values() -> None:
    assert Done() == DONE
    assert Release() == RELEASE
    assert Done() != Skip()
    assert Dead("a") != Dead("b")
    assert Retry(In(5)) != Retry(In(6))
    assert Retry(In(5), "a") == Retry(In(5), "a")
    assert Retry(In(5)) != Snooze(In(5))
    assert Done() != "done"
    assert {Skip("paid"), Skip("paid"), Skip("")} == {Skip(""), Skip("paid")}


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (Done(), "Done()"),
        (Dead("broken"), "Dead(reason='broken')"),
        (Retry(In(5)), "Retry(when=In(delay_ms=5))"),
        (Snooze("5m", "not yet"), "Snooze(reason='not yet', when='5m')"),
    ],
)
def test_an_outcome_shows_what_it_says(outcome: Outcome, shown: str) -> None:
    assert repr(outcome) == shown


def test_an_outcome_may_be_raised() -> None:
    with pytest.raises(Skip) as caught:
        raise Skip("paid")

    assert caught.value == Skip("paid")
    assert str(caught.value) == "paid"


def test_a_reason_that_is_too_long_is_cut() -> None:
    assert Dead("x" * (REASON_LIMIT + 1)).reason == "x" * REASON_LIMIT


def test_a_retry_knows_its_due_once_it_has_been_read() -> None:
    assert Retry(In(5)).due == In(5)
    assert Snooze(At(5)).due == At(5)
    with pytest.raises(TypeError, match="has not been read yet"):
        _ = Retry("5m").due


def test_requests_say_what_is_usual_by_leaving_it_out() -> None:
    request = Request(REF, In(5))
    move = Move(REF, In(5))

    assert request.on_conflict is OnConflict.REPLACE
    assert (request.if_revision, request.max_wait_ms, request.keep_ms) == (None, None, 0)
    assert (move.only, move.if_revision, move.nominal) == (Only.ANY, None, None)
    assert DeadRef(REF).revision == 0
    lease = Lease(task=TASK, token=7, holder="w1", expires=9)
    assert Settlement(lease, DONE).successor is None
    assert Successor(5, 6) == Successor(due=5, nominal=6)


@pytest.mark.parametrize(
    ("answers", "true"),
    [
        (CancelResult, {CancelResult.CANCELLED, CancelResult.ACCEPTED}),
        (SettleResult, {SettleResult.SETTLED}),
        (RenewResult, {RenewResult.RENEWED, RenewResult.CANCELLED}),
        (ReviveResult, {ReviveResult.REVIVED}),
    ],
)
def test_an_answer_is_true_when_it_did_what_was_asked(
    answers: type[CancelResult | SettleResult | RenewResult | ReviveResult], true: set[object]
) -> None:
    assert {answer for answer in answers if answer} == true


@pytest.mark.parametrize("status", MoveStatus)
def test_a_move_is_true_when_the_task_was_moved(status: MoveStatus) -> None:
    assert bool(Moved(REF, 5, 1, status)) is (status is MoveStatus.MOVED)
