"""Handlers and the registry kind → handler."""

import inspect
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tarry import backoff
from tarry.backoff import Backoff
from tarry.context import Context
from tarry.due import Duration, duration_ms
from tarry.errors import HandlerError, PayloadError, RefError
from tarry.payload import Arguments
from tarry.recurrence import Rule
from tarry.task import check_key, check_kind


class Handler:
    """A user's function for a kind, with all that was declared about it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        kind: str | None = None,
        key: str | Callable[..., str] | None = None,
        retry: Backoff | None = None,
        timeout: Duration | None = None,
        drop_after: Duration | None = None,
        keep: Duration | None = None,
        concurrency: int | None = None,
        aliases: Sequence[str] = (),
        rule: Rule | None = None,
    ) -> None:
        self.fn = fn
        self.kind = check_kind(kind or fn.__name__)
        self.aliases = tuple(check_kind(alias) for alias in aliases)
        self.is_async = inspect.iscoroutinefunction(fn)
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            message = f"handler {fn.__qualname__} yields: nobody would run it to its end"
            raise HandlerError(message)
        self.wants_context = wants_context(fn)
        self.arguments = Arguments(fn, skip_first=self.wants_context)
        self.key = Key(self, key)
        self.retry = retry or backoff.DEFAULT
        self.timeout_ms = _duration(timeout)
        self.drop_after_ms = _duration(drop_after)
        self.keep_ms = _duration(keep) or 0
        self.concurrency = concurrency
        self.rule = rule
        if concurrency is not None and concurrency < 1:
            message = f"concurrency of {self.kind} is at least 1, not {concurrency}"
            raise HandlerError(message)
        if rule is not None and self.arguments.required:
            needed = ", ".join(sorted(self.arguments.required))
            message = f"{self.kind} recurs, so that nobody gives it {needed}: add defaults"
            raise HandlerError(message)

    @property
    def series_key(self) -> str:
        """The key under which the declared occurrences of this handler wait."""
        return self.key.make({}) if self.key.given else self.kind


class Key:
    """How a handler's key is made: by a template, a function, or by hand."""

    def __init__(self, handler: Handler, key: str | Callable[..., str] | None) -> None:
        self._kind = handler.kind
        self.given = key is not None
        self._template: str | None = None
        self._function: Callable[..., str] | None = None
        self.fields: tuple[str, ...] = ()
        if isinstance(key, str):
            self._template = key
            self.fields = _template_fields(handler, key)
        elif key is not None:
            self._function = key
            self.fields = tuple(inspect.signature(key).parameters)
            unknown = [name for name in self.fields if name not in handler.arguments.names]
            if unknown:
                message = (
                    f"the key function of {self._kind} takes {', '.join(unknown)}, "
                    "which the handler does not"
                )
                raise HandlerError(message)
        self._wanted = frozenset(self.fields)
        self._defaults = _defaults(handler.fn)
        if self._function is not None:
            self._defaults = {**_defaults(self._function), **self._defaults}

    def make(self, values: Mapping[str, object]) -> str:
        """Return the key for arguments by name; defaults of the handler fill in."""
        if self._template is not None and values.keys() >= self._wanted:
            return self._formatted(self._template, values)
        chosen = {}
        for name in self.fields:
            if name in values:
                chosen[name] = values[name]
            elif name in self._defaults:
                chosen[name] = self._defaults[name]
            else:
                message = f"the key of {self._kind} needs {name}"
                raise PayloadError(message)
        if self._function is not None:
            return check_key(self._function(**chosen))
        assert self._template is not None  # noqa: S101 - asked only where a key was declared
        return self._formatted(self._template, chosen)

    def _formatted(self, template: str, values: Mapping[str, object]) -> str:
        try:
            return check_key(template.format_map(values))
        except (ValueError, TypeError) as error:
            if isinstance(error, RefError):
                raise
            message = f"the key {template!r} of {self._kind} cannot be made: {error}"
            raise PayloadError(message) from error

    def of_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the key for a verb that needs only the key, by its fields."""
        if not self.given:
            message = f"{self._kind} declares no key: name one with using(key=…)"
            raise PayloadError(message)
        unknown = [name for name in kwargs if name not in self.fields]
        if unknown or len(args) > len(self.fields):
            takes = ", ".join(self.fields) or "nothing"
            message = f"the key of {self._kind} is made of {takes}; {unknown or args} is not part"
            raise PayloadError(message)
        values = dict(zip(self.fields, args, strict=False))
        twice = [name for name in kwargs if name in values]
        if twice:
            message = f"the key of {self._kind} got {', '.join(twice)} twice"
            raise PayloadError(message)
        return self.make({**values, **kwargs})


class Registry:
    """The handlers of an app by kind; aliases find theirs too."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._by_kind: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register a handler; a kind has one."""
        for kind in (handler.kind, *handler.aliases):
            if kind in self._by_kind:
                message = f"kind {kind} has a handler already: {self._by_kind[kind].fn}"
                raise HandlerError(message)
        self._handlers[handler.kind] = handler
        for kind in (handler.kind, *handler.aliases):
            self._by_kind[kind] = handler

    def find(self, kind: str) -> Handler | None:
        """Return the handler of *kind*."""
        return self._by_kind.get(kind)

    def kinds(self) -> tuple[str, ...]:
        """Return every kind a worker can attempt, aliases included."""
        return tuple(self._by_kind)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())


def wants_context(fn: Callable[..., object]) -> bool:
    """Say whether the first parameter of *fn* is annotated as Context."""
    parameters = list(inspect.signature(fn).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Context"
    return annotation is Context


def _template_fields(handler: Handler, template: str) -> tuple[str, ...]:
    try:
        found = [(name, spec) for _, name, spec, _ in string.Formatter().parse(template)]
        parts = [name for name, _ in found if name is not None]
        # A format may have fields of its own: {order_id:{width}}.
        parts += [spec for _, spec in found if spec and "{" in spec]
    except ValueError as error:
        message = f"the key of {handler.kind} is no template: {error}"
        raise HandlerError(message) from error
    for name in parts:
        if name not in handler.arguments.names:
            takes = ", ".join(handler.arguments.names) or "nothing"
            message = f"the key of {handler.kind} names {name!r}; the handler takes {takes}"
            raise HandlerError(message)
    return tuple(dict.fromkeys(parts))


def _defaults(fn: Callable[..., object]) -> dict[str, object]:
    parameters = inspect.signature(fn).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _duration(value: Duration | None) -> int | None:
    return None if value is None else duration_ms(value)
