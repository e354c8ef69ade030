"""A batch that is told in several steps: its order, its repeats, what a failure half-way leaves."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.network.servers import Server
from tests.stores.redis.conftest import MakeStore, plain

from tarry.answers import ScheduleStatus
from tarry.due import In
from tarry.errors import StoreError, StoreUnavailableError
from tarry.request import Request
from tarry.stores.redis.links import Link
from tarry.stores.store import CHUNK, Store
from tarry.task import TaskRef
from tarry.testing.conformance.kit import KIND, shown

pytestmark = pytest.mark.medium("redis")

REQUESTS = [Request(TaskRef(KIND, str(n)), In(60_000)) for n in range(3 * CHUNK + 1)]
HOUR = 3_600_000


@pytest.fixture(params=["", "?shards=4"], ids=["one shard", "four shards"])
def store(make_store: MakeStore, request: pytest.FixtureRequest) -> Store:
    return make_store(request.param)


def scheduled(store: Store) -> int:
    counts = store.counts([KIND])
    return counts[KIND].scheduled if KIND in counts else 0


def test_a_batch_of_several_steps_is_answered_in_its_order(store: Store) -> None:
    answers = store.schedule(REQUESTS, call="one")

    assert [answer.ref for answer in answers] == [request.ref for request in REQUESTS]
    assert {answer.status for answer in answers} == {ScheduleStatus.CREATED}
    assert scheduled(store) == len(REQUESTS)


def test_a_repeat_finds_each_step(store: Store) -> None:
    first = store.schedule(REQUESTS, call="one")

    assert store.schedule(REQUESTS, call="one") == first
    assert shown(store, REQUESTS[-1].ref).revision == first[-1].revision


def test_the_last_word_on_a_ref_counts_also_steps_later(store: Store) -> None:
    last = Request(REQUESTS[0].ref, In(HOUR))
    [*_, answer] = store.schedule([*REQUESTS, last])

    task = shown(store, last.ref)
    assert answer.status is ScheduleStatus.REPLACED
    assert (task.due, task.revision) == (answer.due, answer.revision)


@pytest.fixture
def before_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[int], Any]], None]]:
    """Let something happen before each reply is read; it is told which."""
    read, number = Link.read, iter(range(10**6))

    def arrange(what: Callable[[int], Any]) -> None:
        def reading(link: Link) -> Any:
            what(next(number))
            return read(link)

        monkeypatch.setattr(Link, "read", reading)

    yield arrange
    monkeypatch.undo()


def test_scripts_that_are_forgotten_half_way_are_sent_again(
    make_store: MakeStore, server: Server, before_reply: Callable[..., None]
) -> None:
    store = make_store()
    with closing(plain(server)) as anybody:
        before_reply(lambda number: number == 0 and anybody.script_flush())
        answers = store.schedule(REQUESTS, call="one")

    assert len(answers) == scheduled(store) == len(REQUESTS)
    revisions = [answer.revision for answer in answers]
    assert revisions == sorted(set(revisions))


def test_a_line_that_breaks_half_way_tells_what_is_known_and_a_repeat_does_the_rest(
    make_store: MakeStore, before_reply: Callable[..., None]
) -> None:
    store = make_store()
    store.schedule(REQUESTS[:1])  # so that the server knows the script

    def cut(number: int) -> None:
        if number == 2:
            raise ConnectionResetError

    before_reply(cut)
    with pytest.raises(StoreUnavailableError) as caught:
        store.schedule(REQUESTS, call="one")
    known = caught.value.answers
    assert len(known) == 2 * CHUNK

    answers = store.schedule(REQUESTS, call="one")
    assert answers[: 2 * CHUNK] == known
    assert scheduled(store) == len(REQUESTS)


def test_what_a_server_refuses_half_way_is_told_and_the_line_is_used_again(
    make_store: MakeStore, server: Server, before_reply: Callable[..., None]
) -> None:
    store = make_store()
    store.schedule(REQUESTS[:1])  # as above
    with closing(plain(server)) as anybody:

        def fill(number: int) -> None:
            if number == 1:
                anybody.config_set("maxmemory", 1)

        before_reply(fill)
        try:
            with pytest.raises(StoreError) as caught:
                store.schedule(REQUESTS, call="one")
        finally:
            anybody.config_set("maxmemory", 0)

    assert len(caught.value.answers) == 2 * CHUNK
    assert "the first 1,000 of the batch" in str(caught.value)
    assert len(store.schedule(REQUESTS, call="one")) == scheduled(store) == len(REQUESTS)
