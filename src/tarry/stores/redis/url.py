"""Url: what a redis URL says; secrets stay out of every text that is shown."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tarry.errors import StoreUrlError
from tarry.stores.options import number
from tarry.stores.redis.layout import MOST_SHARDS
from tarry.stores.shown import shown_url

FORMS = (
    "redis://[user:password@]host[:port][/db]  rediss://…  "
    "redis+sentinel://host:port,host:port/service[/db]  redis+cluster://host:port,host:port"
)
_SCHEMES = {
    "redis": ("one", False),
    "rediss": ("one", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
SCHEMES = tuple(_SCHEMES)
_PORTS = {"one": 6379, "sentinel": 26379, "cluster": 6379}
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")
_NUMBERS = {
    "shards": (1, MOST_SHARDS),
    "wait_replicas": (0, 100),
    "timeout": (0.05, 3_600),
    "connect_timeout": (0.05, 3_600),
}
_SECRETS = ("sentinel_username", "sentinel_password")
_LAST_PORT = 65_535

Address = tuple[str, int]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Redis is, and how it is to be used; its text tells no secrets."""

    how: str
    """one, sentinel or cluster."""
    addresses: tuple[Address, ...]
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    tls: bool = False
    tls_options: Mapping[str, str | bool] = {}
    shards: int | None = None
    wait_replicas: int = 0
    timeout: float = 5.0
    """Seconds a call waits for its reply."""
    connect_timeout: float = 2.0

    def __repr__(self) -> str:
        return f"Place({self.how} {self.text})"

    @property
    def text(self) -> str:
        """What is shown of it."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"{hosts}/{self.service}" if self.service else hosts


def parse(url: str) -> Place:
    """Return the place that *url* names; raises `StoreUrlError`, without the password."""
    scheme, _, rest = url.partition("://")
    how, tls = _SCHEMES[scheme]
    try:
        # The hosts may be several: what urlsplit would make of their ports is of no use.
        parts = urlsplit(f"redis://{rest}")
        credentials, _, hosts = parts.netloc.rpartition("@")
        addresses = tuple(_address(text, _PORTS[how]) for text in hosts.split(","))
        service, db = _path(how, parts.path)
        options = _options(parts.query, tls=tls)
    except ValueError as error:
        message = f"{shown_url(url)} cannot be used: {error}; write one of: {FORMS}"
        raise StoreUrlError(message) from None
    username, _, password = credentials.partition(":")
    return Place(
        how=how,
        addresses=addresses,
        service=service,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=tls,
        **options,
    )


def _address(text: str, port: int) -> Address:
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        number = tail.removeprefix(":")
    else:
        host, _, number = text.partition(":")
    if number:
        if not number.isascii() or not number.isdigit() or not 0 < int(number) <= _LAST_PORT:
            message = f"{number!r} is no port"
            raise ValueError(message)
        port = int(number)
    return host or "localhost", port


def _path(how: str, path: str) -> tuple[str, int]:
    words = [unquote(word) for word in path.split("/") if word]
    service = ""
    if how == "sentinel":
        if not words:
            message = "the name of the service that the sentinels watch is missing"
            raise ValueError(message)
        service = words.pop(0)
    if len(words) > 1 or (words and not (words[0].isascii() and words[0].isdigit())):
        message = f"{'/'.join(words)!r} is no number of a database"
        raise ValueError(message)
    db = int(words[0]) if words else 0
    if db and how == "cluster":
        message = "a cluster has only database 0"
        raise ValueError(message)
    return service, db


def _options(query: str, *, tls: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    tls_options: dict[str, str | bool] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        if name in _NUMBERS:
            options[name] = number(name, value, _NUMBERS)
        elif name in _SECRETS:
            options[name] = value
        elif tls and name in _TLS:
            yes = value.lower() in {"1", "true", "yes"}
            tls_options[name] = yes if name == "ssl_check_hostname" else value
        else:
            known = ", ".join((*_NUMBERS, *_SECRETS, *(_TLS if tls else ())))
            message = f"it has no option {name!r}, only {known}"
            raise ValueError(message)
    return options | {"tls_options": tls_options}
