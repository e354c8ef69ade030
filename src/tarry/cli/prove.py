"""`tarry prove`: try to break tarry's promises, for as long as you like."""

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tarry.cli.exits import FAILED, INTERRUPTED, OK, USAGE, fail, talk
from tarry.cli.options import json_option
from tarry.cli.output import put
from tarry.due import duration_ms, format_duration
from tarry.errors import WhenError

if TYPE_CHECKING:
    from tarry.testing.proof.orchestra import Orchestra
    from tarry.testing.proof.perform import Watch
    from tarry.testing.proof.report import Report
    from tarry.testing.simulation import History

_SEEDS = 1_000_000_000
_LINE_NS = 10_000_000_000
_TICK_NS = 100_000_000
_OF_A_RUN = ("budget", "only", "processes", "first", "report")
"""The options that say nothing about a single history."""


def _budget(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    """Return the budget in milliseconds."""
    try:
        budget = 0 if text == "0" else duration_ms(text)
    except WhenError as error:
        raise click.BadParameter(str(error)) from error
    if not budget:
        raise click.BadParameter("it must be longer than nothing: 30s, 5m, 8h")
    return budget


def _page(_ctx: click.Context, _param: click.Parameter, file: Path | None) -> Path | None:
    """Return the file of the report: a night is long, and its end too late to look for a place."""
    if file is None or file.exists():
        return file
    folder = file.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise click.BadParameter(f"{folder} is no folder that can be written to")
    return file


@click.command()
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    callback=_budget,
    help="How long to go on: 30s, 5m, 8h.",
)
@click.option("--only", metavar="NAMES", help="Only these campaigns, with commas between them.")
@click.option("--store", metavar="URL", help="Try this store; see above.")
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="one for each core",
    metavar="N",
    help="How many processes do the work.",
)
@click.option(
    "--first",
    type=click.IntRange(0),
    metavar="SEED",
    help="Begin with this seed; without it with any, so that every run tries something new.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    callback=_page,
    help="Write the report to FILE.",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Replay one history of the simulation."
)
@click.option(
    "--control",
    metavar="NAME",
    help="Replay the shortest history known of this negative control, or with --seed that one.",
)
@click.option("--shortest", is_flag=True, help="With --seed: cut short to what breaks it.")
@json_option
@click.pass_context
def prove(
    ctx: click.Context,
    budget: int,
    only: str | None,
    store: str | None,
    processes: int,
    first: int | None,
    report: Path | None,
    seed: int | None,
    control: str | None,
    shortest: bool,
    as_json: bool,
) -> None:
    """Try to break tarry's promises until the budget is spent, and report what was tried.

    No task may be lost, start early, start after its cancel was acknowledged, or start or be
    settled twice though nothing broke. The report, in Markdown, goes to stdout. The exit code is 0
    only if nothing was violated, every negative control was caught, and neither the controls nor
    the simulation had to be skipped; else 1.

    \b
    The campaigns, for --only:
      controls      algorithms known to be wrong: the simulation must catch every one
      simulation    the real code in virtual time, with crashes, stalls, wrong clocks and a
                    bad network; a seed is a history, which can be replayed to the byte
      model         a store beside the memory store: both must answer the same
      kills         real producers and workers, killed at random instants
      stalls        real workers, stopped for longer than their leases
      server-kills  a Redis of its own, killed and started again under producers and workers;
                    with --store mysql://… a MariaDB of its own
      power-cuts    a disk that forgets what was not synced
      system-calls  a process that is killed, or whose disk fails, at each write and sync

    Each does at least one slice, and the controls all of them, however small the budget. What they
    stand on: pip install 'tarry[prove]', strace for system-calls, tarry[redis] and redis-server
    (or tarry[mysql] and mariadb-server) for server-kills. A campaign that cannot be run, or has
    nothing to do with a store, is skipped, and the report says why. Ctrl-C and SIGTERM end it at
    once, with the report so far.

    Without --store the simulation runs on tarry's own model of a store and the rest on temporary
    files and servers. With it they all run on that store: beside a file, in files of their own; on
    a server, in namespaces of their own; that server is never stopped. What was made is removed.

    \b
    tarry prove                                    a minute of everything
    tarry prove --budget 8h --report proof.md      a night of it
    tarry prove --only simulation,controls
    tarry prove --store sqlite:////mnt/disk/any.db
    tarry prove --store redis://localhost --only model,kills,stalls
    tarry prove --seed 4711                        one history, line by line
    tarry prove --seed 4711 --shortest             … and what of it matters
    tarry prove --control no-start-gate            what a wrong algorithm does
    """
    with _interruptible():
        if seed is not None or control:
            _refuse_what_a_replay_has_not(ctx)
        if seed is not None:
            raise click.exceptions.Exit(_replay(seed, store, control, shortest, as_json))
        if shortest:
            fail("--shortest is about one history: add --seed N", USAGE)
        if control:
            raise click.exceptions.Exit(_replay_known(control, store, as_json))
        done = _perform(budget, only, store, processes, first)
        _show(done, report, as_json)
    if done.interrupted:
        talk("interrupted")
        raise click.exceptions.Exit(INTERRUPTED)
    for name, why in done.gaps.items():
        talk(f"without {name} nothing is proven: {why}")
    raise click.exceptions.Exit(OK if done.is_clean() else FAILED)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end it as Ctrl-C does: with a report, and nothing left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_what_a_replay_has_not(ctx: click.Context) -> None:
    for name in _OF_A_RUN:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            fail(f"a replay has no --{name}: leave it out", USAGE)


def _perform(
    budget: int, only: str | None, store: str | None, processes: int, first: int | None
) -> "Report":
    from tarry.testing.proof.campaigns import CAMPAIGNS  # noqa: PLC0415 - the test kit, if asked
    from tarry.testing.proof.perform import Wish, choose, missing, perform  # noqa: PLC0415 - same

    names = [] if only is None else [name.strip() for name in only.split(",") if name.strip()]
    wanted = list(CAMPAIGNS) if only is None else choose(CAMPAIGNS, names)
    skipped = missing(wanted, store)
    if only is not None and skipped:
        fail("; ".join(f"{name}: {why}" for name, why in skipped.items()), USAGE)
    if first is None:
        first = random.SystemRandom().randrange(_SEEDS)
    wish = Wish(budget, first, processes, store)
    talk(f"{format_duration(budget)} on {processes} processes, seeds from {first} on")
    with _watched(budget) as watch:
        return perform([one for one in wanted if one.name not in skipped], wish, skipped, watch)


@contextmanager
def _watched(budget_ms: int) -> Iterator["Watch"]:
    """Show a bar if a person watches, else a line every ten seconds; and what is found at once."""
    findings = _Findings()
    if not sys.stderr.isatty():
        lines = _Lines()

        def say(orchestra: "Orchestra") -> None:
            findings.see(orchestra)
            lines.see(orchestra)

        yield say
        return
    length = budget_ms * 1_000_000 // _TICK_NS + 1
    with click.progressbar(
        length=length, label="proving", file=sys.stderr, item_show_func=lambda text: text
    ) as bar:

        def show(orchestra: "Orchestra") -> None:
            findings.see(orchestra)
            # The last tick is kept back: a full bar is not drawn any more.
            ticks = min(length - 1, orchestra.elapsed() // _TICK_NS)
            bar.update(ticks - bar.pos, _in_brief(orchestra))

        yield show


def _in_brief(orchestra: "Orchestra") -> str:
    tried = sum(part.done.tried for part in orchestra.parts)
    broken = sum(len(part.done.broken) for part in orchestra.parts)
    return f"{tried:,} tried, {broken:,} violations"


class _Findings:
    """Tells of each violation once, as soon as it is known."""

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()

    def see(self, orchestra: "Orchestra") -> None:
        """Say what is new."""
        for part in orchestra.parts:
            name = part.campaign.name
            for found in part.done.broken[self._told[name] :]:
                talk(f"{name}: {found.rule}: {found.said}  {found.replay}".rstrip())
            self._told[name] = len(part.done.broken)


class _Lines:
    """Tells now and then how far it is."""

    def __init__(self) -> None:
        self._next = _LINE_NS

    def see(self, orchestra: "Orchestra") -> None:
        """Say something, if it is time to."""
        elapsed = orchestra.elapsed()
        if elapsed >= self._next:
            self._next += _LINE_NS
            talk(f"{elapsed // 1_000_000_000} s: {_tried(orchestra)}")


def _tried(orchestra: "Orchestra") -> str:
    from tarry.testing.proof.report import counted  # noqa: PLC0415 - the test kit, if asked

    broken = sum(len(part.done.broken) for part in orchestra.parts)
    return ", ".join([*map(counted, orchestra.parts), f"{broken:,} violations"])


def _show(done: "Report", file: Path | None, as_json: bool) -> None:
    """Print the report, or write it down; what cannot be written is printed."""
    if done.violations:
        talk(f"what broke left its traces in {done.folder}")
    if done.note:
        talk(done.note)
    trouble = None if file is None else _write(file, done.markdown())
    if as_json:
        put(done.data())
    elif file is None or trouble:
        click.echo(done.markdown())
    else:
        click.echo(done.verdict())
    if trouble:
        fail(f"the report was not written: {trouble}", FAILED)


def _write(file: Path, text: str) -> OSError | None:
    try:
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        return error
    return None


def _replay(
    seed: int, store: str | None, control: str | None, shortest: bool, as_json: bool
) -> int:
    """Run one history, and tell it."""
    _need_the_simulation(store, control)
    from tarry.testing.proof.replay import replay  # noqa: PLC0415 - the test kit, if asked

    return _tell(replay(seed, store=store, control=control, cut=shortest), as_json)


def _replay_known(control: str, store: str | None, as_json: bool) -> int:
    """Run the shortest history of a control, and tell it."""
    _need_the_simulation(store, control)
    from tarry.testing.proof.replay import known  # noqa: PLC0415 - the test kit, if asked

    return _tell(known(control), as_json)


def _need_the_simulation(store: str | None, control: str | None) -> None:
    from tarry.testing.proof.campaigns import lacking  # noqa: PLC0415 - the test kit, if asked

    if why := lacking("greenlet", "'tarry[prove]'"):
        fail(why, USAGE)
    if control and store:
        fail("a control is a store of its own: leave --store out", USAGE)


def _tell(history: "History", as_json: bool) -> int:
    from tarry.testing.proof.replay import tell, told  # noqa: PLC0415 - the test kit, if asked

    if as_json:
        put(told(history))
    else:
        click.echo("\n".join(tell(history)))
    return FAILED if history.violations else OK
