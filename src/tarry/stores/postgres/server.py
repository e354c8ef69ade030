"""Survey: what kind of PostgreSQL this is, what it promises, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from typing import Any

from tarry.clock import SYSTEM
from tarry.errors import StoreRefusedError, StoreUnavailableError, UnsupportedError
from tarry.stores.postgres import schema
from tarry.stores.postgres.errors import unreached
from tarry.stores.postgres.links import Link, LinkLostError, Links
from tarry.stores.postgres.url import Place
from tarry.task import Task, TaskState

_OLDEST = 130_000
_SKEW_MS = 500
_OLD_SNAPSHOT_S = 900
_ASKED = (
    *("server_version", "server_version_num", "server_encoding", "fsync", "full_page_writes"),
    *("synchronous_commit", "synchronous_standby_names", "autovacuum"),
)


class Survey:
    """Asks the server about itself when a store is opened; refuses what cannot work."""

    def __init__(self, links: Links, place: Place) -> None:
        self._links = links
        self._place = place
        self._settings = self._ask_settings()
        self._layout = 0

    def _say(self, sql: str) -> list[tuple[Any, ...]]:
        link = self._links.take()
        try:
            rows = link.say(sql, self._place.timeout)
        except LinkLostError as error:
            self._links.lose(link)
            raise unreached(str(error), self._place.text) from error
        except BaseException:
            self._links.lose(link)
            raise
        self._links.give(link)
        return rows

    def _ask_settings(self) -> dict[str, str]:
        words = ", ".join(f"current_setting('{name}')" for name in _ASKED)
        [row] = self._say(f"SELECT {words}, pg_is_in_recovery()")
        found: dict[str, str] = dict(zip(_ASKED, row[:-1], strict=True))
        where, text = self._place.text, found["server_version"]
        if int(found["server_version_num"]) < _OLDEST:
            message = f"{where} is PostgreSQL {text}; tarry needs 13 or newer; nothing was written"
            raise StoreRefusedError(message)
        if found["server_encoding"] != "UTF8":
            message = (
                f"the database at {where} has the encoding {found['server_encoding']}, in which "
                "not every key can be written; use one with UTF8; nothing was written"
            )
            raise StoreRefusedError(message)
        if row[-1]:
            if self._place.several:
                message = f"{where} takes no writes at the moment: it is a standby"
                raise StoreUnavailableError(message)
            message = (
                f"{where} is a read-only standby; nothing was written; name the primary in the "
                "store's URL, or all servers and target_session_attrs=read-write"
            )
            raise StoreRefusedError(message)
        return found

    def prepare(self) -> list[str]:
        """Make the tables where there are none; an older layout is used as it is."""
        link = self._links.take()
        try:
            self._layout = schema.refuse_newer(schema.layout(link, self._place), self._place)
            if self._layout < schema.OLDEST:
                return self._migrate(link)
        except LinkLostError as error:
            link.close()
            raise unreached(str(error), self._place.text) from error
        finally:
            self._links.give(link)
        return []

    def migrate(self) -> list[str]:
        """Bring the tables to the newest layout."""
        link = self._links.take()
        try:
            return self._migrate(link)
        except LinkLostError as error:
            link.close()
            raise unreached(str(error), self._place.text) from error
        finally:
            self._links.give(link)

    def _migrate(self, link: Link) -> list[str]:
        done = schema.migrate(link, self._place)
        self._layout = schema.layout(link, self._place)
        return done

    @property
    def takes_over(self) -> bool:
        """Whether the layout can take over what another store had."""
        return self._layout >= schema.TAKES_OVER

    def refuse_letters(self, tasks: Sequence[Task]) -> None:
        """Raise if there are dead letters among *tasks*, and the layout has no way to take them."""
        if any(task.state is TaskState.DEAD for task in tasks):
            message = (
                f"{self._place.text} has layout {self._layout}, which takes no dead letters; "
                "nothing was written; run `tarry migrate`"
            )
            raise UnsupportedError(message)

    def survives(self) -> str:
        """Say what an acknowledged task survives on this server."""
        known = self._settings
        if known["fsync"] != "on":
            return "process kill; a power cut may cost everything (fsync is off)"
        if known["synchronous_commit"] == "off":
            return "process kill of clients; a crash of the server costs up to a second"
        if known["synchronous_standby_names"] and known["synchronous_commit"] != "local":
            return "node loss (a synchronous standby confirms each call)"
        return "power loss"

    def facts(self) -> dict[str, str]:
        """Tell version, layout, what stands between, and how large the tables are."""
        name = self._place.schema
        [[size]] = self._say(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = '{name}' "
            "WHERE c.relkind = 'r'"
        )
        return {
            "layout": str(self._layout),
            "server": f"{self._place.text}: PostgreSQL {self._settings['server_version']}",
            "schema": name,
            "sessions": "by way of a pooler" if self._links.pooled else "direct",
            "size": f"{size:,} bytes",
        }

    def findings(self) -> Iterator[str]:
        """Tell what is wrong with the server."""
        where, known = self._place.text, self._settings
        left = schema.pending(self._layout)
        if left:
            yield (
                f"layout {self._layout} works, but {schema.newest()} is the newest: "
                "run `tarry migrate`"
            )
        if known["fsync"] != "on":
            yield f"{where} has fsync = off: a power cut may cost every task; set it to on"
        if known["full_page_writes"] != "on":
            yield f"{where} has full_page_writes = off: a power cut may damage tables; set it to on"
        if known["synchronous_commit"] == "off":
            yield (
                f"{where} has synchronous_commit = off: a crash loses tasks that were "
                "acknowledged; set it to on for this role or database"
            )
        if known["autovacuum"] != "on":
            yield f"{where} has autovacuum = off: tables grow with every task; set it to on"
        [[clock, oldest]] = self._say(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, "
            "(SELECT extract(epoch FROM max(now() - a.xact_start))::int8 FROM pg_stat_activity a "
            "WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid())"
        )
        skew = clock - SYSTEM.now()
        if abs(skew) > _SKEW_MS:
            yield (
                f"the clock of {where} is {abs(skew) / 1_000:.1f} s "
                f"{'ahead of' if skew > 0 else 'behind'} this machine's: tasks run by the "
                "server's clock; synchronise both (NTP)"
            )
        if oldest is not None and oldest > _OLD_SNAPSHOT_S:
            yield (
                f"a transaction on {where} has been open for {oldest // 60} minutes: until it "
                "ends, no space of settled tasks is used again; see pg_stat_activity"
            )
