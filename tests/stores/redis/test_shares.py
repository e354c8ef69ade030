"""How a claim's limit is shared over shards."""

from hypothesis import given
from hypothesis import strategies as st

from tarry.stores.redis.store import even, filled

limits = st.integers(0, 2_000)
left = st.dictionaries(st.integers(0, 15), st.integers(1, 300), min_size=1)


@given(limit=limits, shards=st.integers(1, 16), turn=st.integers(0, 100))
def test_a_limit_is_shared_evenly(limit: int, shards: int, turn: int) -> None:
    shares = even(limit, shards, turn)

    assert list(shares) == list(range(shards))
    assert sum(shares.values()) == limit
    assert max(shares.values()) - min(shares.values()) <= 1


def test_every_shard_has_its_turn() -> None:
    first = [max(even(1, 4, turn).items(), key=lambda share: share[1])[0] for turn in range(4)]

    assert sorted(first) == [0, 1, 2, 3]


@given(limit=limits, left=left)
def test_the_rest_goes_where_something_is_left(limit: int, left: dict[int, int]) -> None:
    shares = filled(limit, left)

    assert sum(shares.values()) == min(limit, sum(left.values()))
    assert all(0 < share <= left[shard] for shard, share in shares.items())
