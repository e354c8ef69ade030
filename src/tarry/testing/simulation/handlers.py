"""Handlers: what the simulated app does, attempt by attempt, as the payloads and the plan say."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tarry.app import Declared as Terms
from tarry.app import Tarry
from tarry.attempt import Dead, Retry, Skip, Snooze
from tarry.backoff import Backoff
from tarry.context import Context
from tarry.handler import Registry
from tarry.testing.simulation.plan import SERIES, Declared, Plan
from tarry.testing.simulation.process import Gone, Process

if TYPE_CHECKING:
    from tarry.testing.simulation.stage import Stage

DELAYS = {"retry": 40, "snooze": 60}
"""How soon, at the earliest, an attempt is to be made again after each of these outcomes."""
_REGISTRIES: dict[tuple[object, ...], Registry] = {}
_PLAYING: list["Stage"] = []
"""The stage on which handlers run: the last one."""


def ms(delay: int) -> str:
    """Return a duration as callers say it."""
    return f"{delay}ms"


def playing(stage: "Stage") -> None:
    """Let handlers run on *stage* from now on."""
    _PLAYING[:] = [stage]


def registry(plan: Plan) -> Registry:
    """Return the handlers as a plan wants them; made once."""
    wanted = plan.retries, plan.declared, plan.timeout, plan.drop_after
    found = _REGISTRIES.get(wanted)
    if found is not None:
        return found
    app = Tarry("memory:", namespace="sim")
    terms = Terms(retry=Backoff.fixed(ms(DELAYS["retry"]), times=plan.retries))
    if plan.timeout:
        terms["timeout"] = ms(plan.timeout)
    if plan.drop_after:
        terms["drop_after"] = ms(plan.drop_after)

    @app.task("async.work", **terms)
    async def async_work(ctx: Context, script: Sequence[str], run: int, op: int = 0) -> object:
        process = _PLAYING[0].started(ctx, op)
        if run:
            await asyncio.sleep(run / 1_000)
        return _come_to(script, ctx, process)

    @app.task("plain.work", **terms)
    def plain_work(ctx: Context, script: Sequence[str], run: int, op: int = 0) -> object:
        process = _PLAYING[0].started(ctx, op)
        if run:
            process.nap(run / 1_000)
        return _come_to(script, ctx, process)

    if plan.declared is not None:
        _declare(app, terms, plan.declared)
    _REGISTRIES[wanted] = app.registry
    return app.registry


def _declare(app: Tarry, terms: Terms, declared: Declared) -> None:
    """Add the handler that recurs."""
    recurring: Terms = {**terms, "every": ms(declared.every)}

    @app.task(SERIES, **recurring)
    async def series_work(
        ctx: Context,
        script: Sequence[str] = declared.script,
        run: int = declared.run,
        op: int = 0,
    ) -> object:
        process = _PLAYING[0].started(ctx, op)
        if run:
            await asyncio.sleep(run / 1_000)
        return _come_to(script, ctx, process)


def _come_to(script: Sequence[str], ctx: Context, process: Process) -> object:
    """End an attempt as its script says."""
    match script[min(ctx.attempt + ctx.snoozes, len(script)) - 1]:
        case "fail":
            raise RuntimeError("as planned")
        case "retry":
            return Retry("60ms")
        case "snooze":
            return Snooze(ms(DELAYS["snooze"]))
        case "skip":
            return Skip("as planned")
        case "dead":
            return Dead("as planned")
        case "kill":
            _PLAYING[0].kill_from_inside(process)
            raise Gone
        case _:
            return None
