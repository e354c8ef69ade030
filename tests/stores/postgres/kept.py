"""Kept: connections that outlive their stores, for suites that open a store for every test."""

from collections import defaultdict
from typing import ClassVar

import pytest

from tarry.stores.postgres.links import Link, Links


class KeptLinks(Links):
    """Takes what an earlier store left, and leaves its own."""

    kept: ClassVar[dict[str, list[Link]]] = defaultdict(list)

    def open(self) -> Link:
        left = self.kept[repr((self._place.conninfo, self._place.timeout))]
        while left:
            link = left.pop()
            if not link.stale():
                return link
            link.close()
        return super().open()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            left = self.kept[repr((self._place.conninfo, self._place.timeout))]
            while self._idle:
                left.append(self._idle.pop())


def keep_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stores of a test use what is kept."""
    monkeypatch.setattr("tarry.stores.postgres.store.Links", KeptLinks)
