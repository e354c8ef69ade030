"""tarry: delayed tasks that are never lost, never early and on the millisecond.

The public names are loaded when they are first used: `tarry --help` needs none of them.
"""

import typing as _typing
from importlib import import_module as _import_module

from tarry.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from tarry.answers import CancelResult, Moved, Scheduled
    from tarry.app import Tarry
    from tarry.attempt import Dead, Done, Retry, Skip, Snooze
    from tarry.backoff import Backoff
    from tarry.context import Context
    from tarry.due import Earlier, Later, Shift
    from tarry.errors import ConflictError, PayloadError, TarryError, WhenError
    from tarry.events import Event
    from tarry.task import Task, TaskRef, TaskState

__all__ = [
    "Backoff",
    "CancelResult",
    "ConflictError",
    "Context",
    "Dead",
    "Done",
    "Earlier",
    "Event",
    "Later",
    "Moved",
    "PayloadError",
    "Retry",
    "Scheduled",
    "Shift",
    "Skip",
    "Snooze",
    "Tarry",
    "TarryError",
    "Task",
    "TaskRef",
    "TaskState",
    "WhenError",
]

_HOMES = {
    "Backoff": "backoff",
    "CancelResult": "answers",
    "ConflictError": "errors",
    "Context": "context",
    "Dead": "attempt",
    "Done": "attempt",
    "Earlier": "due",
    "Event": "events",
    "Later": "due",
    "Moved": "answers",
    "PayloadError": "errors",
    "Retry": "attempt",
    "Scheduled": "answers",
    "Shift": "due",
    "Skip": "attempt",
    "Snooze": "attempt",
    "Tarry": "app",
    "TarryError": "errors",
    "Task": "task",
    "TaskRef": "task",
    "TaskState": "task",
    "WhenError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module 'tarry' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(_import_module(f"tarry.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
