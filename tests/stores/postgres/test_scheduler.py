"""A clustered scheduler: several workers, one database, each occurrence runs once."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

import pytest
from tests.network.servers import LIMIT

from tarry import Context, Tarry

STEP_MS = 400
pytestmark = pytest.mark.medium("postgres")


class Cluster:
    """Apps as on several machines; each declares the same recurring task."""

    def __init__(
        self, url: str, namespace: str, size: int, catch_up: Literal["latest", "all"]
    ) -> None:
        self.ran: list[int] = []
        self._news = threading.Condition()
        self.apps = []
        for _ in range(size):
            app = Tarry(url, namespace=namespace)
            self.apps.append(app)

            @app.task("report", every=f"{STEP_MS}ms", catch_up=catch_up)
            def report(ctx: Context) -> None:
                with self._news:
                    self.ran.append(ctx.due)
                    self._news.notify_all()

    def work_until(self, enough: Callable[[], bool]) -> None:
        """Let all of them work until there is enough."""
        with ExitStack() as stack:
            for app in self.apps:
                stack.enter_context(app.worker())
            with self._news:
                assert self._news.wait_for(enough, LIMIT)

    def close(self) -> None:
        for app in self.apps:
            app.close()


def on_time(ran: list[int]) -> bool:
    """Say whether the last two occurrences came when they were to come: nothing is left behind."""
    return len(ran) > 1 and ran[-1] - ran[-2] == STEP_MS and (ran[-1] - ran[0]) % STEP_MS == 0


def test_each_occurrence_runs_once_across_all_workers(url: str) -> None:
    cluster = Cluster(url, "quartz.once", 3, "latest")

    cluster.work_until(lambda: len(cluster.ran) >= 6)
    cluster.close()

    assert len(set(cluster.ran)) == len(cluster.ran)


def test_misfires_are_all_made_up_for_if_catch_up_says_so(url: str) -> None:
    """What was missed is due at once; whoever is on time again has run every occurrence."""
    cluster = Cluster(url, "quartz.all", 2, "all")
    cluster.work_until(lambda: on_time(cluster.ran))
    before = len(cluster.ran)
    threading.Event().wait(4 * STEP_MS / 1_000)

    cluster.work_until(lambda: len(cluster.ran) > before + 4 and on_time(cluster.ran))
    cluster.close()

    last = max(place for place in range(2, len(cluster.ran) + 1) if on_time(cluster.ran[:place]))
    ran = cluster.ran[:last]
    assert (ran[-1] - ran[0]) // STEP_MS + 1 == len(ran)
