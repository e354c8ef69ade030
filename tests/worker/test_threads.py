"""Threads for plain handlers, and the inbox through which their results come back."""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.worker.kit import LIMIT

from tarry.runtime import ThreadRuntime
from tarry.worker.threads import Inbox, Threads
from tarry.worker.turns import Turns


class Kit(ThreadRuntime):
    """Threads whose items wait for a door of their own."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.threads: Threads[int] = Threads(limit, self._work, Turns(str, self.lock()), self)
        self.started = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.doors: dict[int, threading.Event] = {}
        self.by: dict[int, threading.Thread] = {}
        self.spawned: list[threading.Thread] = []

    def spawn(self, fn: Callable[[], None], name: str) -> Callable[[], None]:
        thread = threading.Thread(target=fn, name=name, daemon=True)
        thread.start()
        self.spawned.append(thread)
        return thread.join

    def _work(self, item: int) -> None:
        self.by[item] = threading.current_thread()
        self.started.release()
        assert self.doors[item].wait(LIMIT)
        self.done.release()

    def put(self, *items: int, shut: bool = True) -> None:
        for item in items:
            self.doors[item] = threading.Event()
            if not shut:
                self.doors[item].set()
        self.threads.put(list(items))

    def until(self, semaphore: threading.Semaphore, count: int) -> None:
        for _ in range(count):
            assert semaphore.acquire(timeout=LIMIT)

    def end(self) -> None:
        for door in self.doors.values():
            door.set()
        self.threads.close()
        for thread in self.spawned:
            thread.join(LIMIT)
            assert not thread.is_alive()


@pytest.fixture
def kit() -> Iterator[Kit]:
    kit = Kit(8)
    yield kit
    kit.end()


def test_items_run_beside_each_other(kit: Kit) -> None:
    kit.put(1, 2, 3)
    kit.until(kit.started, 3)

    assert len(set(kit.by.values())) == 3


def test_a_large_batch_calls_in_more_threads_when_the_first_are_busy(kit: Kit) -> None:
    kit.put(*range(8))
    kit.until(kit.started, 4)

    kit.threads.call_more()
    kit.until(kit.started, 4)

    assert not kit.threads.call_more()
    assert len(set(kit.by.values())) == 8


def test_there_are_no_more_threads_than_the_limit(kit: Kit) -> None:
    kit.put(*range(20))
    kit.threads.call_more()
    kit.until(kit.started, 8)
    kit.threads.call_more()

    assert len(kit.spawned) == 8
    for door in kit.doors.values():
        door.set()
    kit.until(kit.done, 20)


def test_threads_are_used_again(kit: Kit) -> None:
    for item in range(50):
        kit.put(item, shut=False)
        kit.until(kit.done, 1)

    assert len(kit.spawned) <= 8


def test_an_abandoned_thread_is_replaced_and_ends() -> None:
    kit = Kit(1)
    kit.put(1)
    kit.until(kit.started, 1)
    kit.put(2, shut=False)

    kit.threads.abandon(1)
    kit.until(kit.done, 1)

    assert kit.by[2] is not kit.by[1]
    assert kit.threads.abandoned == 1
    kit.end()


def test_nothing_is_left_behind_by_many_threads_that_come_and_go() -> None:
    kit = Kit(4)
    for start in range(0, 400, 10):
        kit.put(*range(start, start + 10), shut=False)
    while kit.threads.call_more():
        threading.Event().wait(0.001)
    kit.until(kit.done, 400)
    kit.end()


def test_the_inbox_wakes_once_for_many() -> None:
    woken: list[int] = []
    seen: list[int] = []
    inbox = Inbox(lambda: woken.append(1))

    for n in range(5):
        inbox.put(lambda n=n: seen.append(n))  # type: ignore[misc]
    inbox.drain()
    inbox.put(lambda: seen.append(9))

    assert seen == [0, 1, 2, 3, 4]
    assert woken == [1, 1]
    inbox.drain()
    assert seen[-1] == 9


def test_what_comes_in_while_the_inbox_is_emptied_is_not_forgotten() -> None:
    seen: list[str] = []
    inbox = Inbox(lambda: None)

    inbox.put(lambda: inbox.put(lambda: seen.append("second")))
    inbox.drain()
    inbox.drain()

    assert seen == ["second"]
