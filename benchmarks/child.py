"""The processes that the programs start: a worker whose handlers mark a ledger, and a writer."""

import argparse
import asyncio
import json
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from ledger import Ledger
from measure import KIND, app_on, place_of, url

from tarry import Tarry
from tarry.events import Event, WorkerStarted


def work(options: argparse.Namespace) -> None:
    """Run a worker until SIGTERM."""
    app = Tarry(url(options.path))
    declare(app, Ledger(options.ledger), options.handler, options.pause_ms / 1_000)
    app.listen(_say_ready)
    claims = _count_claims(app)
    app.run_worker(lease=options.lease, concurrency=options.concurrency)
    if options.claims:
        options.claims.write_bytes(claims.tobytes())
    app.close()


def declare(app: Tarry, ledger: Ledger, handler: str, pause: float) -> None:
    """Give *app* the handler that marks the ledger: "async" or "sync", with a pause or none."""
    mark = ledger.mark
    if handler == "async":

        @app.task(KIND, key="{n}")
        async def on_loop(n: int) -> None:
            mark(n)
            if pause:
                await asyncio.sleep(pause)

        return

    @app.task(KIND, key="{n}")
    def on_thread(n: int) -> None:
        mark(n)
        if pause:
            time.sleep(pause)


def _say_ready(event: Event) -> None:
    if isinstance(event, WorkerStarted):
        print("ready", flush=True)


def _count_claims(app: Tarry) -> "array[float]":
    """Note the wall clock of every claim call."""
    times = array("d")
    claim = app.store.claim

    def counted(*args: Any, **kwargs: Any) -> Any:
        times.append(time.time())
        return claim(*args, **kwargs)

    app.store.claim = counted  # type: ignore[method-assign]
    return times


def write(options: argparse.Namespace) -> None:
    """Schedule single tasks for a while; prints how long each call took, in milliseconds."""
    app = app_on(options.path, options.sync)
    waits: list[float] = []
    with app:
        app.schedule(KIND, "2h", key=f"{options.name}-first", payload={"n": 0})
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.perf_counter() + options.seconds
        before = began = time.perf_counter()
        while before < end:
            app.schedule(KIND, "2h", key=f"{options.name}-{len(waits)}", payload={"n": 0})
            after = time.perf_counter()
            waits.append((after - before) * 1_000)
            before = after
        print(json.dumps({"seconds": [before - began], "waits": waits}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    working = programs.add_parser("worker")
    working.add_argument("path", type=place_of)
    working.add_argument("ledger", type=Path)
    working.add_argument("--handler", choices=["async", "sync"], default="async")
    working.add_argument("--pause-ms", type=float, default=0.0)
    working.add_argument("--lease", default="30s")
    working.add_argument("--concurrency", type=int, default=50)
    working.add_argument("--claims", type=Path, help="write the time of each claim call there")
    working.set_defaults(run=work)
    writing = programs.add_parser("writer")
    writing.add_argument("path", type=Path)
    writing.add_argument("name")
    writing.add_argument("--sync", choices=["full", "normal"], default="full")
    writing.add_argument("--seconds", type=float, default=5.0)
    writing.set_defaults(run=write)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
