"""Rivals on PostgreSQL: PgQueuer and Procrastinate next to tarry: calls, batches, burst, lateness.

The same work for each, one after the other in one run and on one server with one
`synchronous_commit`, each time in a database of its own. Each peer is installed at fixed versions
into an environment of its own under the cache folder; one that cannot be is named and left out.
`--quick` leaves the peers out unless `--peers` names them.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pg_server import serving

import measure  # isort: skip - the server's module has made it findable
from ledger import Ledger  # isort: skip
from peers import environment  # isort: skip
from tarry.testing.proof.postgres_server import PostgresServer

HERE = Path(__file__).resolve().parent
PINS: dict[str, tuple[str, ...]] = {
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", "pydantic==2.14.3"),
    "procrastinate": (
        *("procrastinate==3.10.0", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3"),
        "uvloop==0.23.0",
    ),
}
UNSETTLED = {
    "tarry": "SELECT count(*) FROM tarry.task",
    "pgqueuer": "SELECT count(*) FROM pgqueuer",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
}
FEWER = {"procrastinate": 4_000}
"""The most tasks of a burst, for those that would take minutes with more."""
MEASURES = {
    "schedule": "/s",
    "batches": "/s",
    "burst": "/s",
    "burst_settled": "/s",
    "burst_tasks": "",
    "burst_not_run": "",
    "burst_twice": "",
    "burst_first": "ms",
    "late_p50": "ms",
    "late_p99": "ms",
    "late_max": "ms",
    "late_tasks": "",
    "late_not_run": "",
    "late_early": "",
}
GOALS = {
    "batches": "≥ 50,000/s",
    "burst": "≥ 18,000/s",
    "late_p50": "≤ 2 ms",
    "late_p99": "≤ 10 ms",
}
RATIOS = ("schedule", "batches", "burst", "burst_settled")
RATIO_GOALS = {
    ("pgqueuer", "schedule"): "≥ 2",
    ("pgqueuer", "batches"): "≥ 2",
    ("pgqueuer", "burst"): "≥ 1.5",
    ("procrastinate", "burst"): "≥ 20",
}
_START_SECONDS = 5
Found = dict[str, float]
Begin = Callable[..., measure.Process]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=20.0, help="of lateness")
    parser.add_argument("--call-seconds", type=float, default=1.0, help="of calls in each turn")
    parser.add_argument("--turns", type=int, default=5, help="of calls; the median counts")
    parser.add_argument("--bursts", type=int, default=3, help="the median counts")
    parser.add_argument("--patience", type=float, default=60.0, help="to run what is due")
    parser.add_argument("--peers", help=f"some of {','.join(PINS)}")
    options = parser.parse_args()
    if options.quick:
        options.burst, options.seconds, options.turns = 200, 0.5, 1
        options.call_seconds, options.patience, options.bursts = 0.1, 10.0, 1
    report = measure.Report(options)
    sides = contestants(wanted(options, report), report)
    with serving(options) as server:
        report.note(f"synchronous_commit is {asked(server.url, 'SHOW synchronous_commit')}")
        found = calls(sides, server, options, report)
        for name in list(found):
            rate = found[name]["batches"]
            try:
                found[name] |= compare(name, sides[name], rate, server, options, report)
            except SystemExit as error:
                leave_out(name, error, report)
                del found[name]
    for name, figures in found.items():
        for key, value in figures.items():
            goal = GOALS.get(key, "") if name == "tarry" else ""
            report.add(f"{name}_{key}", value, MEASURES[key], goal)
        for key in RATIOS if name != "tarry" else ():
            if figures[key]:
                times = found["tarry"][key] / figures[key]
                goal = RATIO_GOALS.get((name, key), "")
                report.add(f"tarry_over_{name}_{key}", times, "times", goal)
    if options.json:
        report.show()
    else:
        show(found)


def show(found: Mapping[str, Found]) -> None:
    """Print the sides next to one another, with the goals of tarry and of its ratios."""
    rows = []
    for key, unit in MEASURES.items():
        row = [f"{key} {unit}".rstrip()]
        for name, figures in found.items():
            cell = measure.number(figures[key])
            goal = GOALS.get(key, "") if name == "tarry" else RATIO_GOALS.get((name, key), "")
            if name != "tarry" and key in RATIOS and figures[key]:
                cell += f"  ({found['tarry'][key] / figures[key]:.1f}x)"
            row.append(f"{cell}  [{goal}]" if goal else cell)
        rows.append(row)
    measure.table(["measure", *found], rows)
    print("(nx): tarry does n times as many per second; [goal]")


# ---- who takes part


def wanted(options: argparse.Namespace, report: measure.Report) -> list[str]:
    """Return the names of the peers that are asked for."""
    if options.peers is not None:
        return [name for name in options.peers.split(",") if name]
    if options.quick:
        report.note(f"LEFT OUT by --quick: {', '.join(PINS)}")
        return []
    return list(PINS)


def contestants(names: list[str], report: measure.Report) -> dict[str, Begin]:
    """Return how a process of each side is started; a peer that is not there is left out."""
    sides = {"tarry": _side("tarry", Path(sys.executable))}
    for name in names:
        try:
            sides[name] = _side(name, environment(f"postgres-{name}", PINS[name], report))
        except (OSError, subprocess.CalledProcessError) as error:
            report.note(f"NOT INSTALLED: {name}: {error}")
    return sides


def _side(name: str, python: Path) -> Begin:
    return lambda *words: measure.Process([python, HERE / f"pg_{name}.py", *words])


def leave_out(name: str, error: SystemExit, report: measure.Report) -> None:
    """Go on without a peer that failed; without tarry there is nothing to compare."""
    if name == "tarry":
        raise error
    report.note(f"LEFT OUT: {name}: {error}")


# ---- the works


def calls(
    sides: Mapping[str, Begin],
    server: PostgresServer,
    options: argparse.Namespace,
    report: measure.Report,
) -> dict[str, Found]:
    """Return what each side schedules per second, one by one and in batches: medians of turns."""
    turns: dict[str, list[Found]] = {name: [] for name in sides}
    for turn in range(options.turns):
        report.note(f"calls and batches, turn {turn + 1} of {options.turns}")
        for name in list(turns):
            found: Found = {}
            try:
                for work in ("calls", "batches"):
                    with prepared(server, options) as (folder, _):
                        side = sides[name](work, folder, "--seconds", options.call_seconds)
                        found |= side.answer(options.call_seconds * 4 + 60)
            except SystemExit as error:
                leave_out(name, error, report)
                del turns[name]
            else:
                turns[name].append(found)
    for name, rates in list(turns.items())[1:]:
        for key in ("schedule", "batches"):
            ratios = [a[key] / b[key] for a, b in zip(turns["tarry"], rates, strict=True)]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            report.note(f"{name}: {key}, tarry {statistics.median(ratios):.2f} times ({spread})")
    return {
        name: {key: statistics.median(rate[key] for rate in rates) for key in rates[0]}
        for name, rates in turns.items()
    }


def compare(
    name: str,
    begin: Begin,
    rate: float,
    server: PostgresServer,
    options: argparse.Namespace,
    report: measure.Report,
) -> Found:
    """Return how one side, which places batches at *rate*, runs bursts and how late it is."""
    count = min(options.burst, FEWER.get(name, options.burst))
    bursts = []
    for turn in range(options.bursts):
        report.note(f"{name}: burst of {count:,}, {turn + 1} of {options.bursts}")
        bursts.append(burst(*run(name, begin, [0] * count, rate, server, options)))
        report.note(f"{name}: {bursts[-1]['burst']:,.0f}/s")
    found = {key: statistics.median(burst[key] for burst in bursts) for key in bursts[0]}
    for key in ("burst_not_run", "burst_twice"):
        found[key] = sum(burst[key] for burst in bursts)
    report.note(f"{name}: lateness at {options.rate}/s over {options.seconds:g} s")
    span = int(options.seconds * 1_000)
    offsets = measure.spread(int(options.rate * options.seconds), 0, span)
    first, ledger, _ = run(name, begin, offsets, rate, server, options)
    starts = ledger.first()
    late = measure.lateness_ms([first + offset for offset in offsets], starts)
    return found | {
        "late_p50": measure.percentile(late, 50),
        "late_p99": measure.percentile(late, 99),
        "late_max": max(late, default=0.0),
        "late_tasks": len(offsets),
        "late_not_run": starts.count(0),
        "late_early": sum(value < 0 for value in late),
    }


def burst(first: int, ledger: Ledger, settled: int) -> Found:
    """Return how many a second were started, to the last start, and how many were settled."""
    starts = ledger.first()
    late = [start / 1e6 - first for start in starts if start]
    return {
        "burst": len(late) / (max(late) / 1_000) if late else 0.0,
        "burst_settled": len(starts) / ((settled - first) / 1_000) if settled else 0.0,
        "burst_tasks": len(starts),
        "burst_not_run": starts.count(0),
        "burst_twice": sum(runs > 1 for runs in ledger.runs()),
        "burst_first": min(late, default=0.0),
    }


def run(
    name: str,
    begin: Begin,
    offsets: list[int],
    rate: float,
    server: PostgresServer,
    options: argparse.Namespace,
) -> tuple[int, Ledger, int]:
    """Schedule a task at each offset (ms), let them run.

    Returns instant 0, what ran, and the instant when all was settled (0: not in time). Placing has
    four times as long as *rate* promises, and the start of its process. Statistics of the tables
    are taken before anything is due: without them a planner may choose what it would not on tables
    that have been there longer.
    """
    with prepared(server, options) as (folder, url):
        ledger = Ledger.create(folder / "ledger", len(offsets))
        with begin("work", folder).await_ready() as work:
            lead = 4 * len(offsets) / rate + _START_SECONDS
            first = measure.now_ms() + int(lead * 1_000)
            (folder / "dues.json").write_text(json.dumps([first + offset for offset in offsets]))
            with begin("produce", folder) as producer:
                producer.answer(lead + 60)
            asked(url, "ANALYZE")
            spare = first - measure.now_ms()
            if spare < 200:
                raise SystemExit(f"{name}: {spare} ms to spare: is the machine busy?")
            ahead = (first + max(offsets) - measure.now_ms()) / 1_000
            ran = ledger.wait(len(offsets), seconds=ahead + options.patience)
            settled = wait_settled(url, UNSETTLED[name]) if ran else 0
            # What is left over is not waited for.
            work.kill()
        return first, ledger, settled


def wait_settled(url: str, query: str) -> int:
    """Return the instant (ms) when nothing was left that *query* counts; 0: after ten seconds."""
    deadline = time.monotonic() + 10
    with psycopg.connect(url, autocommit=True) as link:
        while time.monotonic() < deadline:
            if link.execute(query.encode()).fetchall() == [(0,)]:
                return measure.now_ms()
            time.sleep(0.02)
    return 0


@contextmanager
def prepared(server: PostgresServer, options: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    """Lend a fresh folder that names a database of its own; both are gone afterwards."""
    asked(server.url, "CREATE DATABASE rival")
    try:
        with measure.scratch(options) as folder:
            url = server.url_of("rival")
            (folder / "url").write_text(url)
            yield folder, url
    finally:
        # Ends with a checkpoint: nobody pays for what another wrote.
        asked(server.url, "DROP DATABASE rival WITH (FORCE)")


def asked(url: str, statement: str) -> str:
    """Run a statement in a connection of its own; returns the first word of what it answers."""
    with psycopg.connect(url, autocommit=True) as link:
        answer = link.execute(statement.encode())
        return str(answer.fetchall()[0][0]) if answer.description else ""


if __name__ == "__main__":
    main()
