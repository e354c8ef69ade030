"""`tarry demo`: watch real tasks being scheduled, moved, cancelled and run."""

import statistics
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any

import click

from tarry.app import Tarry
from tarry.cli.demo_story import CANCELLED, ENDS, Story
from tarry.cli.exits import FAILED, OK, talk
from tarry.cli.options import json_option
from tarry.cli.output import absolute, clean, put
from tarry.cli.scratch import scratch
from tarry.clock import SYSTEM
from tarry.errors import WorkerError
from tarry.events import AttemptEnded, Event
from tarry.stores.shown import shown_url
from tarry.task import TaskRef

_COLOURS = {
    "done": "green",
    "skip": "green",
    "moved": "cyan",
    "cancelled": "magenta",
    "retry": "yellow",
    "snooze": "yellow",
    "dead": "red",
}
_ENDS = ("done", "skip", "dead")
_PATIENCE = 15.0
_LINE = "{time}  {task:<18}  {due:<12}  {late:>10}  {what}"


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(1, 600), default=8.0, show_default=True, help="Its length."
)
@click.option("--store", metavar="URL", help="On this store; without it on a temporary file.")
@json_option
def demo(seconds: float, store: str | None, as_json: bool) -> None:
    """Schedule ten tasks of a small shop and run them: on time, moved, cancelled, retried.

    Everything is real: a store, a worker, a clock. What it made is removed at the end.

    \b
    tarry demo
    tarry demo --seconds 3 --json | jq 'select(.lateness_ms > 5)'
    """
    screen = _Screen(as_json=as_json)
    with scratch(store, "demo") as app:
        screen.begin(app)
        story = Story(app, seconds)
        happened: SimpleQueue[Event] = SimpleQueue()
        app.listen(happened.put)
        with app.worker():
            story.tell(screen.say)
            _watch(happened, screen, seconds)
    raise click.exceptions.Exit(screen.end())


def _watch(happened: SimpleQueue[Event], screen: "_Screen", seconds: float) -> None:
    """Show each attempt as it ends, until all tasks have come to their end."""
    deadline = SYSTEM.elapsed() + int((seconds + _PATIENCE) * 1e9)
    while screen.ended < ENDS:
        try:
            event = happened.get(timeout=max(0.0, (deadline - SYSTEM.elapsed()) / 1e9))
        except Empty:
            message = f"only {screen.ended} of {ENDS} tasks came to their end in time"
            raise WorkerError(message) from None
        if isinstance(event, AttemptEnded):
            screen.attempt(event)


class _Screen:
    """Shows what happens line by line, and sums it up."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lateness: list[float] = []
        self._ran: set[TaskRef] = set()
        self.ended = 0

    def begin(self, app: Tarry) -> None:
        """Say what is about to be seen."""
        app.store  # noqa: B018 - opened before anything is shown
        if not self._as_json:
            talk(f"ten tasks on {shown_url(app.url)}; times are local, LATE is start minus due")
            heads = {"time": "TIME".ljust(12), "task": "TASK", "due": "DUE", "late": "LATE"}
            click.echo(_LINE.format(**heads, what="WHAT"))

    def say(self, ref: TaskRef, what: str, why: str, due: int | None) -> None:
        """Show a step of the story."""
        self._show(ref, what, why, due, None)

    def attempt(self, event: AttemptEnded) -> None:
        """Show an attempt, and count it."""
        self._lateness.append(event.lateness_ms)
        self._ran.add(event.ref)
        self.ended += event.outcome in _ENDS
        self._show(event.ref, event.outcome, event.reason, event.due, event.lateness_ms)

    def _show(self, ref: TaskRef, what: str, why: str, due: int | None, late: float | None) -> None:
        now = SYSTEM.now()
        if self._as_json:
            facts: dict[str, Any] = {"time": absolute(now), "event": what}
            facts |= {"kind": ref.kind, "key": ref.key}
            facts |= {"due": None if due is None else absolute(due)}
            facts |= {"lateness_ms": None if late is None else round(late, 3), "reason": why}
            put(facts)
            return
        text = click.style(what, fg=_COLOURS.get(what)) + (f": {clean(why)}" if why else "")
        click.echo(
            _LINE.format(
                time=_clock(now),
                task=str(ref),
                due="-" if due is None else _clock(due),
                late="" if late is None else f"{late:+.1f} ms",
                what=text,
            )
        )

    def end(self) -> int:
        """Sum up, and return the exit code: the promises were kept, or not."""
        early = sum(late < 0 for late in self._lateness)
        never = CANCELLED not in self._ran
        p50, worst = statistics.median(self._lateness), max(self._lateness)
        if self._as_json:
            facts = {"event": "summary", "tasks": self.ended, "attempts": len(self._lateness)}
            facts |= {"lateness_p50_ms": round(p50, 3), "lateness_max_ms": round(worst, 3)}
            put(facts | {"early": early, "cancelled_ran": not never})
        else:
            click.echo(
                f"\n{self.ended} tasks run in {len(self._lateness)} attempts, "
                f"{p50:.1f} ms late at the median, {worst:.1f} ms at most, {early} early; "
                f"{CANCELLED} was cancelled and {'never ran' if never else 'RAN'}."
            )
            talk("Next: tarry schedule --help, tarry worker --help")
        return OK if never and not early else FAILED


def _clock(instant: int) -> str:
    moment = datetime.fromtimestamp(instant / 1_000).astimezone()
    return moment.isoformat(timespec="milliseconds")[11:23]
