"""Payloads: from a handler's arguments to the bytes a store keeps, and back."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, get_type_hints

import msgspec

from tarry.due import shown
from tarry.errors import HandlerError, PayloadError

PAYLOAD_LIMIT = 256 * 1024
"""Payload and headers together may have this many bytes unless the app says otherwise."""

_encode = msgspec.json.Encoder().encode


class Codec(Protocol):
    """Turns a payload's JSON into what is stored and back, for example to encrypt it."""

    def encode(self, data: bytes) -> bytes:
        """Return what the store keeps for *data*."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Return what `encode` was given; raises if *data* was tampered with."""
        ...


class Plain:
    """Keeps payloads as the JSON they are, readable by an operator."""

    def encode(self, data: bytes) -> bytes:
        """Return *data* as it is."""
        return data

    def decode(self, data: bytes) -> bytes:
        """Return *data* as it is."""
        return data


def encode(payload: object) -> bytes:
    """Return the JSON of a payload."""
    try:
        return _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"payload and headers are kept as JSON: {error}; nothing was written"
        raise PayloadError(message) from error


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Return the bytes of headers; none are no bytes."""
    if not headers:
        return b""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            message = (
                f"headers are text to text; {shown(name)}: {shown(value)} is not; "
                "nothing was written"
            )
            raise PayloadError(message)
    return encode(dict(headers))


def decode_headers(data: bytes) -> dict[str, str]:
    """Return headers from the bytes a store kept."""
    if not data:
        return {}
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"the headers cannot be read: {error}"
        raise PayloadError(message) from error


def check_size(payload: bytes, headers: bytes, limit: int) -> None:
    """Raise if a task is larger than *limit* bytes."""
    size = len(payload) + len(headers)
    if size > limit:
        message = (
            f"payload and headers have {size:,} bytes, more than the {limit:,} allowed; nothing "
            "was written; keep the data elsewhere and schedule its id"
        )
        raise PayloadError(message)


class Arguments:
    """The arguments a handler takes: checked when a task is scheduled, decoded when it runs.

    Checking is a round trip: what is encoded is decoded again as the worker will decode it, so
    that nothing is accepted that could not run.
    """

    def __init__(self, fn: Callable[..., object], *, skip_first: bool) -> None:
        self._fn = fn
        parameters = list(inspect.signature(fn).parameters.values())[1 if skip_first else 0 :]
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                message = (
                    f"handler {fn.__qualname__} takes {parameter}: a task's arguments have names; "
                    "give each its own parameter"
                )
                raise HandlerError(message)
        self._parameters = parameters
        self.names = tuple(parameter.name for parameter in parameters)
        self._known = frozenset(self.names)
        self.positional = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self.required = frozenset(p.name for p in parameters if p.default is p.empty)
        self._strict: msgspec.json.Decoder[Any] | None = None
        self._lenient: msgspec.json.Decoder[Any] | None = None

    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """Return arguments by name."""
        if not args and kwargs.keys() <= self._known:
            values = kwargs
        else:
            if len(args) > len(self.positional):
                most = len(self.positional)
                message = f"{self._name()} takes {most} arguments, {len(args)} given"
                raise PayloadError(message)
            values = dict(zip(self.positional, args, strict=False))
            for name, value in kwargs.items():
                if name not in self._known:
                    message = f"{self._name()} has no argument {name!r}; it takes {self._takes()}"
                    raise PayloadError(message)
                if name in values:
                    message = f"{self._name()} got argument {name!r} twice"
                    raise PayloadError(message)
                values[name] = value
        if not self.required <= values.keys():
            missing = self.required - values.keys()
            message = f"{self._name()} needs {', '.join(sorted(missing))}; nothing was written"
            raise PayloadError(message)
        return values

    def encode(self, values: dict[str, object]) -> bytes:
        """Return the payload of *values*, checked against the handler's hints."""
        data = encode(values)
        try:
            self._decoder(strict=True).decode(data)
        except msgspec.ValidationError as error:
            message = f"{self._name()}: {error}; nothing was written"
            raise PayloadError(message) from error
        return data

    def decode(self, data: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the arguments in *data*, and the names of fields the handler does not know."""
        unknown: tuple[str, ...] = ()
        try:
            try:
                found = self._decoder(strict=True).decode(data)
            except msgspec.ValidationError:
                found = self._decoder(strict=False).decode(data)
                fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
                unknown = tuple(name for name in fields if name not in self._known)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            message = f"the payload no longer fits {self._name()}: {error}"
            raise PayloadError(message) from error
        values = {}
        for name in self.names:
            value = getattr(found, name)
            if value is not msgspec.UNSET:
                values[name] = value
        return values, unknown

    def _decoder(self, *, strict: bool) -> "msgspec.json.Decoder[Any]":
        if self._strict is None or self._lenient is None:
            fields = self._fields()
            name = self._fn.__name__
            try:
                self._strict = msgspec.json.Decoder(
                    msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
                )
                self._lenient = msgspec.json.Decoder(msgspec.defstruct(name, fields, kw_only=True))
            except TypeError as error:
                message = f"{self._name()}: its hints cannot be kept as JSON: {error}"
                raise HandlerError(message) from error
        return self._strict if strict else self._lenient

    def _fields(self) -> list[Any]:
        try:
            hints = get_type_hints(self._fn, include_extras=True)
        except NameError as error:
            message = f"{self._name()}: its hints cannot be read: {error}"
            raise HandlerError(message) from error
        fields: list[Any] = []
        for parameter in self._parameters:
            hint = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                fields.append((parameter.name, hint))
            else:
                fields.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
        return fields

    def _name(self) -> str:
        return f"handler {self._fn.__qualname__}"

    def _takes(self) -> str:
        return ", ".join(self.names) or "none"
