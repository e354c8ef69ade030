"""The command `tarry`: finds the sub-command, loads only that, and turns errors into exit codes."""

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from tarry.cli.exits import FAILED, INTERRUPTED, code_of, complain, explain, talk
from tarry.errors import TarryError

# Written here, so that `tarry --help` need not import the commands.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "worker": ("worker", "Attempt due tasks with the handlers of an app."),
        "demo": ("demo", "Watch real tasks being scheduled, moved, cancelled and run."),
    },
    "Act": {
        "schedule": ("schedule", "Let a task run later."),
        "reschedule": ("reschedule", "Move a waiting task."),
        "cancel": ("cancel", "Cancel a task."),
        "run-now": ("run_now", "Make a waiting task due now, or revive a dead one."),
    },
    "Look": {
        "show": ("show", "Show one task."),
        "list": ("listing", "List tasks."),
        "stats": ("stats", "Count tasks by kind, and see what comes next."),
    },
    "Mend": {
        "dead": ("dead", "List, revive or purge dead letters."),
        "pause": ("pause", "Stop a kind from being attempted."),
        "resume": ("pause", "Let a paused kind be attempted again."),
    },
    "Keep": {
        "export": ("export", "Write waiting tasks and dead letters to a file."),
        "import": ("import_", "Schedule the tasks of an export, or of a table of yours."),
        "migrate": ("migrate", "Bring a store to this version's layout."),
        "doctor": ("doctor", "Look a store over, and say what is wrong with it."),
        "health": ("health", "Tell a probe whether tasks are attempted on time."),
        "bench": ("bench", "Measure a store on this machine."),
        "prove": ("prove", "Try to break tarry's promises, and report what was tried."),
    },
}
_FUNCTIONS = {"import": "import_", "list": "list_", "run-now": "run_now"}
_MODULES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Program(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of their sections."""
        del ctx
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is called *cmd_name*."""
        del ctx
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"tarry.cli.{_MODULES[cmd_name][0]}")
        command: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing them."""
        del ctx
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors of tarry, of the system and of the user become exit codes."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except TarryError as error:
            explain(error)
            ctx.exit(code_of(error))
        except BrokenPipeError:
            # The reader has seen enough: no reason to complain.
            _point_stdout_nowhere()
            ctx.exit(0)
        except OSError as error:
            complain(str(error))
            ctx.exit(FAILED)
        except (KeyboardInterrupt, EOFError, click.Abort) as error:
            talk("interrupted" if str(error) in ("", "Aborted!") else f"interrupted: {error}")
            ctx.exit(INTERRUPTED)
        return answer


def _point_stdout_nowhere() -> None:
    """Keep Python from failing once more when it flushes stdout at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from tarry.version import __version__  # noqa: PLC0415 - only when asked for

        click.echo(f"tarry {__version__}")
        ctx.exit()


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Settings: a flag, then TARRY_STORE, TARRY_NAMESPACE …, then tarry.toml.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Tasks that run later: scheduled by your own key, moved or cancelled until the last moment.

    \b
    Try it:       tarry demo
    Schedule:     tarry schedule order.cancel 30m --key 42 --payload '{"order_id": 42}'
    Change mind:  tarry reschedule order.cancel 42 2h      tarry cancel order.cancel 42
    Run tasks:    tarry worker shop.tasks:app
    """


def main() -> NoReturn:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        cli(prog_name="tarry")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    raise AssertionError  # click always exits
