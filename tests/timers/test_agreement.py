"""All structures agree with a sorted list, whatever is armed, disarmed and missed."""

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.timers.kit import STRUCTURES, Make

from tarry.timers import Timer, Timers

WINDOW = 2**24
LAST = 2**63 - 1

# Boundaries of slots, windows, levels and rounds, and what lies around and far behind them.
NEAR = st.sampled_from([0, 1, 9, 10, 11, 39, 40, 41, WINDOW - 1, WINDOW, WINDOW + 1])
SPANS = st.one_of(
    NEAR,
    st.integers(0, 100),
    st.integers(0, 40 * WINDOW),
    st.builds(
        lambda width, off: max(width + off, 0),
        st.sampled_from([WINDOW * 1023, *(WINDOW * 1024 * 16**level for level in range(7))]),
        st.integers(-2, 2) | st.integers(-WINDOW * 20, WINDOW * 20),
    ),
    st.integers(0, 10**11),
    st.integers(0, 3_200_000_000_000_000_000),
)
STARTS = st.sampled_from([0, 5, WINDOW * 1023 + 3, 10**15 + 7, -(10**12)])


class Arm(NamedTuple):
    ahead: int


class ArmLike(NamedTuple):
    """Arm at the due of another."""

    which: int


class Disarm(NamedTuple):
    which: int


class Rearm(NamedTuple):
    which: int
    ahead: int


class Advance(NamedTuple):
    by: int
    limit: int | None


class Step(NamedTuple):
    """Let time step back, and look."""

    back: int


WHICH = st.integers(0, 30)
STEPS = st.one_of(
    st.builds(Arm, SPANS),
    st.builds(Arm, SPANS),
    st.builds(Arm, st.integers(-50, 0)),
    st.builds(ArmLike, WHICH),
    st.builds(Disarm, WHICH),
    st.builds(Rearm, WHICH, SPANS),
    st.builds(Advance, SPANS, st.none() | st.integers(0, 4)),
    st.builds(Step, st.integers(0, 100)),
)


class Model:
    """The same timers as a list that is sorted whenever somebody asks."""

    def __init__(self) -> None:
        self.armed: dict[int, tuple[int, int]] = {}
        self._orders = 0

    def arm(self, name: int, due: int) -> None:
        self._orders += 1
        self.armed[name] = (due, self._orders)

    def advance(self, now: int, limit: int | None) -> list[int]:
        due = sorted((turn, name) for name, turn in self.armed.items() if turn[0] <= now)
        names = [name for _, name in due[:limit]]
        for name in names:
            del self.armed[name]
        return names

    @property
    def next_due(self) -> int | None:
        return min(due for due, _ in self.armed.values()) if self.armed else None


def run(timers: Timers[int], now: int, steps: list[Any]) -> None:
    """Do the steps on timers and model, and compare them after each."""
    model, handles = Model(), list[Timer[int]]()
    for step in steps:
        match step:
            case Arm(ahead):
                due = min(now + ahead, LAST)
                handles.append(timers.arm(due, len(handles)))
                model.arm(len(handles) - 1, due)
            case ArmLike(which) if handles:
                due = handles[which % len(handles)].due
                handles.append(timers.arm(due, len(handles)))
                model.arm(len(handles) - 1, due)
            case Disarm(which) if handles:
                name = which % len(handles)
                assert handles[name].disarm() is (model.armed.pop(name, None) is not None)
            case Rearm(which, ahead) if handles:
                name, due = which % len(handles), min(now + ahead, LAST)
                assert handles[name].rearm(due) is (name in model.armed)
                if name in model.armed:
                    model.arm(name, due)
            case Advance(by, limit):
                now = min(now + by, LAST)
                assert timers.advance(now, limit) == model.advance(now, limit)
            case Step(back):
                assert timers.advance(now - back) == model.advance(now - back, None)
            case _:
                pass
        agree(timers, model, handles)
    assert timers.clear() == model.advance(LAST, None)
    assert len(timers) == 0


def agree(timers: Timers[int], model: Model, handles: list[Timer[int]]) -> None:
    assert len(timers) == len(model.armed)
    assert timers.next_due == model.next_due
    if model.armed:
        assert timers.peek() == min(model.armed, key=lambda name: model.armed[name])
    for name, handle in enumerate(handles):
        assert handle.armed is (name in model.armed)
        assert not handle.armed or handle.due == model.armed[name][0]


@pytest.mark.parametrize("structure", sorted(STRUCTURES))
@settings(max_examples=150, deadline=None)
@given(now=STARTS, steps=st.lists(STEPS, max_size=40))
@example(now=0, steps=[Arm(WINDOW * 1024), Advance(WINDOW, None), ArmLike(0), Advance(10**12, 1)])
@example(now=25, steps=[Arm(22), Arm(50), Advance(47, None), Advance(3, None)])
def test_a_structure_agrees_with_a_sorted_list(structure: str, now: int, steps: list[Any]) -> None:
    run(STRUCTURES[structure](now), now, steps)


def test_many_timers_fire_in_order_over_an_hour(make: Make) -> None:
    timers, second, count = make(), 10**9, 3_000
    dues = [n * 7_919 % 3_600 * second + n % 7 for n in range(count)]
    timers.arm_many(dues, range(count))

    fired = [name for now in range(0, 3_601 * second, 37 * second) for name in timers.advance(now)]
    fired += timers.advance(3_601 * second)

    assert fired == sorted(range(count), key=lambda name: (dues[name], name))


def test_a_crowd_at_one_instant_fires_in_the_order_it_was_armed(make: Make) -> None:
    """Armed from near and from far, so that they come over different levels."""
    timers, due = make(), WINDOW * 5_000
    first = [timers.arm(due, n) for n in range(300)]
    assert timers.advance(due - WINDOW * 900) == []
    second = [timers.arm(due, 300 + n) for n in range(300)]
    assert timers.advance(due - 1) == []
    third = [timers.arm(due, 600 + n) for n in range(100)]

    assert timers.advance(due) == list(range(700))
    assert not any(timer.armed for timer in [*first, *second, *third])
