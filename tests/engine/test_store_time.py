"""The store's time is learned from its answers, and never thought to be later than it is."""

from tarry.engine.store_time import StoreTime

MS = 1_000_000
START_US = 1_750_000_000_000_000


class Asking:
    """A store whose clock is *ahead_us* of the worker's, asked over ways of different length."""

    def __init__(self) -> None:
        self.time = StoreTime()
        self.ahead_us = START_US
        self.elapsed_ns = 0

    def ask(self, there_ms: float = 0, back_ms: float = 0) -> None:
        sent = self.elapsed_ns
        store_us = int(sent / 1_000 + there_ms * 1_000) + self.ahead_us
        self.elapsed_ns = sent + int((there_ms + back_ms) * MS)
        self.time.observe(store_us, sent_ns=sent, arrived_ns=self.elapsed_ns)

    def error_us(self) -> int:
        """Return by how much the store is thought to be behind its real time."""
        return self.elapsed_ns // 1_000 + self.ahead_us - self.time.now_us(self.elapsed_ns)


def test_a_quick_answer_tells_the_time() -> None:
    asking = Asking()

    asking.ask()

    assert asking.error_us() == 0


def test_the_way_back_is_not_known() -> None:
    asking = Asking()

    asking.ask(there_ms=2, back_ms=3)

    assert asking.error_us() == 3_000


def test_the_quickest_answer_counts() -> None:
    asking = Asking()
    asking.ask(back_ms=9)
    asking.ask(back_ms=1)

    asking.ask(there_ms=5, back_ms=7)

    assert asking.error_us() == 1_001


def test_a_slow_answer_is_no_step_back_however_slow() -> None:
    asking = Asking()
    asking.ask(back_ms=1)

    asking.ask(back_ms=10_000)

    assert asking.error_us() == 1_001


def test_a_step_back_is_noticed_at_once() -> None:
    asking = Asking()
    asking.ask()
    asking.ahead_us -= 5_000

    asking.ask(back_ms=1)

    assert asking.error_us() == 1_000


def test_a_step_forward_is_noticed_at_once() -> None:
    asking = Asking()
    asking.ask()
    asking.ahead_us += 3_600_000_000

    asking.ask(back_ms=1)

    assert asking.error_us() == 1_000


def test_a_slow_drift_is_followed() -> None:
    asking = Asking()
    asking.ask()
    for _ in range(100):
        asking.ahead_us -= 1
        asking.ask(there_ms=1, back_ms=1)

    assert 0 <= asking.error_us() <= 1_000


def test_it_is_never_ahead_of_the_store() -> None:
    asking = Asking()
    for there, back in [(0, 0), (3, 1), (0, 0), (0, 2), (7, 0), (0, 0)]:
        asking.ask(there, back)

        assert asking.error_us() >= 0


def test_nothing_is_known_before_the_first_answer() -> None:
    assert StoreTime().now_us(5_000) == 5
