"""Settings of a process: flags, then the environment, then a file."""

import os
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from tarry.due import duration_ms, shown
from tarry.errors import ConfigError, TarryError
from tarry.task import check_kind, check_namespace

DEFAULT_STORE = "sqlite:///tarry.db"
LEVELS = ("debug", "info", "warning", "error")
_TABLE = "tool.tarry"
_RELATIVE = "sqlite:///"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a command works with. `sources` tells where each value that was given came from."""

    store: str = DEFAULT_STORE
    namespace: str = "default"
    app: str | None = None
    kinds: tuple[str, ...] = ()
    concurrency: int = 50
    processes: int = 1
    lease: str = "30s"
    grace: str = "10s"
    health_port: int | None = None
    log_level: str = "info"
    log_json: bool = False
    max_overdue: str = "60s"
    sources: dict[str, str] = {}


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings: *flags* that are not None, then TARRY_*, then the nearest file.

    Raises `ConfigError` naming the flag, variable or file that holds what cannot be used.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    environ = os.environ if environ is None else environ
    for found in (_file(folder or Path.cwd()), _environment(environ), _flags(flags or {})):
        for name, (value, source) in found.items():
            values[name] = value
            sources[name] = source
    return Settings(**values, sources=sources)


_Found = dict[str, tuple[object, str]]


def _flags(flags: Mapping[str, object]) -> _Found:
    given = {name: value for name, value in flags.items() if value is not None}
    return {
        name: (_checked(name, value, source), source)
        for name, value in given.items()
        for source in [f"--{name.replace('_', '-')}"]
    }


def _environment(environ: Mapping[str, str]) -> _Found:
    found: _Found = {}
    for name, check in _CHECKS.items():
        source = f"TARRY_{name.upper()}"
        text = environ.get(source, "")
        if text:
            found[name] = (_checked(name, _from_text(check, text), source), source)
    return found


def _file(folder: Path) -> _Found:
    """Return the settings of the nearest tarry.toml or [tool.tarry], in *folder* or above it."""
    folder = folder.absolute()
    for place in (folder, *folder.parents):
        for path in (place / "tarry.toml", place / "pyproject.toml"):
            table = _table(path)
            if table is not None:
                return _from_table(path, table, at_hand=place == folder)
    return {}


def _table(path: Path) -> dict[str, object] | None:
    """Return the settings in *path*, None if it is not there or says nothing about tarry."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        if path.name != "tarry.toml":
            return None
        message = f"{path} cannot be read: {error}"
        raise ConfigError(message) from error
    if path.name != "tarry.toml" and _TABLE not in text:
        return None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path} is no TOML that can be read: {error}"
        raise ConfigError(message) from error
    if path.name == "tarry.toml":
        return data
    tool = _as_table(path, "tool", data.get("tool", {}))
    return _as_table(path, _TABLE, tool["tarry"]) if "tarry" in tool else None


def _as_table(path: Path, name: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        message = f"{path}: {name} is a table of settings, not {shown(value)}"
        raise ConfigError(message)
    return value


def _from_table(path: Path, table: Mapping[str, object], *, at_hand: bool) -> _Found:
    found: _Found = {}
    for name, value in table.items():
        if name not in _CHECKS:
            close = get_close_matches(name.replace("-", "_"), _CHECKS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(_CHECKS)}"
            message = f"{path}: unknown setting {name!r}; {hint}"
            raise ConfigError(message)
        source = f"{path}: {name}"
        checked = _checked(name, value, source)
        if name == "store" and not at_hand:
            checked = _beside(str(checked), path.parent)
        found[name] = (checked, source)
    return found


def _beside(url: str, folder: Path) -> str:
    """Return *url* so that a file it names lies where the settings do, wherever we are."""
    rest = url.removeprefix(_RELATIVE)
    if rest == url or rest.startswith("/"):
        return url
    return f"{_RELATIVE}{folder.as_posix()}/{rest}"


def _checked(name: str, value: object, source: str) -> object:
    try:
        return _CHECKS[name](value)
    except (TarryError, ValueError) as error:
        message = f"{source}: {error}"
        raise ConfigError(message) from error


def _from_text(check: Callable[[object], object], text: str) -> object:
    """Return what *text* of the environment means for a setting that is not text."""
    if check in (_count, _port) and text.strip().isdecimal():
        # Python reads no more than 4300 digits, and skips less space than it strips.
        with suppress(ValueError):
            return int(text)
    if check is _switch:
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    return text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        message = f"{value!r} is not text"
        raise ValueError(message)
    return value


def _namespace(value: object) -> str:
    return check_namespace(_text(value))


def _kinds(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        message = f'{value!r} is not a list of kinds such as ["order.cancel"]'
        raise ValueError(message)
    return tuple(check_kind(item.strip() if isinstance(item, str) else item) for item in items)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        message = f"{shown(value)} is not a whole number from 1"
        raise ValueError(message)
    return value


def _port(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65_535:  # noqa: PLR2004
        message = f"{shown(value)} is not a port from 0 to 65535"
        raise ValueError(message)
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        message = f"{value!r} is neither true nor false"
        raise ValueError(message)  # noqa: TRY004 - all of these are values that do not fit
    return value


def _duration(value: object) -> str:
    text = _text(value)
    duration_ms(text)
    return text


def _lease(value: object) -> str:
    text = _duration(value)
    if not duration_ms(text):
        message = f"{value!r} is no time at all"
        raise ValueError(message)
    return text


def _level(value: object) -> str:
    text = _text(value).lower()
    if text not in LEVELS:
        message = f"{value!r} is not one of {', '.join(LEVELS)}"
        raise ValueError(message)
    return text


_CHECKS: dict[str, Callable[[object], object]] = {
    "store": _text,
    "namespace": _namespace,
    "app": _text,
    "kinds": _kinds,
    "concurrency": _count,
    "processes": _count,
    "lease": _lease,
    "grace": _duration,
    "health_port": _port,
    "log_level": _level,
    "log_json": _switch,
    "max_overdue": _duration,
}
