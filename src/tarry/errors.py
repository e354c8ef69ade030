"""Every error tarry raises, as one tree.

TarryError
├── WhenError               a time that cannot be read
├── RefError                a namespace, kind or key that is not allowed
├── PayloadError            arguments that do not fit, or are too large
├── HandlerError            a handler or policy that cannot work as declared
├── ConflictError           `on_conflict="fail"` or `if_revision` was not met
├── CursorError             a cursor that no page of a scan answered
├── ConfigError             settings that cannot be used
├── UnsupportedError        the medium cannot do this verb
├── TransactionError        the transaction cannot be joined as it is
├── LeaseLostError          the lease ran out before `ctx.settle(tx=…)`
├── TimersStoppedError      timers that were stopped cannot be armed
├── WorkerError             the worker cannot go on
└── StoreError              something about the medium
    ├── StoreUrlError           the URL cannot be used
    ├── DriverMissingError      the medium's driver is not installed
    ├── StoreRefusedError       the medium is there, but must not be used
    │   ├── SchemaVersionError      written by a newer tarry
    │   └── ForeignFileError        not a tarry database, or a damaged one
    ├── StoreFullError          no room to write; nothing was written
    ├── StoreUnavailableError   no answer; try again later
    │   └── StoreBusyError          others held the medium for too long; nothing was written
    ├── StoreClosedError        used after close
    └── UnknownOutcomeError     a write got no answer: it may or may not have happened
"""

from collections.abc import Sequence


class TarryError(Exception):
    """Something tarry was asked to do did not happen; the message says what was left unchanged."""


class WhenError(TarryError, ValueError):
    """A time or duration that cannot be read; the message shows what is accepted."""


class RefError(TarryError, ValueError):
    """A namespace, kind or key that is not allowed; nothing was written."""


class PayloadError(TarryError, ValueError):
    """Arguments that do not fit, cannot be encoded or are too large; nothing was written."""


class HandlerError(TarryError, TypeError):
    """A handler, key, policy or rule that cannot work as it was declared."""


class ConflictError(TarryError):
    """A waiting task stood in the way (`on_conflict="fail"`), or `if_revision` did not match.

    The task that was there is unchanged. `answers` holds every answer of the call, in order.
    """

    def __init__(self, message: str, *, answers: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.answers = list(answers)


class CursorError(TarryError, ValueError):
    """A cursor that no page of such a scan answered; nothing was read."""


class ConfigError(TarryError, ValueError):
    """Settings that cannot be used."""


class UnsupportedError(TarryError):
    """The medium cannot do what was asked; nothing was written."""


class TransactionError(TarryError, TypeError):
    """What was given as `tx` is no transaction, or none that can be joined; nothing was written."""


class LeaseLostError(TarryError):
    """The lease ran out before the attempt was settled in the handler's transaction.

    Nothing was written by this call. Another worker may be attempting the task already: let the
    error leave the handler, so that the transaction is rolled back.
    """

    def __init__(self, kind: str, key: str, *, token: int) -> None:
        super().__init__(f"lease {token} on {kind}/{key} is no longer held; roll back")
        self.kind, self.key, self.token = kind, key, token


class TimersStoppedError(TarryError, RuntimeError):
    """Timers that were stopped cannot be armed; nothing was."""


class WorkerError(TarryError):
    """The worker cannot go on."""


class StoreError(TarryError):
    """Something about the medium.

    `answers` holds what earlier chunks of a large batch had already been answered.
    """

    def __init__(self, message: str, *, answers: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.answers = list(answers)

    def __str__(self) -> str:
        said = super().__str__()
        if not self.answers:
            return said
        return f"{said}; the first {len(self.answers):,} of the batch had been written before"


class StoreUrlError(StoreError, ValueError):
    """The store's URL cannot be used."""


class DriverMissingError(StoreError):
    """The driver of the medium is not installed; the message names the extra."""


class StoreRefusedError(StoreError):
    """The medium is there, but must not be used as it is; nothing was written."""


class SchemaVersionError(StoreRefusedError):
    """The store was written by a newer tarry."""


class ForeignFileError(StoreRefusedError):
    """The file is not a tarry database, or it is damaged."""


class StoreFullError(StoreError):
    """The medium has no room; what it refused was not written."""


class StoreUnavailableError(StoreError):
    """The medium did not answer."""


class StoreBusyError(StoreUnavailableError):
    """Others held the medium for too long; nothing was written."""


class StoreClosedError(StoreError):
    """The store was used after `close`."""


class UnknownOutcomeError(StoreError):
    """A write got no answer for as long as it was repeated: it may or may not have happened."""
