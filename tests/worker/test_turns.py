"""Turns: what waits in a worker is taken a kind at a time."""

import threading

import pytest

from tarry.worker.turns import Turns


@pytest.fixture
def turns() -> Turns[str]:
    """Return a queue of words whose kind is their first letter."""
    return Turns(lambda word: word[0], threading.Lock())


def taken(turns: Turns[str]) -> list[str]:
    return list(iter(turns.take, None))


def test_what_came_first_of_a_kind_goes_first(turns: Turns[str]) -> None:
    turns.put(["a1", "a2"])
    turns.put(["a3"])

    assert len(turns) == 3
    assert taken(turns) == ["a1", "a2", "a3"]
    assert len(turns) == 0


def test_a_kind_does_not_wait_for_all_of_another(turns: Turns[str]) -> None:
    turns.put(["a1", "a2", "a3", "b1"])
    turns.put(["a4", "c1", "b2"])

    assert taken(turns) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_who_comes_while_another_kind_is_served_is_next_but_one(turns: Turns[str]) -> None:
    turns.put(["a1", "a2", "a3"])
    first = turns.take()
    turns.put(["b1"])

    assert [first, *taken(turns)] == ["a1", "a2", "b1", "a3"]


def test_a_kind_that_was_empty_takes_its_turn_again(turns: Turns[str]) -> None:
    turns.put(["a1", "b1"])
    assert taken(turns) == ["a1", "b1"]

    turns.put(["b2", "a2", "b3"])

    assert taken(turns) == ["b2", "a2", "b3"]


def test_what_is_unwanted_is_dropped_from_the_front_of_each_kind(turns: Turns[str]) -> None:
    turns.put(["a1", "a3", "a1", "b1", "c2"])

    assert sorted(turns.drop(lambda word: word.endswith("1"))) == ["a1", "b1"]
    assert len(turns) == 3
    assert taken(turns) == ["a3", "c2", "a1"]


def test_everything_can_be_dropped(turns: Turns[str]) -> None:
    turns.put(["a1", "b1", "a2"])

    assert sorted(turns.drop(lambda _: True)) == ["a1", "a2", "b1"]
    assert len(turns) == 0
    assert turns.take() is None


def test_threads_share_it_without_losing_anything(turns: Turns[str]) -> None:
    found: list[list[str]] = [[] for _ in range(4)]
    words = [f"{kind}{n}" for n in range(500) for kind in "abc"]

    def work(mine: list[str]) -> None:
        while len(mine) < 375:
            if (word := turns.take()) is not None:
                mine.append(word)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for word in words:
        turns.put([word])
    for thread in threads:
        thread.join(20)

    assert sorted(word for mine in found for word in mine) == sorted(words)
