"""Task, TaskRef, TaskState: what waits, and under which name."""

import re
from enum import Enum

import msgspec

from tarry.errors import RefError

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_KIND = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KEY_BYTES = 512


class TaskRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A task's name within its namespace: what it does, and what it acts on."""

    kind: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


class TaskState(Enum):
    """Where a task is in its life; `DONE` and `CANCELLED` exist only while history is kept."""

    SCHEDULED = "scheduled"
    LEASED = "leased"
    DEAD = "dead"
    DONE = "done"
    CANCELLED = "cancelled"


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One revision of a task, as a store keeps it.

    `payload` and `headers` are bytes that stores never look into. `nominal` is the occurrence of
    `rule` this revision stands for; moves and retries change `due` but not `nominal`. `cancelled`
    marks an attempt that was cancelled while it ran.
    """

    ref: TaskRef
    due: int
    revision: int
    created: int
    payload: bytes = b"{}"
    headers: bytes = b""
    attempt: int = 0
    snoozes: int = 0
    lost: int = 0
    rule: str = ""
    nominal: int = 0
    declared: bool = False
    keep_ms: int = 0
    reason: str = ""
    cancelled: bool = False
    state: TaskState = TaskState.SCHEDULED
    ended: int = 0

    @property
    def failures(self) -> int:
        """How often the task has failed so far, the attempt under way not counted."""
        return max(0, self.attempt - 1 - self.lost)


def check_namespace(namespace: str) -> str:
    """Return *namespace* if it is allowed."""
    if not isinstance(namespace, str) or not _NAMESPACE.match(namespace):
        message = f"namespace {namespace!r} is not allowed: 1 to 64 of A-Z a-z 0-9 _ . -"
        raise RefError(message)
    return namespace


def check_kind(kind: str) -> str:
    """Return *kind* if it is allowed."""
    if not isinstance(kind, str) or not _KIND.match(kind):
        message = f"kind {kind!r} is not allowed: 1 to 128 of A-Z a-z 0-9 _ . : -"
        raise RefError(message)
    return kind


def check_key(key: str) -> str:
    """Return *key* if it is allowed."""
    if isinstance(key, str) and 0 < len(key) <= _KEY_BYTES and key.isascii() and key.isprintable():
        return key
    if not isinstance(key, str):
        message = f"a key is text, not {type(key).__name__}"
        raise RefError(message)
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        message = f"key {key!r} is not valid Unicode"
        raise RefError(message) from error
    if not 1 <= size <= _KEY_BYTES:
        message = f"a key has 1 to {_KEY_BYTES} bytes of UTF-8; this one has {size}"
        raise RefError(message)
    if _CONTROL.search(key):
        message = f"key {key!r} holds a control character"
        raise RefError(message)
    return key


def check_ref(kind: str, key: str) -> TaskRef:
    """Return the ref of *kind* and *key* if both are allowed."""
    return TaskRef(check_kind(kind), check_key(key))
