"""What many coroutines ask for in one moment is one call of the store."""

import asyncio
import threading
from typing import Any

import pytest
from tests.api.kit import Tap, kinds_waiting

from tarry import CancelResult, Tarry
from tarry.answers import Scheduled
from tarry.api.function import TaskFunction
from tarry.errors import StoreFullError

Order = TaskFunction[Any, Any, Any, Any]
LIMIT = 10


@pytest.fixture
def order(app: Tarry) -> Order:
    @app.task("order.cancel", key="order:{order_id}")
    async def cancel_order(order_id: int, note: str = "") -> None: ...

    return cancel_order


class Gate:
    """Holds the first call of the store until it is opened."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self.entered = threading.Event()
        self.open = threading.Event()
        tap.before = self._wait

    def _wait(self, _verb: str, _items: object) -> None:
        if len(self._tap.calls) == 1:
            self.entered.set()
            assert self.open.wait(LIMIT)

    async def held(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, LIMIT)


def test_a_thousand_callers_need_few_calls(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule", "reschedule", "cancel")

    async def main() -> tuple[list[Scheduled], list[Any], list[CancelResult]]:
        ids = range(1_000)
        return (
            await asyncio.gather(*(order.aschedule("1h", n) for n in ids)),
            await asyncio.gather(*(order.areschedule("2h", n) for n in ids)),
            await asyncio.gather(*(order.acancel(n) for n in ids)),
        )

    scheduled, moved, cancelled = asyncio.run(main())

    assert [answer.ref.key for answer in scheduled] == [f"order:{n}" for n in range(1_000)]
    assert [answer.ref.key for answer in moved] == [f"order:{n}" for n in range(1_000)]
    assert set(cancelled) == {CancelResult.CANCELLED}
    for verb in ("schedule", "reschedule", "cancel"):
        sizes = [size for name, size in tap.calls if name == verb]
        assert sum(sizes) == 1_000
        assert len(sizes) <= 4


def test_what_queues_during_a_call_is_the_next_call(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")
    gate = Gate(tap)

    async def main() -> None:
        first = asyncio.ensure_future(order.aschedule("1h", 0))
        await gate.held()
        rest = [asyncio.ensure_future(order.aschedule("1h", n)) for n in range(1, 31)]
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.wait_for(asyncio.gather(first, *rest), LIMIT)

    asyncio.run(main())

    assert tap.sizes == [1, 30]


def test_a_lone_caller_waits_for_nobody(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")

    async def main() -> None:
        for n in range(3):
            await order.aschedule("1h", n)

    asyncio.run(main())

    assert tap.sizes == [1, 1, 1]


def test_an_error_reaches_every_caller_of_its_batch_and_nobody_else(
    app: Tarry, order: Order
) -> None:
    tap = Tap(app, "schedule")
    gate = Gate(tap)
    wait = tap.before

    def refuse(verb: str, items: Any) -> None:
        wait(verb, items)
        if len(items) > 1:
            raise StoreFullError("no room")

    tap.before = refuse

    async def main() -> list[Any]:
        first = asyncio.ensure_future(order.aschedule("1h", 0))
        await gate.held()
        rest = [asyncio.ensure_future(order.aschedule("1h", n)) for n in range(1, 6)]
        await asyncio.sleep(0)
        gate.open.set()
        answers = await asyncio.gather(first, *rest, return_exceptions=True)
        return [*answers, await order.aschedule("1h", 9)]

    first, *refused, last = asyncio.run(main())

    assert isinstance(first, Scheduled)
    assert len(refused) == 5
    assert all(isinstance(error, StoreFullError) for error in refused)
    assert isinstance(last, Scheduled)


def test_who_was_written_before_the_error_gets_an_answer(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")
    gate = Gate(tap)
    wait = tap.before

    def refuse(verb: str, items: Any) -> None:
        wait(verb, items)
        if len(tap.calls) == 3:
            raise StoreFullError("no room")

    tap.before = refuse

    async def main() -> list[Any]:
        first = asyncio.ensure_future(order.aschedule("1h", 0))
        await gate.held()
        note = "x" * 250_000
        rest = [asyncio.ensure_future(order.aschedule("1h", n, note)) for n in range(1, 9)]
        await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    answers = asyncio.run(main())

    assert tap.sizes == [1, 4, 4], "a batch of 2 MB is two calls"
    written = [answer for answer in answers if isinstance(answer, Scheduled)]
    assert [answer.ref.key for answer in written] == [f"order:{n}" for n in range(5)]
    assert kinds_waiting(app.store) == 5


def test_a_conflict_is_told_to_the_one_it_concerns(app: Tarry, order: Order) -> None:
    order.schedule("1h", 2)
    careful = order.using(on_conflict="fail")

    async def main() -> list[Any]:
        asked = (careful.aschedule("1h", n) for n in range(4))
        return await asyncio.gather(*asked, return_exceptions=True)

    names = [type(answer).__name__ for answer in asyncio.run(main())]

    assert names == ["Scheduled", "Scheduled", "ConflictError", "Scheduled"]


def test_a_caller_that_gives_up_harms_nobody(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")
    gate = Gate(tap)

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(order.aschedule("1h", 0))]
        await gate.held()
        calls += [asyncio.ensure_future(order.aschedule("1h", n)) for n in range(1, 6)]
        await asyncio.sleep(0)
        calls[0].cancel()
        calls[3].cancel()
        await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), LIMIT)

    answers = asyncio.run(main())

    assert [type(answer).__name__ for answer in answers] == [
        "CancelledError",
        "Scheduled",
        "Scheduled",
        "CancelledError",
        "Scheduled",
        "Scheduled",
    ]


def test_the_end_of_a_loop_leaves_no_caller_waiting(app: Tarry, order: Order) -> None:
    tap = Tap(app, "schedule")
    gate = Gate(tap)

    async def main() -> None:
        waiting = asyncio.ensure_future(order.aschedule("1h", 0))
        await gate.held()
        waiting.cancel()

    threading.Timer(0.05, gate.open.set).start()
    asyncio.run(main())

    assert asyncio.run(order.aschedule("1h", 1)).ref.key == "order:1"


def test_two_loops_have_a_batcher_each(app: Tarry, order: Order) -> None:
    answers: list[Scheduled] = []

    def one(start: int) -> None:
        async def main() -> None:
            asked = (order.aschedule("1h", n) for n in range(start, start + 200))
            answers.extend(await asyncio.gather(*asked))

        asyncio.run(main())

    threads = [threading.Thread(target=one, args=(n * 1_000,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    assert len({answer.ref for answer in answers}) == 600
    assert kinds_waiting(app.store) == 600


def test_blocking_verbs_may_be_called_from_many_threads(app: Tarry, order: Order) -> None:
    errors: list[BaseException] = []

    def one(start: int) -> None:
        try:
            for n in range(start, start + 30):
                order.schedule("1h", n)
                assert order.reschedule("2h", n)
                assert order.get(n) is not None
                if n % 2:
                    assert order.cancel(n) is CancelResult.CANCELLED
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n * 1_000,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    assert not errors
    assert kinds_waiting(app.store) == 120


def test_an_app_that_was_closed_opens_again(app: Tarry, order: Order) -> None:
    asyncio.run(order.aschedule("1h", 1))
    app.close()
    app.close()

    assert asyncio.run(order.aschedule("1h", 2)).ref.key == "order:2"
