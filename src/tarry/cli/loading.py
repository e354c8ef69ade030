"""MODULE:APP: from what the command line says to the user's app."""

import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

from tarry.app import Tarry
from tarry.cli.exits import FAILED, USAGE, fail, talk

_EXAMPLE = "write MODULE:APP, for example shop.tasks:app"


def load_app(spec: str) -> Tarry:
    """Return the app that *spec* names, with the working folder in front of the import path."""
    name, colon, path = spec.partition(":")
    if not (name and colon and path):
        fail(f"{spec!r} names no app; {_EXAMPLE}", USAGE)
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        fail(f"{name!r} is a file; write the module: {dotted}:{path}", USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(name)
    for part in path.split("."):
        if not hasattr(found, part):
            _no_attribute(name, path, sys.modules[name])
        found = getattr(found, part)
    if not isinstance(found, Tarry):
        fail(f"{spec} is {type(found).__name__}, not a Tarry app; {_EXAMPLE}", USAGE)
    if not found.registry.kinds():
        fail(f"{spec} declares no handlers: there is nothing to do; add one with @app.task", USAGE)
    return found


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            where = f"looked in {Path.cwd()} and on the import path"
            fail(f"there is no module {error.name!r}; {where}; {_EXAMPLE}", USAGE)
        _their_error(name, error)
    except Exception as error:  # noqa: BLE001 - whatever the user's module does
        _their_error(name, error)


def _their_error(name: str, error: Exception) -> NoReturn:
    """Show the traceback of the user's own module, without our frames and importlib's."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace):
        trace = trace.tb_next
    talk("".join(traceback.format_exception(error.with_traceback(trace))).rstrip())
    fail(f"importing {name} failed; see above", FAILED)


def _is_machinery(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file == __file__ or "importlib" in file


def _no_attribute(name: str, path: str, module: ModuleType) -> NoReturn:
    apps = [n for n, value in vars(module).items() if isinstance(value, Tarry)]
    there = f"; did you mean {name}:{apps[0]}?" if apps else f"; it holds no Tarry app; {_EXAMPLE}"
    fail(f"module {name} has no {path!r}{there}", USAGE)
