"""Exit codes, and what is said when a command fails."""

from typing import NoReturn

import click

from tarry import errors

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
TOO_LATE = 4
STORE = 5
FOUND = 6
RECYCLE = 75
"""A worker that wants to be started anew; only its supervisor sees it."""
INTERRUPTED = 130

_CODES: tuple[tuple[type[errors.TarryError], int], ...] = (
    (errors.StoreUrlError, USAGE),
    (errors.StoreError, STORE),
    (errors.ConflictError, TOO_LATE),
    (errors.WhenError, USAGE),
    (errors.RefError, USAGE),
    (errors.PayloadError, USAGE),
    (errors.HandlerError, USAGE),
    (errors.CursorError, USAGE),
    (errors.ConfigError, USAGE),
)

_NEXT: tuple[tuple[type[errors.TarryError], str], ...] = (
    (errors.UnknownOutcomeError, "look with `tarry show` or `tarry list` before you repeat it"),
    (errors.StoreUrlError, "name the store with --store URL, TARRY_STORE or tarry.toml"),
    (errors.StoreBusyError, "try again, or see who else works on the store"),
    (errors.StoreFullError, "make room, then try again"),
    (errors.StoreUnavailableError, "check --store URL, TARRY_STORE or tarry.toml, and the medium"),
    (errors.ConflictError, "look at it with `tarry show`, then decide"),
)
_SAYS_SO = ("nothing was", "unchanged", "may or may not", "no store", "not scheduled")


def code_of(error: errors.TarryError) -> int:
    """Return the exit code for *error*."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def explain(error: errors.TarryError) -> None:
    """Say on stderr what happened, what was not changed, and what to do next."""
    text = str(error)
    complain(text)
    hints = []
    if code_of(error) == USAGE and not any(words in text for words in _SAYS_SO):
        hints.append("nothing was changed")
    hints += [hint for kind, hint in _NEXT if isinstance(error, kind)][:1]
    if hints:
        talk(f"  {'; '.join(hints)}")


def complain(text: str) -> None:
    """Say on stderr what went wrong."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True)


def talk(text: str) -> None:
    """Say something to the person at the terminal."""
    click.echo(text, err=True)


def fail(text: str, code: int) -> NoReturn:
    """End the command: say what went wrong and exit with *code*."""
    complain(text)
    raise click.exceptions.Exit(code)
