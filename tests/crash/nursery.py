"""A warm parent: forks workers and producers on demand, kills and reaps them.

Reads one JSON command per line and answers each with one line. It opens no store itself.
"""

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from tarry import Backoff, Context, Tarry
from tarry.clock import SYSTEM, nap
from tarry.due import In
from tarry.events import Event, LeaseLost
from tarry.request import Cancellation, Move, Request
from tarry.stores.connect import connect
from tarry.task import TaskRef

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.crash.ledger import Ledger

WORK = ("async.work", "plain.work")


def make_app(url: str, ledger: Ledger, run_ms: float) -> Tarry:
    """Return an app whose handlers write the ledger."""
    app = Tarry(url, namespace="crash")

    def note(what: str, ctx: Context) -> None:
        ledger.write(
            what,
            str(ctx.ref),
            revision=ctx.revision,
            due=ctx.due,
            now=SYSTEM.now(),
            token=ctx.token,
            attempt=ctx.attempt,
            lost=ctx.lost,
        )

    @app.task("async.work", retry=Backoff.fixed("10ms", times=0))
    async def async_work(ctx: Context) -> None:
        note("start", ctx)
        if run_ms:
            await asyncio.sleep(run_ms / 1_000)
        note("done", ctx)

    @app.task("plain.work", retry=Backoff.fixed("10ms", times=0))
    def plain_work(ctx: Context) -> None:
        note("start", ctx)
        if run_ms:
            nap(run_ms / 1_000)
        note("done", ctx)

    @app.task("async.poison", retry=Backoff.fixed("10ms", times=0))
    async def async_poison(ctx: Context) -> None:
        note("start", ctx)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.task("plain.poison", retry=Backoff.fixed("10ms", times=0))
    def plain_poison(ctx: Context) -> None:
        note("start", ctx)
        os.kill(os.getpid(), signal.SIGKILL)

    def lost(event: Event) -> None:
        if isinstance(event, LeaseLost):
            ledger.write("lost", str(event.ref), token=event.token, now=SYSTEM.now())

    app.listen(lost)
    return app


def work(url: str, ledger: Ledger, *, run_ms: float = 0, **settings: Any) -> None:
    """Be a worker."""
    app = make_app(url, ledger, run_ms)
    try:
        app.run_worker(**settings)
    finally:
        app.close()


def produce(url: str, ledger: Ledger, *, seed: int, pause_ms: float = 2) -> None:
    """Be a producer: schedule, replace, move and cancel keys of one's own until killed."""
    dice = random.Random(seed)
    store = connect(url, namespace="crash")
    number = 0
    while True:
        number += 1
        ref = TaskRef(dice.choice(WORK), f"{os.getpid()}-{number}")
        key = str(ref)
        for _ in range(dice.choice((1, 1, 2, 3))):
            due = In(dice.choice((0, 5, 30, 120, 300)))
            ledger.write("ask", key)
            if dice.random() < 0.3:
                [moved] = store.reschedule([Move(ref, due)])
                if moved:
                    ledger.write(
                        "acked", key, revision=moved.revision, due=moved.due, status="moved"
                    )
            else:
                [answer] = store.schedule([Request(ref, due)])
                ledger.write(
                    "acked",
                    key,
                    revision=answer.revision,
                    due=answer.due,
                    status=answer.status.value,
                )
            nap(dice.random() * pause_ms / 1_000)
        if dice.random() < 0.4:
            nap(dice.choice((0, 0.01, 0.05)))
            ledger.write("asked_cancel", key)
            [result] = store.cancel([Cancellation(ref)])
            ledger.write("cancelled", key, status=result.value)


ROLES = {"work": work, "produce": produce}


def fork(role: str, url: str, ledger: Path, options: dict[str, Any]) -> int:
    """Start a child in *role*; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        devnull = os.open(os.devnull, os.O_RDWR)
        os.dup2(devnull, 0)
        os.dup2(devnull, 1)
        ROLES[role](url, Ledger(ledger), **options)
        code = 0
    except BaseException:  # noqa: BLE001 - shown, then the child ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    url, ledger = sys.argv[1], Path(sys.argv[2])
    for line in sys.stdin:
        command = json.loads(line)
        answer: int
        if "role" in command:
            answer = fork(command["role"], url, ledger, command["options"])
        else:
            pid, number = command["pid"], command["signal"]
            if number:
                os.kill(pid, number)
            _, status = os.waitpid(pid, 0)
            answer = os.waitstatus_to_exitcode(status)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
