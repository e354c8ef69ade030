"""Every benchmark runs, ends by itself, leaves nothing behind and tells the figures it is for.

What the figures are is not tested: a test machine is never quiet. peers.py installs other
packages, so that it is run by hand; redis/rivals.py and postgres/pg_rivals.py are run without
their peers.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.network.servers import needs_postgres

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LIMIT_SECONDS = 50

SHARED = {"bare", "child", "ledger", "measure", "side"}
BY_HAND = {"peers", "side_apscheduler", "side_beanstalkd", "side_huey", "side_tarry"}

FIGURES = {
    "herd": {
        *("executed", "cpu_per_task_us", "lost", "twice", "early", "rss_before_mb"),
        *("rss_growth_mb", "trickle", "trickle_lost", "trickle_p50_ms", "trickle_p99_ms"),
        *("trickle_max_ms", "shared_executed", "shared_lost", "shared_twice", "shared_least"),
    },
    "burst": {"async", "sync", "async_first_ms", "sync_first_ms"},
    "idle": {
        "claims",
        "claims_early",
        "claims_p99",
        "help",
        "idle_cpu",
        "import",
        "rss_difference",
        "virtual_7d",
        "virtual_many_advanced",
    },
    "lateness": {
        f"{name}_at_{rate}"
        for name in ("p50", "p99", "max", "min", "early")
        for rate in ("250", "2000")
    },
    "recovery": {"missing", "twice", "twice_not_in_flight", "kill_to_last_first_run"},
    "schedule": {
        "schedule_normal",
        "schedule_normal_of_own",
        "schedule_normal_of_bare",
        "schedule_full",
        "schedule_full_of_bare",
        "reschedule_full_of_bare",
        "cancel_full_of_bare",
        "aschedule_100_callers",
        "areschedule_100_callers",
        "acancel_100_callers",
        "schedule_many_ordered",
        "schedule_many_random",
        "growth_ordered",
        "growth_random",
    },
    "writers": {
        f"{sync}_{name}" for name in ("total", "p50", "p99", "max") for sync in ("normal", "full")
    },
}

ON_REDIS = BENCHMARKS / "redis"
REDIS_SHARED = {"above", "environments", "in_flight", "raw", "redis_server", "used"}
REDIS_SIDES = {
    f"redis_{name}"
    for name in ("apscheduler", "arq", "celery", "dramatiq", "huey", "rq", "saq", "tarry", "taskiq")
}
REDIS_FIGURES = {
    "blocking": {
        *("schedule", "schedule_careful", "schedule_1_mib", "reschedule", "cancel", "claim_1000"),
        *("claim_250", "claim_reclaims", "renew", "settle", "settle_careful", "revive"),
    },
    "due_burst": {"async", "sync", "async_few_last", "sync_few_last", "async_server_us"},
    "growth": {
        "memory_of_raw",
        *(
            f"{verb}_growth_of_raw"
            for verb in ("schedule", "reschedule", "cancel", "claim", "settle")
        ),
    },
    "loss": {"everysec_lost", "always_lost", "everysec_acknowledged"},
    "punctual": {
        f"{name}_at_{rate}"
        for name in ("p50", "p99", "max", "min", "early")
        for rate in ("250", "2000", "250_ahead", "250_behind")
    },
    "stampede": FIGURES["herd"],
    "rest": {"worker", "redis", "both", "redis_alone"},
    "rivals": {"tarry_schedule", "tarry_burst", "tarry_late_p50", "tarry_late_p99"},
    "verbs": {
        *("schedule", "schedule_of_script", "reschedule", "cancel", "schedule_many"),
        *("aschedule_50_callers", "areschedule_50_callers", "acancel_50_callers"),
        *("schedule_many_of_raw", "claim_of_raw", "settle_of_raw"),
    },
}

OF_TIMERS = BENCHMARKS / "timers"
TIMERS_SHARED = {"aloft", "plot", "sides"}
TIMERS_FIGURES = {
    "costs": {
        f"{side}_{what}_1000"
        for side in ("tarry", "tarry_many", "tarry_twin", "asyncio")
        for what in ("arm", "disarm", "expire", "bytes")
    },
    "firing": {
        *(f"{side}_{name}" for side in ("thread", "async") for name in ("p50", "p99", "early")),
        *("pattern", "pattern_twin", "idle_cpu", "pause_tarry", "pause_asyncio"),
    },
}


ON_MYSQL = BENCHMARKS / "mysql"
MYSQL_SHARED = {"above_mysql", "mysql_serving"}
MYSQL_FIGURES = {
    "mysql_verbs": {
        *("schedule", "reschedule", "cancel", "joined_schedule", "schedule_many"),
        *(
            f"{verb}_{kinds}_kinds"
            for verb in ("claim", "settle", "claim_settle")
            for kinds in (1, 20)
        ),
    },
    "mysql_punctual": {
        f"{name}_{what}" for name in ("near", "ahead") for what in ("p50", "p99", "max", "early")
    },
}


ON_POSTGRES = BENCHMARKS / "postgres"
POSTGRES_SHARED = {"above_postgres", "pg_server"}
POSTGRES_SIDES = {f"pg_{name}" for name in ("pgqueuer", "procrastinate", "tarry")}
POSTGRES_FIGURES = {
    "pg_due_burst": {"async"},
    "pg_growth": {"schedule_4000_growth", "size_after_cycles"},
    "pg_punctual": {"p50", "p99", "early"},
    "pg_rivals": {
        f"tarry_{figure}"
        for figure in ("schedule", "batches", "burst", "burst_not_run", "late_p50", "late_p99")
    },
    "pg_verbs": {"schedule", "schedule_many", "claim_and_settle"},
}


def test_every_benchmark_on_postgres_is_known() -> None:
    found = {path.stem for path in ON_POSTGRES.glob("*.py")}

    assert found == POSTGRES_FIGURES.keys() | POSTGRES_SHARED | POSTGRES_SIDES


@pytest.mark.slow
@pytest.mark.medium("postgres")
@pytest.mark.parametrize("name", sorted(POSTGRES_FIGURES))
def test_a_benchmark_on_postgres_tells_its_figures(name: str, tmp_path: Path) -> None:
    needs_postgres()

    check(ON_POSTGRES / f"{name}.py", POSTGRES_FIGURES[name], tmp_path)


def test_every_benchmark_is_known() -> None:
    found = {path.stem for path in BENCHMARKS.glob("*.py")}

    assert found == FIGURES.keys() | SHARED | BY_HAND


def test_every_benchmark_on_redis_is_known() -> None:
    found = {path.stem for path in ON_REDIS.glob("*.py")}

    assert found == REDIS_FIGURES.keys() | REDIS_SHARED | REDIS_SIDES


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_benchmark_tells_its_figures_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    check(BENCHMARKS / f"{name}.py", FIGURES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.medium("redis")
@pytest.mark.parametrize("name", sorted(REDIS_FIGURES))
def test_a_benchmark_on_redis_tells_its_figures_and_leaves_nothing_behind(
    name: str, tmp_path: Path
) -> None:
    if shutil.which("redis-server") is None:
        lacking("redis-server is not installed")

    check(ON_REDIS / f"{name}.py", REDIS_FIGURES[name], tmp_path)


def test_every_benchmark_on_mysql_is_known() -> None:
    assert {path.stem for path in ON_MYSQL.glob("*.py")} == MYSQL_FIGURES.keys() | MYSQL_SHARED


@pytest.mark.slow
@pytest.mark.medium("mysql")
@pytest.mark.parametrize("name", sorted(MYSQL_FIGURES))
def test_a_benchmark_on_mysql_tells_its_figures_and_leaves_nothing_behind(
    name: str, tmp_path: Path
) -> None:
    if shutil.which("mariadbd") is None:
        lacking("mariadbd is not installed")

    check(ON_MYSQL / f"{name}.py", MYSQL_FIGURES[name], tmp_path)


def test_every_benchmark_of_timers_is_known() -> None:
    found = {path.stem for path in OF_TIMERS.glob("*.py")}

    assert found == TIMERS_FIGURES.keys() | TIMERS_SHARED


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TIMERS_FIGURES))
def test_a_benchmark_of_timers_tells_its_figures(name: str, tmp_path: Path) -> None:
    check(OF_TIMERS / f"{name}.py", TIMERS_FIGURES[name], tmp_path)


def lacking(what: str) -> None:
    """Skip at a desk, fail in CI: the machine lacks what a test needs."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: CI must have it")
    pytest.skip(what)


def check(program: Path, figures: set[str], folder: Path) -> None:
    """Run *program* in *folder*; it tells its *figures*, and the folder is empty afterwards."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TARRY_")}

    done = subprocess.run(
        [sys.executable, program, "--quick", "--json", "--folder", folder],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["program"] == program.stem
    assert report["quick"] is True
    assert report["results"].keys() >= figures
    assert all(isinstance(value, float) for value in report["results"].values())
    assert report["goals"].keys() <= report["results"].keys()
    assert list(folder.iterdir()) == []
