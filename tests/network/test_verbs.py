"""Each verb of the store, hit in each phase: an error or the answer, and the effect of one call."""
# ruff: noqa: B023 - what closes over a world is called before the next one is made

import pytest
from tests.network.conftest import Hit, worlds
from tests.network.media import REMEMBERED, Forgetful, Medium
from tests.network.world import KIND, World, patiently

from tarry.answers import (
    CancelResult,
    MoveStatus,
    RenewResult,
    ReviveResult,
    ScheduleStatus,
    SettleResult,
)
from tarry.attempt import Dead, Retry
from tarry.due import By, In
from tarry.errors import StoreUnavailableError, UnknownOutcomeError
from tarry.lease import Lease
from tarry.request import Cancellation, DeadRef, Move, Request, Settlement
from tarry.stores.store import Filter, Store
from tarry.task import TaskRef, TaskState
from tarry.testing.proxy import Phase

REF = TaskRef(KIND, "42")
LATER = In(3_600_000)
LEASE_MS = 30_000
NOT_ASKED = {"watch", "migrate", "check", "close"}
"""A hint that may be missed, and what is not asked while others work."""


def scheduled(store: Store, *keys: str, due: In = LATER) -> None:
    store.schedule([Request(TaskRef(KIND, key), due) for key in keys])


def leased(store: Store, holder: str = "w") -> Lease:
    scheduled(store, REF.key, due=In(0))
    [lease] = store.claim([KIND], limit=1, lease_ms=LEASE_MS, holder=holder).leases
    return lease


def died(store: Store) -> None:
    assert store.settle([Settlement(leased(store), Dead("broken"))]) == [SettleResult.SETTLED]


def test_every_verb_of_the_contract_is_hit() -> None:
    verbs = Store.__abstractmethods__ - NOT_ASKED

    assert {f"test_{verb}" for verb in verbs} <= set(globals())


def test_schedule(hit: Hit) -> None:
    for world in hit("schedule"):
        [answer] = world.client.schedule([Request(REF, LATER)])
        world.arrived()

        assert answer.status is ScheduleStatus.CREATED
        # A try that acted once more would have given the task another revision.
        [task] = world.direct.get([REF])
        assert task is not None
        assert (task.revision, task.due) == (answer.revision, answer.due)


def test_reschedule(hit: Hit) -> None:
    for world in hit("reschedule"):
        scheduled(world.direct, REF.key)
        [before] = world.direct.get([REF])
        assert before is not None

        [answer] = world.client.reschedule([Move(REF, By(1_000))])
        world.arrived()

        assert answer.status is MoveStatus.MOVED
        [task] = world.direct.get([REF])
        assert task is not None
        assert task.revision == answer.revision > before.revision
        assert task.due == answer.due == before.due + 1_000


def test_cancel(hit: Hit) -> None:
    for world in hit("cancel"):
        scheduled(world.direct, REF.key)

        [answer] = world.client.cancel([Cancellation(REF)])
        scheduled(world.direct, REF.key)
        world.arrived()

        assert answer is CancelResult.CANCELLED
        # What was scheduled after the answer is not cancelled by a try that comes late.
        assert world.left().scheduled == 1


def test_revive(hit: Hit) -> None:
    for world in hit("revive"):
        died(world.direct)

        [answer] = world.client.revive([DeadRef(REF)])
        world.arrived()

        assert answer is ReviveResult.REVIVED
        assert (world.left().scheduled, world.left().dead) == (1, 0)


def test_purge(hit: Hit) -> None:
    for world in hit("purge"):
        died(world.direct)
        died(world.direct)

        [answer] = world.client.purge([DeadRef(REF)])
        world.arrived()

        assert answer is True
        assert world.left().dead == 1


def test_pause(hit: Hit) -> None:
    for world in hit("pause"):
        was_paused = world.client.pause(KIND, paused=True)
        world.direct.pause(KIND, False)
        world.arrived()

        assert was_paused is False
        assert world.left().paused is False


def test_claim(hit: Hit) -> None:
    for world in hit("claim"):
        scheduled(world.direct, "1", "2", "3", due=In(0))

        def claim(store: Store, holder: str = "w") -> list[Lease]:
            return store.claim([KIND], limit=2, lease_ms=LEASE_MS, holder=holder, call=1).leases

        leases = world.repeat(lambda: claim(world.store))
        world.arrived()

        # A repeat may bring less than there is room for, where the first try got half way.
        assert 1 <= len(leases) <= 2
        # Nothing is leased to nobody: what is leased is what the holder knows of.
        assert (world.left().leased, world.left().scheduled) == (len(leases), 3 - len(leases))
        assert claim(world.direct) == leases
        assert len(claim(world.direct, "other")) == 3 - len(leases)


def test_renew(hit: Hit) -> None:
    for world in hit("renew"):
        lease = leased(world.direct)

        answers = world.repeat(lambda: world.store.renew([lease], lease_ms=LEASE_MS))
        world.arrived()

        assert answers == [RenewResult.RENEWED]
        assert world.direct.settle([Settlement(lease, Dead("end"))]) == [SettleResult.SETTLED]


def test_settle(hit: Hit) -> None:
    for world in hit("settle"):
        outcomes = [Settlement(leased(world.direct), Retry(LATER, "failed"))]

        answers = world.repeat(lambda: world.store.settle(outcomes, call="c"))
        world.arrived()

        assert answers == [SettleResult.SETTLED]
        [task] = world.direct.get([REF])
        assert task is not None
        assert (task.attempt, task.lost, task.state) == (1, 0, TaskState.SCHEDULED)


def test_get(hit: Hit) -> None:
    for world in hit("get"):
        scheduled(world.direct, REF.key)

        found = world.client.get(REF)

        assert [found] == world.direct.get([REF])
        assert found is not None


def test_scan(hit: Hit) -> None:
    for world in hit("scan"):
        scheduled(world.direct, "1", "2", "3")

        page = world.repeat(lambda: world.store.scan(Filter(), limit=2))

        assert len(page.tasks) == 2
        assert page == world.direct.scan(Filter(), limit=2)


def test_counts(hit: Hit) -> None:
    for world in hit("counts"):
        scheduled(world.direct, "1", "2", "3")

        counts = world.repeat(world.store.counts)

        assert counts == world.direct.counts()
        assert counts[KIND].scheduled == 3


def test_forecast(hit: Hit) -> None:
    for world in hit("forecast"):
        scheduled(world.direct, "1", "2")

        def ask() -> list[int]:
            return world.store.forecast(bucket_ms=7_200_000, buckets=2)

        assert world.repeat(ask) == [2, 0]


# ---- the control


@pytest.mark.parametrize("verb", REMEMBERED)
def test_a_medium_that_forgets_its_calls_is_found_out(medium: Medium, verb: str) -> None:
    with pytest.raises(AssertionError):
        globals()[f"test_{verb}"](lambda verb: worlds(medium, verb, Forgetful))


# ---- for longer than the caller is patient


def test_a_write_that_gets_no_reply_for_too_long_is_an_unknown_outcome(world: World) -> None:
    world.client._retry_for_ms = 100
    world.proxy.refuse()
    world.proxy.cut_all()

    with pytest.raises(UnknownOutcomeError, match=r"no answer for 0\.1 s: "):
        world.client.schedule([Request(REF, LATER)])

    world.proxy.heal()
    [answer] = patiently(lambda: world.client.schedule([Request(REF, LATER)]))
    assert answer.status is ScheduleStatus.CREATED


def test_a_read_that_gets_no_reply_for_too_long_is_an_error(world: World) -> None:
    world.client._retry_for_ms = 100
    world.proxy.refuse()
    world.proxy.cut_all()

    with pytest.raises(StoreUnavailableError, match="refused"):
        world.client.get(REF)

    world.proxy.heal()
    assert patiently(lambda: world.client.get(REF)) is None


def test_a_batch_in_chunks_says_how_far_it_came(patient_world: World) -> None:
    world = patient_world
    world.client._retry_for_ms = 100
    requests = [Request(TaskRef(KIND, str(n)), LATER) for n in range(600)]
    patiently(lambda: world.client.schedule(requests[:500]))
    world.proxy.arm(Phase.DELAY_REPLY, ms=1, only=world.is_about("schedule"))
    world.proxy.arm(Phase.REFUSE, only=world.is_about("schedule"))

    with pytest.raises(UnknownOutcomeError) as caught:
        world.client.schedule(requests)

    assert len(caught.value.answers) == 500
    assert world.left().scheduled == 500
