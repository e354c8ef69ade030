"""From a URL to a store; imports a medium only when it is named."""

from urllib.parse import parse_qsl, unquote, urlsplit

from tarry.clock import Clock
from tarry.errors import DriverMissingError, StoreUrlError
from tarry.stores.mysql import url as mysql
from tarry.stores.redis.url import SCHEMES, parse
from tarry.stores.shown import shown_url
from tarry.stores.store import Store

FORMS = (
    "memory:  sqlite:///relative/file.db  sqlite:////absolute/file.db  redis://host:6379/0  "
    "rediss://…  redis+sentinel://host:26379,…/service  redis+cluster://host:6379,…  "
    "postgresql://host:5432/database  mysql://user@host:3306/database  mariadb://…"
)
POSTGRES = ("postgresql", "postgres")


def connect(url: str, *, namespace: str = "default", clock: Clock | None = None) -> Store:
    """Return the store that *url* names."""
    scheme, colon, rest = url.partition(":")
    if not colon:
        message = f"{shown_url(url)!r} is no store URL; write one of: {FORMS}"
        raise StoreUrlError(message)
    if scheme == "memory":
        if rest.strip("/"):
            message = f"memory: takes nothing behind it, not {rest!r}"
            raise StoreUrlError(message)
        from tarry.stores.memory import MemoryStore  # noqa: PLC0415 - only when named

        return MemoryStore(namespace=namespace, clock=clock)
    if scheme == "sqlite":
        return _sqlite(url, namespace, clock)
    if scheme in SCHEMES and rest.startswith("//"):
        return _redis(url, namespace, clock)
    if scheme in POSTGRES and rest.startswith("//"):
        return _postgres(url, namespace, clock)
    if scheme in mysql.SCHEMES and rest.startswith("//"):
        return _mysql(url, namespace, clock)
    message = f"{scheme}: is not a medium this tarry knows; write one of: {FORMS}"
    raise StoreUrlError(message)


def plan(url: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the layout of the store that *url* names, and the steps that are left, as SQL.

    Nothing is made or changed; 0 is a store that is not there yet, or needs no layout.
    """
    if url.partition(":")[0] in POSTGRES:
        from tarry.stores.postgres.plan import plan as plan_postgres  # noqa: PLC0415

        return plan_postgres(url)
    if url.partition(":")[0] in mysql.SCHEMES:
        from tarry.stores.mysql.layout import plan as plan_mysql  # noqa: PLC0415

        return plan_mysql(url)
    if url.startswith("sqlite:"):
        from tarry.stores.sqlite.file import plan as plan_sqlite  # noqa: PLC0415

        path, _, shared = _sqlite_options(url)
        return plan_sqlite(path, shared=shared)
    return 0, []


def file_of(url: str) -> str | None:
    """Return the file that *url* names, None if its medium is no file."""
    return _path(url) if url.startswith("sqlite:") else None


def _path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        message = f"{url!r} is no store URL ({error}); write one of: {FORMS}"
        raise StoreUrlError(message) from error
    path = unquote(parts.path[1:])
    if "#" in url or "\0" in path:
        message = f"{url!r} names no file; write a # of the file's name as %23"
        raise StoreUrlError(message)
    if parts.netloc or not parts.path.startswith("/") or not path:
        message = (
            f"{url!r} names no file; write sqlite:///tarry.db for one in the working folder, "
            "sqlite:////var/lib/tarry.db for an absolute path"
        )
        raise StoreUrlError(message)
    return path


def _sqlite(url: str, namespace: str, clock: Clock | None) -> Store:
    from tarry.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only when named

    path, sync, shared = _sqlite_options(url)
    return SqliteStore(path, namespace=namespace, sync=sync, shared=shared, clock=clock)


def _sqlite_options(url: str) -> tuple[str, str, bool]:
    """Return the file, how its commits are synced, and whether it is another program's too."""
    path = _path(url)
    options = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    given = dict(options)
    sync, shared = given.pop("sync", "full"), given.pop("shared", "no")
    once = len(options) == len(dict(options))
    if given or not once or sync not in ("full", "normal") or shared not in ("yes", "no"):
        message = f"{url!r}: the only options of sqlite are sync=full|normal and shared=yes|no"
        raise StoreUrlError(message)
    return path, sync, shared == "yes"


def _redis(url: str, namespace: str, clock: Clock | None) -> Store:
    place = parse(url)
    try:
        from tarry.stores.redis.store import RedisStore  # noqa: PLC0415 - only when named
    except ModuleNotFoundError as error:
        message = (
            f"{shown_url(url)} needs the drivers redis and hiredis, and {error.name} is not "
            "installed: pip install 'tarry[redis]'"
        )
        raise DriverMissingError(message) from error
    return RedisStore(place, namespace=namespace, clock=clock)


def _postgres(url: str, namespace: str, clock: Clock | None) -> Store:
    try:
        from tarry.stores.postgres.store import PostgresStore  # noqa: PLC0415 - only when named
        from tarry.stores.postgres.url import parse as parse_postgres  # noqa: PLC0415
    except ImportError as error:
        # psycopg itself is there without one of its libraries: it says so by this, too.
        message = (
            f"{shown_url(url)} needs the driver psycopg ({error}): pip install 'tarry[postgres]'"
        )
        raise DriverMissingError(message) from error
    return PostgresStore(parse_postgres(url), namespace=namespace, clock=clock)


def _mysql(url: str, namespace: str, clock: Clock | None) -> Store:
    place = mysql.parse(url)
    try:
        from tarry.stores.mysql.store import MysqlStore  # noqa: PLC0415 - only when named
    except ModuleNotFoundError as error:
        message = (
            f"{shown_url(url)} needs the driver PyMySQL, and {error.name} is not installed: "
            "pip install 'tarry[mysql]'"
        )
        raise DriverMissingError(message) from error
    return MysqlStore(place, namespace=namespace, clock=clock)
