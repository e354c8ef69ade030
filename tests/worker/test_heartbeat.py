"""The heartbeat renews in time, and notices what was lost or cancelled."""

import threading
from collections.abc import Sequence

import pytest

from tarry.answers import RenewResult
from tarry.attempt import DONE
from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.handler import Handler
from tarry.lease import Lease
from tarry.request import Cancellation, Request
from tarry.runtime import ThreadRuntime
from tarry.stores.memory import MemoryStore
from tarry.task import TaskRef
from tarry.testing.clock import ManualClock
from tarry.worker.heartbeat import Heartbeat, Pulse
from tarry.worker.run import Attempt

LEASE_MS = 30_000


class Store(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.sizes: list[int] = []
        self.down = False
        self.renewed = threading.Event()

    def renew(self, leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        self.sizes.append(len(leases))
        if self.down:
            raise StoreUnavailableError("gone")
        answers = super().renew(leases, lease_ms=lease_ms)
        self.renewed.set()
        return answers


class Kit:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store(self.clock)
        self.changes: list[Attempt] = []
        self.troubles: list[tuple[Exception, float]] = []
        self.heartbeat = Heartbeat(
            self.store,
            LEASE_MS,
            ThreadRuntime(clock=self.clock),
            changed=self.changes.append,
            trouble=lambda error, again: self.troubles.append((error, again)),
        )

    def hold(self, count: int = 1) -> list[Attempt]:
        refs = [TaskRef("k", str(n)) for n in range(count)]
        self.store.schedule([Request(ref, In(0)) for ref in refs])
        claimed = self.store.claim(["k"], limit=count, lease_ms=LEASE_MS, holder="w")
        handler = Handler(lambda: None, kind="k")
        attempts = [Attempt(lease, handler, self.clock.elapsed()) for lease in claimed.leases]
        self.heartbeat.hold(attempts)
        return attempts

    def step(self, after_ms: int) -> float:
        self.clock.advance(after_ms)
        return self.heartbeat.step(self.clock.elapsed())


@pytest.fixture
def kit() -> Kit:
    return Kit()


def test_a_young_lease_is_left_alone(kit: Kit) -> None:
    kit.hold()

    kit.step(LEASE_MS // 4 - 1)

    assert sum(kit.store.sizes) == 0


def test_a_lease_is_renewed_after_a_third_of_its_time(kit: Kit) -> None:
    [attempt] = kit.hold()

    for _ in range(20):
        beat = kit.step(LEASE_MS // 3)

        assert beat == pytest.approx(LEASE_MS / 3_000)
        assert kit.heartbeat.alive(attempt, kit.clock.elapsed())

    assert kit.store.sizes == [1] * 20
    assert kit.store.claim(["k"], limit=1, lease_ms=1, holder="x").leases == []
    assert kit.changes == []


def test_many_leases_are_renewed_in_chunks(kit: Kit) -> None:
    kit.hold(1_100)

    kit.step(LEASE_MS // 3)

    assert kit.store.sizes == [500, 500, 100]


def test_what_was_dropped_is_not_renewed(kit: Kit) -> None:
    first, second = kit.hold(2)
    kit.heartbeat.drop(first.lease.token)
    kit.heartbeat.drop(first.lease.token)

    kit.step(LEASE_MS // 3)

    assert kit.store.sizes == [1]
    assert len(kit.heartbeat) == 1
    assert second.confirmed


def test_a_lost_lease_is_noticed(kit: Kit) -> None:
    [attempt] = kit.hold()
    kit.clock.advance(LEASE_MS + 1_000)
    assert kit.store.claim(["k"], limit=1, lease_ms=LEASE_MS, holder="thief").leases

    kit.step(0)

    assert kit.changes == [attempt]
    assert attempt.lost
    assert attempt.asked_to_stop()
    assert not kit.heartbeat.alive(attempt, kit.clock.elapsed())


def test_a_cancelled_attempt_is_noticed_and_keeps_its_lease(kit: Kit) -> None:
    [attempt] = kit.hold()
    kit.store.cancel([Cancellation(attempt.lease.ref)])

    kit.step(LEASE_MS // 3)

    assert kit.changes == [attempt]
    assert attempt.cancelled
    assert attempt.asked_to_stop()
    assert kit.heartbeat.alive(attempt, kit.clock.elapsed())


def test_what_is_settled_while_its_renewal_is_under_way_is_not_lost(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    [attempt] = kit.hold()

    def renew(leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        kit.heartbeat.drop(attempt.lease.token)
        return [RenewResult.LOST]

    monkeypatch.setattr(kit.store, "renew", renew)
    kit.step(LEASE_MS // 3)

    assert kit.changes == []
    assert not attempt.lost


def test_what_its_handler_settles_is_neither_renewed_nor_lost(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is locked until the handler commits, and gone after that."""
    first, second = kit.hold(2)
    first.joined = DONE
    kit.step(LEASE_MS // 3)
    assert kit.store.sizes == [1]
    assert second.confirmed
    assert not first.confirmed

    def renew(leases: Sequence[Lease], *, lease_ms: int) -> list[RenewResult]:
        second.joined = DONE
        return [RenewResult.LOST]

    monkeypatch.setattr(kit.store, "renew", renew)
    kit.step(LEASE_MS // 3)

    assert kit.changes == []
    assert not second.lost
    assert kit.heartbeat.drop(first.lease.token) is first
    assert kit.heartbeat.drop(first.lease.token) is None


def test_a_store_that_does_not_answer_is_asked_again_soon(kit: Kit) -> None:
    [attempt] = kit.hold()
    kit.store.down = True

    assert kit.step(LEASE_MS // 3) <= 1.0
    [(error, again)] = kit.troubles
    assert isinstance(error, StoreUnavailableError)
    assert again <= 1.0
    assert not attempt.lost

    kit.store.down = False
    kit.step(1_000)

    assert kit.heartbeat.alive(attempt, kit.clock.elapsed())
    assert attempt.since == kit.clock.elapsed()


def test_a_lease_that_could_not_be_renewed_is_not_trusted(kit: Kit) -> None:
    [attempt] = kit.hold()
    kit.store.down = True

    kit.step(LEASE_MS)

    assert not kit.heartbeat.alive(attempt, kit.clock.elapsed())


def test_an_old_lease_is_confirmed_once_before_it_starts(kit: Kit) -> None:
    attempts = kit.hold(3)
    attempts[2].started = True
    now = kit.clock.elapsed
    assert not kit.heartbeat.needs_confirm(attempts[0], now())
    kit.clock.advance(51)
    assert kit.heartbeat.needs_confirm(attempts[0], now())

    kit.heartbeat.confirm(now)

    assert kit.store.sizes == [2], "one call for all that has not started"
    assert not kit.heartbeat.needs_confirm(attempts[0], now())
    kit.clock.advance(51)
    assert not kit.heartbeat.needs_confirm(attempts[0], now())


def test_leases_come_and_go_while_it_beats() -> None:
    kit = Kit()
    [attempt] = kit.hold()
    many = [Attempt(attempt.lease, attempt.handler) for _ in range(2_000)]
    stop = threading.Event()
    errors: list[BaseException] = []

    def churn() -> None:
        try:
            while not stop.is_set():
                for number, one in enumerate(many):
                    kit.heartbeat._held[number] = one
                for number in range(len(many)):
                    kit.heartbeat._held.pop(number, None)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(300):
            kit.heartbeat.step(-LEASE_MS * 1_000_000)
    finally:
        stop.set()
        thread.join()
    assert not errors


def test_the_pulse_beats_on_a_thread_until_it_is_stopped() -> None:
    kit = Kit()
    kit.hold()
    kit.clock.advance(LEASE_MS // 3)
    pulse = Pulse(kit.heartbeat, 3, ThreadRuntime(clock=kit.clock))
    thread = threading.Thread(target=pulse.run)

    thread.start()
    assert kit.store.renewed.wait(5)
    pulse.stop()
    thread.join(60)

    assert not thread.is_alive()


# ---- to the nanosecond


def test_a_lease_is_alive_until_the_last_nanosecond(kit: Kit) -> None:
    kit.clock.advance(3_600_000)
    [attempt] = kit.hold()
    end = attempt.since + LEASE_MS * 1_000_000

    assert kit.heartbeat.alive(attempt, end - 1)
    assert not kit.heartbeat.alive(attempt, end)


def test_a_lost_lease_is_not_alive_though_it_has_time_left(kit: Kit) -> None:
    [attempt] = kit.hold()
    attempt.lost = True

    assert not kit.heartbeat.alive(attempt, attempt.since)


def test_a_lease_may_start_unasked_for_50_ms(kit: Kit) -> None:
    kit.clock.advance(3_600_000)
    [attempt] = kit.hold()
    limit = attempt.claimed + 50 * 1_000_000

    assert not kit.heartbeat.needs_confirm(attempt, limit)
    assert kit.heartbeat.needs_confirm(attempt, limit + 1)


def test_what_is_confirmed_is_not_asked_about_again(kit: Kit) -> None:
    kit.hold(2)
    kit.heartbeat.confirm(kit.clock.elapsed)

    kit.heartbeat.confirm(kit.clock.elapsed)

    assert kit.store.sizes == [2]


def test_a_lease_is_renewed_once_a_quarter_of_its_time_is_used(kit: Kit) -> None:
    kit.hold()

    kit.step(LEASE_MS // 4)

    assert kit.store.sizes == [1]


def test_the_pulse_begins_with_a_third_of_the_lease(kit: Kit) -> None:
    pulse = Pulse(kit.heartbeat, LEASE_MS, ThreadRuntime(clock=kit.clock))

    assert pulse._beat == LEASE_MS / 3_000


def test_a_store_that_does_not_answer_a_confirmation_is_told_of(kit: Kit) -> None:
    [attempt] = kit.hold()
    kit.store.down = True

    kit.heartbeat.confirm(kit.clock.elapsed)

    [(error, again)] = kit.troubles
    assert isinstance(error, StoreUnavailableError)
    assert again == 0
    assert not attempt.confirmed
