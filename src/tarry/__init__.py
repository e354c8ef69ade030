"""tarry: delayed tasks that are never lost, never early and on the millisecond."""

from tarry.answers import CancelResult, Moved, Scheduled
from tarry.app import Tarry
from tarry.attempt import Dead, Done, Retry, Skip, Snooze
from tarry.backoff import Backoff
from tarry.context import Context
from tarry.due import Earlier, Later, Shift
from tarry.errors import ConflictError, PayloadError, TarryError, WhenError
from tarry.events import Event
from tarry.task import Task, TaskRef, TaskState
from tarry.version import __version__ as __version__

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
