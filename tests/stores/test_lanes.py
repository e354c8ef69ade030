"""A claim's limit is shared over the lanes: evenly first, the rest by earliest due."""

from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tarry.stores.lanes import share

Item = tuple[str, int]


def shared(lanes: dict[str, list[int]], limit: int, turn: int = 0) -> list[Item]:
    def take(lane: str, offset: int, count: int) -> Sequence[Item]:
        return [(lane, due) for due in lanes[lane][offset : offset + count]]

    return share(list(lanes), limit, turn, take, lambda item: item[1])


@pytest.mark.parametrize(
    ("lanes", "limit", "expected"),
    [
        ({}, 5, []),
        ({"a": [1]}, 0, []),
        ({"a": [1]}, -1, []),
        ({"a": [1, 2, 3]}, 2, [("a", 1), ("a", 2)]),
        ({"a": [1, 2, 3], "b": [9]}, 4, [("a", 1), ("a", 2), ("b", 9), ("a", 3)]),
        ({"a": [5, 6], "b": [1, 2]}, 3, [("a", 5), ("b", 1), ("b", 2)]),
        ({"a": [1, 2], "b": [1, 2]}, 4, [("a", 1), ("a", 2), ("b", 1), ("b", 2)]),
        ({"a": [1], "b": [1]}, 9, [("a", 1), ("b", 1)]),
        ({"a": [1], "b": [1], "c": [1]}, 2, [("a", 1), ("b", 1)]),
        ({"a": [1, 2, 3], "b": [4], "c": []}, 3, [("a", 1), ("b", 4), ("a", 2)]),
    ],
)
def test_the_share_of_each_lane(
    lanes: dict[str, list[int]], limit: int, expected: list[Item]
) -> None:
    assert shared(lanes, limit) == expected


def test_the_first_lane_rotates() -> None:
    lanes = {"a": [1, 2], "b": [1, 2], "c": [1, 2]}

    first = [shared(lanes, 1, turn)[0][0] for turn in range(6)]

    assert first == ["a", "b", "c", "a", "b", "c"]


@given(
    st.dictionaries(
        st.sampled_from("abcde"),
        st.lists(st.integers(0, 50), min_size=1, max_size=12).map(sorted),
    ),
    st.integers(0, 40),
    st.integers(0, 10),
)
def test_a_share_is_full_fair_and_in_order(
    lanes: dict[str, list[int]], limit: int, turn: int
) -> None:
    items = shared(lanes, limit, turn)

    assert len(items) == min(limit, sum(map(len, lanes.values())))
    taken = Counter(lane for lane, _ in items)
    for lane, dues in lanes.items():
        assert [due for name, due in items if name == lane] == dues[: taken[lane]]
        assert taken[lane] >= min(len(dues), limit // len(lanes))
