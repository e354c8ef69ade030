"""Numbered migrations: files named 0001_what.sql, applied in order, each exactly once."""

from importlib import resources

import msgspec


class Migration(msgspec.Struct, frozen=True):
    """One step of a schema: its number, its name, its statements and the text they stand in.

    Functions have semicolons inside: where there are any, the text is what is run.
    """

    number: int
    name: str
    statements: tuple[str, ...]
    text: str = ""


def load(package: str) -> list[Migration]:
    """Return the migrations of a medium in order."""
    found = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            text = file.read_text()
            found.append(Migration(int(number), name, _statements(text), text))
    return sorted(found, key=lambda migration: migration.number)


def _statements(text: str) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return tuple(part.strip() for part in "\n".join(lines).split(";") if part.strip())
