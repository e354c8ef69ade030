"""Whatever a settings file or the environment holds, it is understood or refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry import config
from tarry.errors import ConfigError

NAMES = [*config._CHECKS, "tool", "tarry", "tool.tarry", '""', "a.b"]
VALUES = [
    *("1", "-1", "0", "true", "[]", "{}", "[[]]", '""', "''", '"30s"', '"\\u0000"', "nan"),
    *(
        "9" * 30,
        "0x" + "f" * 30,
        "1e400",
        "2025-01-01",
        '["a"]',
        "[1]",
        '"é"',
        '"a b"',
        '"sqlite:"',
    ),
]
LINES = st.one_of(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(" = ".join),
    st.sampled_from(["[tool.tarry]", "[[tool]]", "[tool]", "# tool.tarry", "tool = 1", "[", "= 1"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
FILES = st.lists(LINES, max_size=6).map("\n".join)


def read(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    try:
        config.load(environ={}, folder=folder)
    except ConfigError:
        pass
    finally:
        path.unlink()


@given(FILES)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_is_understood_or_refused(tmp_path: Path, text: str) -> None:
    read(tmp_path, "tarry.toml", text)


@given(st.binary(max_size=60))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tarry.toml").write_bytes(data)
    try:
        config.load(environ={}, folder=tmp_path)
    except ConfigError:
        return


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "# tool.tarry\ntool = 1"),
        ("pyproject.toml", "# tool.tarry\n[[tool]]"),
        ("pyproject.toml", "[tool]\ntarry = 0x" + "f" * 5_000 + " # tool.tarry"),
        ("tarry.toml", "concurrency = " + "9" * 5_000),
        ("tarry.toml", "kinds = " + "[" * 100_000),
    ],
    ids=["tool is a number", "tool is a list", "huge tarry", "huge number", "deep list"],
)
def test_what_the_reader_itself_chokes_on_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=name):
        config.load(environ={}, folder=tmp_path)


ENVIRONMENT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["1", "\uff10", "٣", " 7 ", "-1", "true", "30s", "a,b", ",", "9" * 30]),
)


@given(st.dictionaries(st.sampled_from(list(config._CHECKS)), ENVIRONMENT, max_size=3))
@settings(max_examples=300, deadline=None)
def test_the_environment_is_understood_or_refused(found: dict[str, str]) -> None:
    environ = {f"TARRY_{name.upper()}": text for name, text in found.items()}
    try:
        config.load(environ=environ, folder=Path("/"))
    except ConfigError as error:
        assert "TARRY_" in str(error)  # noqa: PT017 - refused, and says where


@pytest.mark.parametrize("text", ["9" * 5_000, "\x1d3"], ids=["digits", "separator"])
def test_what_only_looks_like_a_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="TARRY_PROCESSES"):
        config.load(environ={"TARRY_PROCESSES": text}, folder=Path("/"))


FLAGS: Any = st.dictionaries(
    st.sampled_from(list(config._CHECKS)),
    st.one_of(st.none(), st.text(max_size=5), st.integers(), st.booleans(), st.lists(st.text())),
    max_size=3,
)


@given(FLAGS)
@settings(deadline=None)
def test_flags_are_understood_or_refused(flags: dict[str, object]) -> None:
    try:
        config.load(flags, environ={}, folder=Path("/"))
    except ConfigError as error:
        assert str(error).startswith("--")  # noqa: PT017 - refused, and says where
