"""Kinds are lanes: how a claim's limit is shared over the kinds that have due tasks (pure)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

L = TypeVar("L")
T = TypeVar("T")


def share(
    lanes: Sequence[L],
    limit: int,
    turn: int,
    take: Callable[[L, int, int], Sequence[T]],
    due: Callable[[T], int],
) -> list[T]:
    """Pick up to *limit* items: an even part of each lane, then the rest by earliest due.

    *take(lane, offset, count)* lists a lane's due items in order. *turn* rotates which lane comes
    first, so that nobody is always the one left out when there are more lanes than places.
    """
    if not lanes or limit <= 0:
        return []
    if len(lanes) == 1:
        return list(take(lanes[0], 0, limit))
    first = turn % len(lanes)
    order = [*lanes[first:], *lanes[:first]][:limit]
    part = limit // len(order)
    chosen: list[T] = []
    full: list[L] = []
    for lane in order:
        got = take(lane, 0, part)
        chosen.extend(got)
        if len(got) == part:
            full.append(lane)
    rest = limit - len(chosen)
    if rest > 0 and full:
        more = [item for lane in full for item in take(lane, part, rest)]
        chosen.extend(sorted(more, key=due)[:rest])
    return chosen
