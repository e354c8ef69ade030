"""Behind sentinels: a replica takes over; what that may lose, and what it may not."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from tests.network.servers import until
from tests.network.world import KIND
from tests.stores.redis.conftest import MakeStore, new_namespace
from tests.stores.redis.ensembles import Watched
from tests.stores.redis.trial import Trial

from tarry.due import In
from tarry.errors import StoreRefusedError, StoreUnavailableError
from tarry.request import Request
from tarry.stores.connect import connect
from tarry.stores.store import Store
from tarry.task import TaskRef
from tarry.testing.conformance.kit import Ear, get, schedule

pytestmark = [pytest.mark.medium("redis"), pytest.mark.timeout(120)]

HOUR = 3_600_000
LARGE = b"x" * 1_000_000
"""Some dozens are more than what the network keeps for a replica that does not read."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what fails on purpose out of the reports."""
    caplog.set_level(logging.CRITICAL + 1, logger="tarry")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with Watched(tmp_path_factory.mktemp("own")) as watched:
        yield watched


@pytest.fixture
def own(shared: Watched) -> Watched:
    """Servers for those who break them."""
    shared.heal()

    def opens() -> bool:
        # The sentinels may take the old primary for the new one for a moment.
        try:
            connect(shared.url, namespace=new_namespace()).close()
        except StoreUnavailableError:
            return False
        return True

    until(opens, "the primary takes writes", 60)
    return shared


def available(store: Store) -> bool:
    try:
        store.schedule([Request(TaskRef(KIND, "anybody there"), In(HOUR))])
    except StoreUnavailableError:
        return False
    return True


def test_what_a_replica_has_confirmed_survives_its_primary(own: Watched) -> None:
    with closing(Trial(f"{own.url}?wait_replicas=1")) as trial:
        with trial.running():
            trial.goes_on()
            own.take_over(lambda: trial.crashed("the primary was killed")).start()
            trial.goes_on()

        assert trial.judge() == []


def test_a_listener_follows_the_primary(own: Watched, open_store: MakeStore) -> None:
    store = open_store(own.url)
    ear = Ear(store)

    own.take_over().start()

    until(lambda: available(store), "the new primary answers", 60)
    # What may have been missed is made up for; then every word is heard again.
    until(lambda: ear.heard(1)[-1] == 0, "a wake-up")
    answer = schedule(store)
    assert ear.heard(2)[-1] == answer.due


@pytest.mark.parametrize("options", ["", "?wait_replicas=1"])
def test_only_what_no_replica_had_confirmed_may_be_lost(
    own: Watched,
    open_store: MakeStore,
    options: str,
    record_property: Callable[[str, object], None],
) -> None:
    store = open_store(own.url + options)
    refs = [TaskRef(KIND, str(n)) for n in range(80)]
    acknowledged = []
    primary = own.primary()
    assert primary is not None
    replicas = [each for each in own.keepers if each is not primary]
    until(lambda: available(store), "the primary answers", 60)
    for replica in replicas:
        replica.stop()
    try:
        for ref in refs:
            try:
                store.schedule([Request(ref, In(HOUR), LARGE)], call=ref.key)
            except StoreUnavailableError:
                break
            acknowledged.append(ref)
        primary.kill()
    finally:
        for replica in replicas:
            replica.go_on()
    until(lambda: own.primary() not in {None, primary}, "a replica takes over", 60)
    primary.start()
    until(lambda: available(store), "the new primary answers", 60)

    lost = [ref for ref in acknowledged if get(store, ref) is None]

    record_property("acknowledged", len(acknowledged))
    record_property("lost", len(lost))
    if options:
        assert lost == acknowledged == []
    else:
        assert len(acknowledged) == len(refs)
        # Replication is asynchronous: what is lost are the newest ones, without a gap.
        assert lost
        assert lost == refs[len(refs) - len(lost) :]


def test_a_service_that_the_sentinels_do_not_know_is_refused(
    watched: Watched, open_store: MakeStore
) -> None:
    with pytest.raises(StoreRefusedError, match="No such master"):
        open_store(watched.url.replace("/shop", "/unknown"))
