"""Where a worker's log lines go: stderr, as text or as JSON."""

import logging
import sys

import msgspec

from tarry.due import format_instant


def set_up(level: str, *, as_json: bool) -> None:
    """Send log lines of *level* and above to stderr, unless the app has set up its own logging."""
    logging.getLogger("tarry").setLevel(level.upper())
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Plain("%(levelname)-7s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())


class _Plain(logging.Formatter):
    """Time in UTC, level, logger, message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's
        """Put the instant in front."""
        return f"{format_instant(int(record.created * 1_000))} {super().formatMessage(record)}"


class _Json(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        facts = {
            "time": format_instant(int(record.created * 1_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(facts).decode()
