"""Url: what a MySQL URL says; secrets stay out of every text that is shown."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tarry.errors import StoreUrlError
from tarry.stores.options import number
from tarry.stores.shown import shown_url

FORMS = "mysql://[user[:password]@]host[:port]/database  mariadb://…"
SCHEMES = ("mysql", "mariadb")
_PORT = 3306
_LAST_PORT = 65_535
_NUMBERS = {
    "timeout": (0.05, 3_600),
    "connect_timeout": (0.05, 3_600),
    "connections": (1, 10_000),
}
_TEXTS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a database is, and how it is to be used; its text tells no secrets."""

    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = None
    unix_socket: str | None = None
    tls: Mapping[str, str] = {}
    timeout: float = 5.0
    """Seconds a call waits for its reply."""
    connect_timeout: float = 2.0
    connections: int = 32
    """So many may be open at once in one process, and one more for renewals."""

    def __repr__(self) -> str:
        return f"Place({self.text})"

    @property
    def text(self) -> str:
        """What is shown of it."""
        where = self.unix_socket or f"{self.host}:{self.port}"
        return f"{where}/{self.database}"


def parse(url: str) -> Place:
    """Return the place that *url* names; raises `StoreUrlError`, without the password."""
    _, _, rest = url.partition("://")
    try:
        parts = urlsplit(f"mysql://{rest}")
        credentials, _, address = parts.netloc.rpartition("@")
        host, port = _address(address)
        database = _database(parts.path)
        options = _options(parts.query)
    except ValueError as error:
        message = f"{shown_url(url)} cannot be used: {error}; write {FORMS}"
        raise StoreUrlError(message) from None
    user, _, password = credentials.partition(":")
    return Place(
        host=host,
        port=port,
        database=database,
        user=unquote(user) or None,
        password=unquote(password) or None,
        **options,
    )


def _database(path: str) -> str:
    name = unquote(path.removeprefix("/"))
    if not name or "/" in name or "\0" in name:
        message = "the name of the database is missing"
        raise ValueError(message)
    return name


def _address(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        number = tail.removeprefix(":")
    else:
        host, _, number = text.partition(":")
    if not number:
        return host or "localhost", _PORT
    if not number.isascii() or not number.isdigit() or not 0 < int(number) <= _LAST_PORT:
        message = f"{number!r} is no port"
        raise ValueError(message)
    return host or "localhost", int(number)


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    tls: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        if name in _NUMBERS:
            options[name] = number(name, value, _NUMBERS)
        elif name == "unix_socket":
            options[name] = value
        elif name in _TEXTS:
            tls[name] = value
        else:
            message = f"it has no option {name!r}, only {', '.join((*_NUMBERS, *_TEXTS))}"
            raise ValueError(message)
    return options | {"tls": tls}
