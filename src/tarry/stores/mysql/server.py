"""Survey: what kind of server this is, and what is wrong with it."""

import re
from collections.abc import Iterator

from tarry.clock import SYSTEM
from tarry.errors import StoreRefusedError
from tarry.stores.mysql.exchange import Exchange
from tarry.stores.mysql.plan import NOW
from tarry.stores.mysql.url import Place

_OLDEST_MARIADB = (10, 6)
_OLDEST_MYSQL = (8, 0)
_SKEW_MS = 500
_SETTINGS = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "binlog_format",
    "innodb_doublewrite",
    "read_only",
    "auto_increment_increment",
    "max_allowed_packet",
)
_PACKET = 4 << 20
"""A chunk of payloads is at most a mebibyte, and is sent as hexadecimal digits."""


class Survey:
    """Asks the server about itself when a store is opened; refuses what cannot work."""

    def __init__(self, exchange: Exchange, place: Place) -> None:
        self._exchange = exchange
        self._place = place
        [found, version] = exchange.ask(
            "SHOW GLOBAL VARIABLES WHERE variable_name IN "
            f"({', '.join(repr(name) for name in _SETTINGS)})",
            "SELECT VERSION()",
        )
        self._settings = {str(name).lower(): str(value) for name, value in found.rows}
        self.version = str(version.rows[0][0])
        self.is_mariadb = "mariadb" in self.version.lower()
        self._refuse_old()

    def _refuse_old(self) -> None:
        numbers = re.findall(r"\d+", self.version)[:2]
        oldest = _OLDEST_MARIADB if self.is_mariadb else _OLDEST_MYSQL
        if tuple(map(int, numbers)) < oldest:
            message = (
                f"{self._place.text} is {self._name}; tarry needs MySQL 8.0 or MariaDB 10.6, or "
                "newer; nothing was written"
            )
            raise StoreRefusedError(message)

    @property
    def _name(self) -> str:
        return f"{'MariaDB' if self.is_mariadb else 'MySQL'} {self.version.partition('-')[0]}"

    def survives(self) -> str:
        """Say what an acknowledged task survives on this server."""
        flush = self._settings.get("innodb_flush_log_at_trx_commit")
        if flush == "0":
            return "nothing for sure; a crash costs up to a second"
        if flush == "2":
            return "process kill; a power cut costs up to a second"
        return "power loss"

    def facts(self) -> dict[str, str]:
        """Tell version and settings."""
        told = [
            f"{name}={self._settings[name]}"
            for name in ("innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog")
            if name in self._settings
        ]
        return {"server": f"{self._name}, {', '.join(told)}"}

    def findings(self) -> Iterator[str]:
        """Tell what is wrong with the server."""
        where, settings = self._place.text, self._settings
        if settings.get("innodb_flush_log_at_trx_commit") == "0":
            yield (
                f"{where} has innodb_flush_log_at_trx_commit 0: a crash of the server loses tasks "
                "it acknowledged; set it to 1"
            )
        if settings.get("log_bin") == "ON" and settings.get("binlog_format") == "STATEMENT":
            yield f"{where} logs statements, which cannot be replayed: set binlog_format to ROW"
        if settings.get("innodb_doublewrite", "ON") in {"OFF", "0"}:
            yield f"{where} has innodb_doublewrite off: a power cut may tear its pages; set it on"
        if int(settings.get("max_allowed_packet", _PACKET)) < _PACKET:
            yield f"{where} has a max_allowed_packet below 4 MiB: large batches are refused"
        if settings.get("auto_increment_increment", "1") != "1":
            yield (
                f"{where} has auto_increment_increment above 1, as where several servers are "
                "written to: let tarry write to one of them only"
            )
        before = SYSTEM.now()
        [now] = self._exchange.ask(f"SELECT {NOW}")
        skew = int(now.rows[0][0]) - (before + SYSTEM.now()) // 2
        if abs(skew) > _SKEW_MS:
            yield (
                f"the clock of {where} is {abs(skew) / 1_000:.1f} s "
                f"{'ahead of' if skew > 0 else 'behind'} this machine's: tasks run by the "
                "server's clock; synchronise both (NTP)"
            )
