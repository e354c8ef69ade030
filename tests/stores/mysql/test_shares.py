"""Shares: how a claim is dealt out among lanes, whatever is committed between its looks."""

from tarry.stores.mysql.claiming import _Shares

FIRST, OTHER = 1, 2


def row(place: int, due: int) -> tuple[str]:
    return (f"{place},{due},0",)


def test_what_is_taken_is_not_taken_again_when_something_earlier_comes_in_between() -> None:
    shares = _Shares([FIRST, OTHER], 4, 0)
    shares.add(FIRST, [row(10, 100), row(11, 101)])
    shares.add(OTHER, [])

    # Task 12, due at 99, was committed meanwhile: behind an offset of two there is 11 once more.
    shares.add_more(FIRST, [row(11, 101), row(13, 103)])
    shares.fill()

    assert [found for _, found in shares.chosen] == [row(10, 100), row(11, 101), row(13, 103)]
