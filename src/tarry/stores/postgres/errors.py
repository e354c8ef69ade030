"""From what PostgreSQL and libpq say to tarry's errors: what happened, what was not changed."""

from tarry.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)

_STRANGERS = (
    "expected authentication request",
    "expected SASL response",
    "invalid response to SSL negotiation",
    "invalid response to GSSAPI negotiation",
    "lost synchronization with server",
    "unsupported frontend protocol",
    "server sent an error response during SSL exchange",
    "unexpected response from server",
)
_CREDENTIALS = (
    "password authentication failed",
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted to log in",
)
_TLS = ("does not support SSL", "certificate", "SSL error")
_FULL = ("53100", "53200", "53400", "54000")
_PASSING = ("08", "57P", "53300", "58")
"""Beginnings of states that pass by themselves: lost connections, a server that starts or stops."""


def unreached(said: str, where: str) -> StoreError:
    """Return why no connection was made, in tarry's words; *said* is libpq's text."""
    said = " ".join(said.split())
    if any(words in said for words in _STRANGERS):
        return StoreRefusedError(
            f"what answers at {where} is no PostgreSQL: it does not speak its protocol; "
            "nothing was written; look at the host and port of the store's URL"
        )
    if any(words in said for words in _CREDENTIALS):
        return StoreRefusedError(
            f"{where} refused the user or password: {said}; nothing was written"
        )
    if "FATAL" in said and "does not exist" in said:
        return StoreRefusedError(
            f"{where}: {said}; nothing was written; make the role or database, or name another "
            "in the store's URL"
        )
    if any(words in said for words in _TLS):
        return StoreRefusedError(
            f"{where} was reached, but not by TLS that can be trusted: {said}; nothing was "
            "written; see sslmode= and sslrootcert= in libpq's documentation"
        )
    if "session is read-only" in said or "not read-write" in said:
        return StoreUnavailableError(f"{where}: no server takes writes at the moment: {said}")
    return StoreUnavailableError(f"{where} did not answer: {said or 'the connection was lost'}")


def refused(state: str, said: str, where: str, *, several: bool = False) -> StoreError:
    """Return why a statement failed; *state* is its SQLSTATE."""
    said = " ".join(said.split())
    match state:
        case "55P03":
            return StoreBusyError(
                f"{where}: another transaction held a task or kind for too long; nothing was "
                f"written; its words: {said}"
            )
        case "57014":
            return StoreBusyError(
                f"{where} ended the statement because it took too long; nothing was written; "
                f"its words: {said}"
            )
        case "40001" | "40P01":
            return StoreBusyError(
                f"{where}: other transactions stood in the way; nothing was written; "
                f"its words: {said}"
            )
        case "25006":
            if several:
                return StoreUnavailableError(f"{where} takes no writes at the moment: {said}")
            return StoreRefusedError(
                f"{where} is a read-only standby; nothing was written; name the primary in the "
                "store's URL, or all servers and target_session_attrs=read-write"
            )
        case "42501":
            return StoreRefusedError(
                f"{where} does not allow what tarry needs: {said}; nothing was written"
            )
        case "42P01" | "42883" | "3F000":
            return StoreRefusedError(
                f"{where}: tarry's tables or functions are not there any more: {said}; nothing "
                "was written; run `tarry migrate`"
            )
        case _:
            return _other(state, said, where)


def _other(state: str, said: str, where: str) -> StoreError:
    if state in _FULL:
        return StoreFullError(
            f"{where} has no room and refused the write; nothing was written by this call; "
            f"its words: {said}"
        )
    if not state or state.startswith(_PASSING):
        return StoreUnavailableError(f"{where} did not answer: {said or 'no reason was given'}")
    return StoreRefusedError(f"{where} refused the call ({state}): {said}")
