"""Url: what a postgresql URL says; secrets stay out of every text that is shown."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.errors import StoreUrlError
from tarry.stores.options import number
from tarry.stores.shown import shown_url

FORMS = "postgresql://[user:password@]host[:port]/database"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_NUMBERS = {
    "timeout": (0.05, 3_600),
    "connect_timeout": (0.05, 3_600),
    "connections": (1, 1_000),
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a PostgreSQL is, and how it is to be used; its text tells no secrets."""

    conninfo: str
    """What libpq is told, with what must stay secret."""
    text: str
    several: bool = False
    """Whether the URL names several servers, of which another may take over."""
    schema: str = "tarry"
    timeout: float = 5.0
    """Seconds a call waits for its reply."""
    connect_timeout: float = 2.0
    connections: int = 20
    """As many are open at a time; who needs one more waits."""

    def __repr__(self) -> str:
        return f"Place({self.text})"


def parse(url: str) -> Place:
    """Return the place that *url* names; raises `StoreUrlError`, without the password."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        own: dict[str, Any] = {n: _option(n, value) for n, value in pairs if n in _OWN}
        # All else is libpq's: TLS, several hosts, target_session_attrs and the like.
        rest = urlencode([pair for pair in pairs if pair[0] not in _OWN], quote_via=quote)
        plain = urlunsplit(parts._replace(scheme="postgresql", query=rest))
        known: dict[str, Any] = conninfo_to_dict(plain)
        _check_ports(str(known.get("port") or 5432))
    except (ValueError, ProgrammingError) as error:
        # libpq names what it cannot read, and may show the password with it.
        said = "libpq cannot read it" if isinstance(error, ProgrammingError) else error
        message = f"{shown_url(url)} cannot be used: {said}; write {FORMS}"
        raise StoreUrlError(message) from None
    known.setdefault("application_name", "tarry")
    known["client_encoding"] = "UTF8"
    host = str(known.get("host") or known.get("hostaddr") or "localhost")
    where = host if "," in host or host.startswith("/") else f"{host}:{known.get('port', 5432)}"
    return Place(
        conninfo=make_conninfo("", **known),
        text=f"{where}/{known.get('dbname', '')}",
        several="," in host,
        **own,
    )


_OWN = (*_NUMBERS, "schema")


def _check_ports(ports: str) -> None:
    for port in ports.split(","):
        if not port.isdigit():
            message = f"{port!r} is no port"
            raise ValueError(message)


def _option(name: str, value: str) -> float | str:
    if name == "schema":
        if not _SCHEMA.match(value) or value.startswith("pg_"):
            message = f"schema is a plain name in lower case, not {value!r}"
            raise ValueError(message)
        return value
    return number(name, value, _NUMBERS)
