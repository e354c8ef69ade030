"""A clock that moves only when a test says so."""

from tarry.testing.clock import START, ManualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()

    assert clock.now() == clock.now() == START
    assert clock.elapsed() == 0


def test_time_passes_on_all_its_hands() -> None:
    clock = ManualClock(1_000)

    clock.advance(250)

    assert (clock.now(), clock.now_us(), clock.elapsed()) == (1_250, 1_250_000, 250_000_000)


def test_a_corrected_calendar_lets_no_time_pass() -> None:
    clock = ManualClock(1_000)

    clock.step(-400)

    assert (clock.now(), clock.elapsed()) == (600, 0)
