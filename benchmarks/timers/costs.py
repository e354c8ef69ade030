"""Costs: arm, disarm, expire and bytes per timer, over the number of timers, next to the peers.

Each side runs in a process of its own; times are the best of the rounds, in nanoseconds per timer.
The peers on the JVM need `java` with its compiler, and Netty's netty-common.jar (Debian: the
packages openjdk-17-jdk-headless and libnetty-java). What is missing is said and left out.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aloft  # noqa: F401 - for the next import
import measure
import sides
from plot import write_plot

HERE = Path(__file__).resolve().parent
JVM = ("delayqueue", "stpe", "netty")
JAR = Path("/usr/share/java/netty-common.jar")
GOALS = {
    "tarry_clock_arm_10000": "≤ 85 ns",
    "tarry_clock_arm_1000000": "≤ 130 ns",
    "tarry_many_arm_1000000": "≤ 70 ns",
    "tarry_many_disarm_1000000": "≤ 50 ns",
    "tarry_disarm_1000000": "≤ 200 ns",
    "tarry_expire_1000000": "≤ 100 ns",
    "tarry_bytes_1000000": "≤ 80 bytes",
}


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 5_000_000]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=[*sides.SIDES, *JVM])
    parser.add_argument("--svg", type=Path, help="write the plot of cost over the number of timers")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.rounds = [1_000], 1
        options.sides = ["tarry", "tarry_clock", "tarry_many", "tarry_twin", "asyncio"]
    report = measure.Report(options)
    found: dict[tuple[str, int], dict[str, float]] = {}
    for count in options.sizes:
        for name in options.sides:
            costs = run(name, count, options, report)
            found[name, count] = costs
            for what, cost in costs.items():
                key = f"{name}_{what}_{count}"
                report.add(key, cost, "bytes" if what == "bytes" else "ns", GOALS.get(key, ""))
    if options.svg:
        options.svg.write_text(write_plot(found), encoding="utf-8")
    report.show()


def run(
    name: str, count: int, options: argparse.Namespace, report: measure.Report
) -> dict[str, float]:
    """Measure one side in a process of its own; nothing, and a word on stderr, if it cannot be."""
    if name in JVM:
        if shutil.which("javac") is None or not JAR.exists():
            report.note(f"{name}: left out, no java compiler or no {JAR.name}")
            return {}
        heap = ["-Xms4g", "-Xmx8g"]
        command: list[Any] = ["java", *heap, "-cp", JAR, HERE / "Peers.java"]
    else:
        if not sides.present(name):
            report.note(f"{name}: left out, not installed")
            return {}
        if count > sides.MOST.get(name, count):
            return {}
        command = [sys.executable, HERE / "sides.py"]
    report.note(f"{name}, {count:,}")
    done = subprocess.run(
        [*command, name, str(count), str(options.rounds)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr}")
    costs: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return costs


if __name__ == "__main__":
    main()
