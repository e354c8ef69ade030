"""Logs: one standard `logging` line per attempt, made from events."""

import logging
from typing import Protocol

from tarry.events import (
    AttemptEnded,
    Event,
    LeaseLost,
    Listener,
    SlotLost,
    StoreBack,
    StoreLost,
    UnknownFields,
    WorkerStarted,
    WorkerStopped,
)

log = logging.getLogger("tarry")


class Listened(Protocol):
    """What has events: an app."""

    def listen(self, listener: Listener) -> object:
        """Call *listener* with each event."""
        ...


def attach(app: Listened) -> None:
    """Log the events of *app*, once."""
    if getattr(app, "_tarry_logged", False):
        return
    app._tarry_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - a mark of ours
    app.listen(write)


def write(event: Event) -> None:
    """Write one line for *event*; the plain success at the first attempt only for DEBUG."""
    if isinstance(event, AttemptEnded):
        _attempt(event)
        return
    match event:
        case LeaseLost():
            log.warning("lease lost: %s: another worker may have the task", event.ref)
        case UnknownFields():
            log.warning("%s: unknown fields ignored: %s", event.ref, ", ".join(event.fields))
        case SlotLost():
            log.warning("%s hangs: its thread was abandoned (%d so far)", event.ref, event.lost)
        case StoreLost():
            log.warning("no answer from the store: %s; again in %d ms", event.error, event.again_ms)
        case StoreBack():
            log.warning("the store answers again, after %d ms", event.after_ms)
        case WorkerStarted():
            log.info("worker %s serves %s", event.holder, ", ".join(event.kinds))
        case WorkerStopped():
            log.info(
                "worker %s stopped after %d attempts, %d given back",
                event.holder,
                event.attempts,
                event.released,
            )
        case _:
            log.info("%s", event)


def _attempt(event: AttemptEnded) -> None:
    level = logging.INFO
    if event.outcome == "done" and event.attempt == 1:
        level = logging.DEBUG
    elif event.outcome in ("retry", "dead"):
        level = logging.WARNING
    if log.isEnabledFor(level):
        log.log(
            level,
            "%s %s: attempt %d, %.1f ms late, ran %.1f ms%s",
            event.outcome,
            event.ref,
            event.attempt,
            event.lateness_ms,
            event.run_ms,
            f": {event.reason}" if event.reason else "",
            exc_info=event.error if level == logging.WARNING else None,
        )
