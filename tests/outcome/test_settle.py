"""Outcomes are recorded in batches, and kept until the store takes them."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tarry.answers import SettleResult
from tarry.attempt import DONE
from tarry.due import In
from tarry.errors import StoreUnavailableError
from tarry.lease import Lease
from tarry.outcome.settle import Settler
from tarry.request import Request, Settlement
from tarry.runtime import ThreadRuntime
from tarry.stores.memory import MemoryStore
from tarry.task import TaskRef


class Store(MemoryStore):
    """Counts settle calls, waits for permission, and fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.failures = 0
        self.poison: set[str] = set()
        """Keys whose settlement fails as nobody expects, with all that is settled beside it."""
        self.gate = threading.Event()
        self.gate.set()

    def settle(self, settlements: Sequence[Settlement], *, call: str = "") -> list[SettleResult]:
        assert self.gate.wait(5)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("gone")
        if self.poison.intersection(settlement.lease.ref.key for settlement in settlements):
            raise RuntimeError("a driver's own error")
        self.sizes.append(len(settlements))
        return super().settle(settlements, call=call)

    def leased(self, count: int) -> list[Lease]:
        self.schedule([Request(TaskRef("k", str(n)), In(0)) for n in range(count)])
        return self.claim(["k"], limit=count, lease_ms=60_000, holder="w").leases


class Kit:
    def __init__(self) -> None:
        self.store = Store()
        self.answers: list[SettleResult] = []
        self.given_up: list[str] = []
        self.troubles: list[float] = []
        self.settler = Settler(
            self.store,
            ThreadRuntime(threads=1),
            lambda _, answer: self.answers.append(answer),
            lambda settlement: self.given_up.append(settlement.lease.ref.key),
            self._trouble,
        )

    def _trouble(self, error: Exception, pause: float) -> None:
        assert isinstance(error, StoreUnavailableError | RuntimeError)
        self.troubles.append(pause)


def test_what_ends_while_a_settlement_is_under_way_is_settled_together() -> None:
    kit = Kit()
    leases = kit.store.leased(1_200)
    kit.store.gate.clear()

    async def main() -> None:
        kit.settler.add(Settlement(leases[0], DONE))
        await asyncio.sleep(0)
        for lease in leases[1:]:
            kit.settler.add(Settlement(lease, DONE))
        assert kit.settler.waiting == 1_199
        kit.store.gate.set()
        await asyncio.wait_for(kit.settler.drain(), 5)

    asyncio.run(main())

    assert kit.store.sizes == [1, 500, 500, 199]
    assert kit.answers == [SettleResult.SETTLED] * 1_200
    assert kit.settler.waiting == 0


def test_nothing_to_settle_is_settled_at_once() -> None:
    asyncio.run(asyncio.wait_for(Kit().settler.drain(), 1))


def test_a_store_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    [lease] = kit.store.leased(1)
    kit.store.failures = 9
    slept: list[float] = []
    real = asyncio.sleep

    async def no_time(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    async def main() -> None:
        kit.settler.add(Settlement(lease, DONE))
        await asyncio.wait_for(kit.settler.drain(), 5)

    monkeypatch.setattr(asyncio, "sleep", no_time)
    asyncio.run(main())

    assert kit.answers == [SettleResult.SETTLED]
    assert slept == kit.troubles == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_what_cannot_be_settled_is_given_up_and_harms_no_other() -> None:
    kit = Kit()
    leases = kit.store.leased(5)
    kit.store.poison = {"2"}

    async def main() -> None:
        for lease in leases:
            kit.settler.add(Settlement(lease, DONE))
        await asyncio.wait_for(kit.settler.drain(), 5)

    asyncio.run(main())

    assert kit.given_up == ["2"]
    assert kit.answers == [SettleResult.SETTLED] * 4
    assert kit.settler.waiting == 0


def test_a_late_settlement_is_fenced() -> None:
    kit = Kit()
    [lease] = kit.store.leased(1)

    async def main() -> None:
        kit.settler.add(Settlement(lease, DONE))
        kit.settler.add(Settlement(lease, DONE))
        await kit.settler.drain()

    asyncio.run(main())

    assert kit.answers == [SettleResult.SETTLED, SettleResult.LEASE_LOST]
