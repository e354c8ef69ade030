"""Writers: several processes schedule single tasks on one file; rate and wait of each call."""

import argparse
import sys
from pathlib import Path

import measure

GOALS = {"normal": "≤ 25 ms", "full": ""}


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measure")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 0.5
    report = measure.Report(options)
    for sync in ("normal", "full"):
        alone = _writers(sync, 1, options, report)
        report.add(f"{sync}_alone", _rates(alone)[0])
        answers = _writers(sync, options.processes, options, report)
        rates = _rates(answers)
        waits = [wait for answer in answers for wait in answer["waits"]]
        report.add(f"{sync}_total", sum(rates))
        report.add(f"{sync}_slowest_process", min(rates))
        report.add(f"{sync}_fastest_process", max(rates))
        report.add(f"{sync}_p50", measure.percentile(waits, 50), "ms")
        report.add(f"{sync}_p99", measure.percentile(waits, 99), "ms", GOALS[sync])
        report.add(f"{sync}_max", max(waits), "ms")
    report.show()


Answer = dict[str, "list[float]"]


def _rates(answers: list[Answer]) -> list[float]:
    return [len(answer["waits"]) / answer["seconds"][0] for answer in answers]


def _writers(
    sync: str, processes: int, options: argparse.Namespace, report: measure.Report
) -> list[Answer]:
    """Return what each of the writers answered; they begin together."""
    report.note(f"{processes} processes, sync={sync}")
    with measure.scratch(options) as folder:
        writers = [_begin(folder / "tarry.db", f"p{n}", sync, options) for n in range(processes)]
        for writer in writers:
            writer.await_ready()
        for writer in writers:
            writer.go()
        return [writer.answer(options.seconds + 30) for writer in writers]


def _begin(path: Path, name: str, sync: str, options: argparse.Namespace) -> measure.Process:
    child = [sys.executable, measure.HERE / "child.py", "writer", path, name]
    return measure.Process([*child, "--sync", sync, "--seconds", options.seconds])


if __name__ == "__main__":
    main()
