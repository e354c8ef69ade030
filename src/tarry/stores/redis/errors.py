"""From redis-py's errors to tarry's: what happened, what was not changed, what to do next."""

from redis import exceptions as redis

from tarry.errors import StoreError, StoreFullError, StoreRefusedError, StoreUnavailableError

_PASSING = ("CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY", "TRYAGAIN")
"""Words of refusals that pass by themselves: a failover, a start, a move of slots."""
_TLS = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")


def translate(error: Exception, where: str, *, failover: bool = False) -> StoreError:
    """Return *error* in tarry's words; *failover*: another server may soon take over."""
    said = str(error)
    if isinstance(error, redis.InvalidResponse):
        return StoreRefusedError(
            f"what answers at {where} is no Redis: it does not speak its protocol; "
            "nothing was written; look at the host and port of the store's URL"
        )
    if isinstance(error, redis.AuthenticationError | redis.NoPermissionError):
        return StoreRefusedError(
            f"{where} refused the user or password, or does not allow what tarry needs: {said}; "
            "nothing was written"
        )
    if any(word in said for word in _TLS):
        return StoreRefusedError(
            f"{where} was reached, but not by TLS that can be trusted: {said}; nothing was "
            "written; name the authority with ssl_ca_certs=, or write redis:// for one without TLS"
        )
    if isinstance(error, redis.OutOfMemoryError) or "OOM " in said:
        return StoreFullError(
            f"{where} is out of memory and refused the write, of which nothing was done; "
            "raise its maxmemory, or let workers run what is due"
        )
    if "MISCONF" in said:
        return StoreFullError(
            f"{where} cannot write to its disk and refuses writes; nothing of this one was "
            f"done; its words: {said}"
        )
    read_only = isinstance(error, redis.ReadOnlyError) or "READONLY" in said
    if read_only and not failover:
        return StoreRefusedError(
            f"{where} is a read-only replica; nothing was written; name the primary in the "
            "store's URL, or its sentinels with redis+sentinel://"
        )
    if read_only or _is_passing(error, said):
        return StoreUnavailableError(f"{where} did not answer: {said or type(error).__name__}")
    return StoreRefusedError(f"{where} refused the call: {said}")


def _is_passing(error: Exception, said: str) -> bool:
    gone = (
        redis.ClusterDownError,
        redis.ConnectionError,
        redis.MasterDownError,
        redis.TimeoutError,
        redis.TryAgainError,
        OSError,
    )
    return isinstance(error, gone) or any(word in said for word in _PASSING)
