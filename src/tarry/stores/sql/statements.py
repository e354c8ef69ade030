"""Named statements: SQL lives in .sql files, one `-- name:` line above each statement."""

import re
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(package: str, filename: str = "statements.sql") -> dict[str, str]:
    """Return the statements of a file by name, comments left out."""
    text = resources.files(package).joinpath(filename).read_text()
    parts = _NAME.split(text)
    return {name: _plain(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _plain(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
    return " ".join(" ".join(lines).split()).rstrip(";")
