"""Scripts: the Lua of each verb, put together from its parts, and the words that call it."""

import hashlib
import re
from functools import cache
from importlib.resources import files

_USES = re.compile(r"^-- Uses: ([a-z ]+)$", re.MULTILINE)
"""Where a script needs its parts; what is above does without: functions are made in every call."""
_PREFIX = "local P = KEYS[1]\n"


class Script:
    """One verb's Lua: its source, and the SHA1 a server knows it by once it has seen it."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source.encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str, *, clustered: bool = False) -> Script:
    """Return the script of a verb; in a cluster wake-ups go by sharded pub/sub."""
    source = _read(f"{name}.lua")
    text = _PREFIX + _USES.sub(lambda found: _parts(found.group(1)), source)
    return Script(name, text.replace("$PUBLISH", "SPUBLISH" if clustered else "PUBLISH"))


def _parts(names: str) -> str:
    return "".join(_read(f"parts/{name}.lua") for name in names.split())


def _read(path: str) -> str:
    return (files(__package__) / "scripts" / path).read_text(encoding="utf-8")
