"""Every benchmark runs, ends by itself, leaves nothing behind and tells the figures it is for.

What the figures are is not tested: a test machine is never quiet. peers.py installs other
packages, so that it is run by hand.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_benchmark_is_known() -> None:
    found = {path.stem for path in BENCHMARKS.glob("*.py")}

    assert found == FIGURES.keys() | SHARED | BY_HAND


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_benchmark_tells_its_figures_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TARRY_")}

    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--json", "--folder", tmp_path],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["program"] == name
    assert report["quick"] is True
    assert report["results"].keys() >= FIGURES[name]
    assert all(isinstance(value, float) for value in report["results"].values())
    assert report["goals"].keys() <= report["results"].keys()
    assert list(tmp_path.iterdir()) == []
