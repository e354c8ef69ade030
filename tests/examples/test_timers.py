"""The example of a device command in memory; it needs no store."""

from tests.examples.conftest import Load

from tarry.testing.clock import ManualClock
from tarry.timers import CallbackTimers


def test_a_command_times_out_in_memory_too(load: Load) -> None:
    clock = ManualClock()
    timers = CallbackTimers(clock=clock)
    commands = load("iot_command_timeout").Commands(timers)
    commands.send("lamp", 1)
    commands.send("lamp", 2)
    clock.advance(4_999)
    timers.run_due()

    assert commands.acknowledged("lamp", 2)
    clock.advance(1)
    timers.run_due()
    assert commands.lost == ["lamp"]
    assert not commands.acknowledged("lamp", 1)
    assert len(timers) == 0
