"""Upsert: a schedule as one statement, whatever it meets, but for what has just expired.

The rules are those of `tarry.life.schedule`. Columns are set from left to right, and each sees
what was set before it: `said` comes first, and tells the others what is to be done.
"""

from collections.abc import Sequence
from functools import lru_cache

from tarry.due import In
from tarry.request import OnConflict, Request
from tarry.stores.joining import Statement
from tarry.stores.mysql.plan import LAST, marks
from tarry.stores.mysql.rows import SPAN

CREATED, REPLACED, KEPT, CONFLICT, LATER = 0, 1, 2, 3, 9
"""What `said` says; LATER: nothing was done, the ref must be looked at."""

Group = tuple[OnConflict, int | None, bool]
"""What is one statement: the mode, its longest wait, whether the occurrence is the due itself."""

_FAR = 10**14
"""A delay that is shorter ends before the year 9999, whenever it begins."""

_SAID = {
    OnConflict.REPLACE: REPLACED,
    OnConflict.EARLIEST: REPLACED,
    OnConflict.LATEST: REPLACED,
    OnConflict.KEEP: KEPT,
    OnConflict.FAIL: CONFLICT,
}
_COLUMNS = (
    "lane, `key`, due, at, created, nominal, declared, keep_ms, rule, reason, headers, payload"
)
_ANSWER = (
    "CONCAT_WS(',', said, leased, IFNULL(IF(leased, b_due, due), 0), "
    f"IFNULL(IF(leased, b_revision, IF(revision = 0, id * {SPAN}, revision)), 0))"
)


def group_of(request: Request) -> Group:
    """Return which statement a request belongs in."""
    wait = request.max_wait_ms if request.on_conflict is OnConflict.LATEST else None
    return request.on_conflict, wait, bool(request.rule) and not request.nominal


def upsert(group: Group, items: Sequence[tuple[int, Request]], now: str) -> Statement:
    """Return the statement that places *items*, (lane, request) pairs of one group.

    *now* is the store's time as SQL.
    """
    rows: list[str] = []
    values: list[int | bytes] = []
    own_nominal = group[2]
    for lane, request in items:
        due, at = _due(request, now)
        nominal = "due" if own_nominal else str(request.nominal)
        rows.append(
            f"(%s, %s, {due}, due, {now}, {nominal}, {request.declared:d}, {request.keep_ms}, "
            "%s, '', %s, %s)"
        )
        ref = request.ref.key.encode()
        values += (lane, ref, at, request.rule.encode(), request.headers, request.payload)
    head = f"INSERT INTO tarry_task ({_COLUMNS}) VALUES {', '.join(rows)} "
    return Statement(head + _on_duplicate(group, now), values, rows=False)


def answering(statement: Statement) -> Statement:
    """Return an upsert that answers with the rows it wrote; MariaDB alone can."""
    return Statement(f"{statement.sql} RETURNING {_ANSWER}", statement.values)


def answers(lane: int, keys: Sequence[bytes]) -> Statement:
    """Return the statement that reads what an upsert did to refs of one lane."""
    return Statement(
        f"SELECT {_ANSWER}, `key` FROM tarry_task FORCE INDEX (ref) "
        f"WHERE lane = %s AND `key` IN ({marks(len(keys))})",
        (lane, *keys),
    )


def read(answer: str) -> tuple[int, bool, int, int]:
    """Return what an answer says: the status, whether an attempt runs, due and revision."""
    said, leased, due, revision = answer.split(",")
    return int(said), leased == "1", int(due), int(revision)


def _due(request: Request, now: str) -> tuple[str, int]:
    due = request.due
    if isinstance(due, In):
        if due.delay_ms < _FAR:
            return f"{now} + %s", max(due.delay_ms, 0)
        return f"LEAST({now} + %s, {LAST})", min(due.delay_ms, LAST)
    return f"GREATEST({now}, %s)", min(due.instant, LAST)


@lru_cache(maxsize=256)
def _on_duplicate(group: Group, now: str) -> str:
    mode, wait, own_nominal = group
    main, behind = "said = 1 AND leased = 0", "leased = 1 AND said < 2"
    # A schedule without a rule of its own goes on with the series that was there.
    kept = "(VALUES(rule) = '' AND rule <> '' AND (cancelled = 0 OR declared = 1))"
    kept_behind = (
        "(VALUES(rule) = '' AND IF(said = 1, b_rule <> '', "
        "rule <> '' AND (cancelled = 0 OR declared = 1)))"
    )
    revision = f"IF(base = 0, id, base) * {SPAN} + drawn + 1"
    chosen, chosen_behind = _chosen(mode, wait, ""), _chosen(mode, wait, "b_")
    merges = mode in {OnConflict.EARLIEST, OnConflict.LATEST}
    said = (
        f"CASE WHEN (leased = 1 AND at <= {now}) OR drawn >= {SPAN - 1} THEN {LATER} "
        f"WHEN leased = 0 OR b_due IS NOT NULL THEN {_SAID[mode]} ELSE {CREATED} END"
    )
    steps = [f"said = {said}"]

    def put(column: str, when: str, value: str) -> None:
        steps.append(f"{column} = IF({when}, {value}, {column})")

    # The slot behind an attempt comes first: setting a blob to itself spoils its VALUES().
    if not own_nominal:
        series = "IF(said = 1, b_nominal, nominal)"
        put("b_nominal", behind, f"IF({kept_behind}, {series}, VALUES(nominal))")
    series = "IF(said = 1, b_declared, declared)"
    put("b_declared", behind, f"IF({kept_behind}, {series}, VALUES(declared))")
    put("b_rule", behind, f"IF({kept_behind}, IF(said = 1, b_rule, rule), VALUES(rule))")
    put("b_due", behind, f"IF(said = 1, {chosen_behind}, VALUES(due))")
    if own_nominal:
        put("b_nominal", behind, "b_due")
    stays = "IF(said = 1, b_created, VALUES(created))"
    put("b_created", behind, stays if merges else "VALUES(created)")
    for column in ("keep_ms", "headers", "payload"):
        put(f"b_{column}", behind, f"VALUES({column})")
    put("b_revision", behind, revision)
    if not own_nominal:
        put("nominal", main, f"IF({kept}, nominal, VALUES(nominal))")
    put("declared", main, f"IF({kept}, declared, VALUES(declared))")
    put("rule", main, f"IF({kept}, rule, VALUES(rule))")
    put("due", main, chosen)
    if own_nominal:
        put("nominal", main, "due")
    if not merges:
        put("created", main, "VALUES(created)")
    for column in ("attempt", "snoozes", "lost", "cancelled"):
        put(column, main, "0")
    put("reason", main, "''")
    for column in ("keep_ms", "headers", "payload"):
        put(column, main, f"VALUES({column})")
    put("revision", main, revision)
    put("at", main, "due")
    put("drawn", "said < 2", "drawn + 1")
    return "ON DUPLICATE KEY UPDATE " + ", ".join(steps)


def _chosen(mode: OnConflict, wait: int | None, slot: str) -> str:
    """Return the due that replaces the one in *slot*."""
    if mode is OnConflict.EARLIEST:
        return f"LEAST({slot}due, VALUES(due))"
    if mode is OnConflict.LATEST:
        new = "VALUES(due)" if wait is None else f"LEAST(VALUES(due), {slot}created + {wait})"
        return f"GREATEST({slot}due, {new})"
    return "VALUES(due)"
