"""Layout: how the tasks of a namespace are spread over keys, and which version of that this is.

All keys of a shard begin with ``{namespace:shard}:`` and so lie in one slot of a cluster; what is
behind that is written at the head of each script, above all in ``scripts/parts/lives.lua``. A
namespace's number of shards is fixed when it is first used: a ref must always be found again.
"""

from zlib import crc32

from tarry.task import TaskRef

VERSION = 1
DEFAULT_SHARDS = 1
CLUSTER_SHARDS = 16
MOST_SHARDS = 1_024


def prefix(namespace: str, shard: int) -> str:
    """Return what all keys of a shard begin with."""
    return f"{{{namespace}:{shard}}}:"


def meta(namespace: str) -> str:
    """Return the key that says how the namespace is laid out."""
    return f"{prefix(namespace, 0)}meta"


def shard_of(ref: TaskRef, shards: int) -> int:
    """Return the shard a ref lies in."""
    return crc32(f"{ref.kind}\0{ref.key}".encode()) % shards
