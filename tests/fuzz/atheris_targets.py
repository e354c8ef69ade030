"""Long fuzzing with atheris: libFuzzer's coverage feedback on what reads text and bytes.

Not part of the test suite, and atheris is no dependency (3.0.0 has a wheel for CPython 3.11):

    python3.11 -m venv /tmp/atheris
    /tmp/atheris/bin/pip install atheris==3.0.0 -e .
    /tmp/atheris/bin/python -m tests.fuzz.atheris_targets when -max_total_time=1800

The first word is the target: when, wish, rule, arguments, headers, settings. The rest are options
of libFuzzer; a folder among them is the corpus that is kept (without one, it starts from SEEDS and
forgets what it found). A crash leaves a file `crash-…`, which the same command with that file runs
again. Whatever it finds becomes an example in the tests beside this file.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Target = Callable[[bytes], None]
"""Takes any bytes; whatever it raises is a finding."""

NOW = 1_750_000_000_000


def when() -> Target:
    """Read a time."""
    from tarry.clock import MS_PER_YEAR_9999
    from tarry.due import duration_ms, parse_when, resolve
    from tarry.errors import WhenError

    def target(data: bytes) -> None:
        text = _text(data)
        try:
            ms = duration_ms(text)
            assert 0 <= ms <= MS_PER_YEAR_9999
        except WhenError:
            pass
        try:
            due = parse_when(text, NOW)
        except WhenError:
            return
        assert NOW <= resolve(due, NOW) <= MS_PER_YEAR_9999

    return target


def wish() -> Target:
    """Read a wish to move."""
    from tarry.due import Earlier, Later, Shift
    from tarry.errors import WhenError

    def target(data: bytes) -> None:
        text = _text(data)
        for make in (Shift, Earlier, Later):
            try:
                make(text)
            except WhenError:
                continue

    return target


def rule() -> Target:
    """Read a rule as a store kept it, or a cron as a caller wrote it."""
    from tarry.errors import HandlerError
    from tarry.recurrence import Rule

    def target(data: bytes) -> None:
        text = _text(data)
        for read in (Rule.parse, Rule.make):
            try:
                made = read(text)
            except HandlerError:
                continue
            assert Rule.parse(made.text()) == made
            following = made.next(NOW, NOW)
            assert following is None or following > NOW

    return target


def arguments() -> Target:
    """Decode a payload."""
    from tarry.errors import PayloadError
    from tarry.payload import Arguments

    def order(order_id: int, reason: str = "unpaid", more: Any = None) -> None: ...

    decode = Arguments(order, skip_first=False).decode

    def target(data: bytes) -> None:
        try:
            values, unknown = decode(data)
        except PayloadError:
            return
        assert "order_id" in values
        assert "order_id" not in unknown

    return target


def headers() -> Target:
    """Decode headers."""
    from tarry.errors import PayloadError
    from tarry.payload import decode_headers, encode_headers

    def target(data: bytes) -> None:
        try:
            found = decode_headers(data)
        except PayloadError:
            return
        assert decode_headers(encode_headers(found)) == found

    return target


def settings() -> Target:
    """Read settings of the environment."""
    from tarry import config
    from tarry.errors import ConfigError

    names = sorted(config._CHECKS)

    def target(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        try:
            config.load(environ={f"TARRY_{name.upper()}": _text(data[1:])}, folder=Path("/"))
        except ConfigError:
            return

    return target


TARGETS: dict[str, Callable[[], Target]] = {
    "when": when,
    "wish": wish,
    "rule": rule,
    "arguments": arguments,
    "headers": headers,
    "settings": settings,
}
SEEDS = {
    "when": ["now", "1w2d3h4m5s6ms", "P1DT2H3M4.5S", "2030-01-31T09:00:00Z", "sun 02:30:00 UTC"],
    "wish": ["+15m", "-PT5M", "tomorrow 08:00 Europe/Berlin"],
    "rule": ["*/5 0-59/2 1,L * MON#1", '{"cron":"0 3 * * *","tz":"UTC"}', '{"every_ms":3600000}'],
    "arguments": ['{"order_id":1,"reason":"late","more":[{"a":null}],"x":1e3}'],
    "headers": ['{"a":"b","\\u00fc":"\\ud83d\\ude00"}'],
    "settings": ["\x000", "\x0130s", "\x02a,b"],
}


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["tarry", "cronsim"]):
        target = TARGETS[name]()
    with TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]):
            Path(corpus, str(number)).write_bytes(seed.encode())
        atheris.Setup([sys.argv[0], *options, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(__doc__)
    main()
