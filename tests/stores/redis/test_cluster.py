"""A cluster under load: slots move, a primary dies; nothing is lost, doubled or early."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AskError, TryAgainError
from tests.network.servers import HOST, until
from tests.network.world import KIND
from tests.stores.redis.conftest import MakeStore
from tests.stores.redis.ensembles import Cluster, say, slots_of
from tests.stores.redis.trial import Trial

from tarry.answers import Scheduled, ScheduleStatus
from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.request import Request
from tarry.stores.redis.layout import shard_of
from tarry.task import TaskRef
from tarry.testing.conformance.kit import Ear, claim, schedule

pytestmark = [pytest.mark.medium("redis"), pytest.mark.timeout(120)]

NAMESPACE = "moving"
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for those who break it."""
    with Cluster(tmp_path_factory.mktemp("own")) as cluster:
        yield cluster
        cluster.heal()


def key_in(shard: int, shards: int = 16) -> str:
    """Return a key that lies in *shard*."""
    return next(
        key for key in map(str, range(10_000)) if shard_of(TaskRef(KIND, key), shards) == shard
    )


def other_than(cluster: Cluster, slot: int) -> Callable[[], None]:
    """Return what moves *slot* to a primary that does not serve it."""
    owner = cluster.owner(slot)
    target = next(each for each in cluster.primaries() if each is not owner)
    return partial(cluster.move, slot, target)


# ---- slots that move


def test_nothing_is_lost_doubled_or_early_while_slots_move(cluster: Cluster) -> None:
    with closing(Trial(cluster.url)) as trial:
        with trial.running():
            trial.goes_on()
            for slot in slots_of(trial.namespace, range(16)):
                other_than(cluster, slot)()
            trial.goes_on()

        assert trial.judge() == []


def test_a_script_never_runs_on_half_of_its_keys(cluster: Cluster, open_store: MakeStore) -> None:
    store = open_store(f"{cluster.url}?timeout=0.3", namespace="half")
    ref = TaskRef(KIND, key_in(5))
    schedule(store, ref, In(HOUR))
    [slot] = slots_of("half", [5])
    source = cluster.owner(slot)
    target = next(each for each in cluster.primaries() if each is not source)
    half = say(source.port, "CLUSTER", "COUNTKEYSINSLOT", slot) // 2
    assert half > 0
    keys = ("{half:5}:", "{half:5}:!")

    with cluster.moving(slot, target) as move_some:
        for _ in range(2):
            with pytest.raises(AskError):
                say(source.port, "EVAL", "return 1", 2, *keys)
            with pytest.raises(TryAgainError):
                asking(target.port, "EVAL", "return 1", 2, *keys)
            with pytest.raises(StoreUnavailableError):
                schedule(store, ref)
            move_some(half)

    assert store.check() == []
    assert schedule(store, ref).status is ScheduleStatus.REPLACED
    assert [lease.ref for lease in claim(store)] == [ref]


def asking(port: int, *words: str | int) -> object:
    """Say a command to a node that imports its slot."""
    client: Any = Redis(host=HOST, port=port, single_connection_client=True)
    with closing(client):
        client.execute_command("ASKING")
        return client.execute_command(*words)


def test_a_listener_follows_its_shard_to_another_node(
    cluster: Cluster, open_store: MakeStore
) -> None:
    store = open_store(cluster.url, namespace=NAMESPACE)
    ear = Ear(store)
    ref = TaskRef(KIND, key_in(3))
    first = schedule(store, ref).due
    assert first in ear.heard(1)

    other_than(cluster, slots_of(NAMESPACE, [3])[0])()

    # What was said while nobody listened is made up for; then every word is heard again.
    before = len(ear.heard(2))
    assert ear.heard(2)[-1] == 0
    claim(store)
    second = schedule(store, TaskRef("another.kind", "1"))
    assert second.due in ear.heard(before + 1)


# ---- a primary that dies


def test_work_goes_on_when_a_replica_takes_over(own: Cluster) -> None:
    victim = own.primaries()[0]
    with closing(Trial(f"{own.url}?wait_replicas=1")) as trial:
        with trial.running():
            trial.goes_on()
            victim.kill()
            trial.crashed("a primary was killed")
            until(lambda: own.primaries()[0] is not victim, "a replica takes over", 60)
            # Nobody confirms what the new primary writes before it has a replica.
            victim.start()
            trial.goes_on()

        assert trial.judge() == []
    own.heal()


def test_a_batch_over_a_dead_node_is_refused_and_its_repeat_gets_through(
    own: Cluster, open_store: MakeStore
) -> None:
    own.heal()
    store = open_store(own.url)
    requests = [Request(TaskRef(KIND, str(n)), In(HOUR)) for n in range(100)]
    victim = own.primaries()[-1]
    victim.kill()

    with pytest.raises(StoreUnavailableError):
        store.schedule(requests, call="once")

    answers: list[Scheduled] = []

    def got_through() -> bool:
        try:
            answers[:] = store.schedule(requests, call="once")
        except StoreUnavailableError:
            return False
        return True

    until(got_through, "a replica takes over", 60)
    assert {answer.status for answer in answers} == {ScheduleStatus.CREATED}
    assert store.counts([KIND])[KIND].scheduled == 100
    victim.start()
    own.heal()
