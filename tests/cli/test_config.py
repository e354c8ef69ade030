"""Settings come from flags, then TARRY_*, then the nearest file; what is wrong is named."""

from pathlib import Path

import pytest

from tarry import config
from tarry.errors import ConfigError


def test_a_flag_wins_over_the_environment_and_that_over_the_file(folder: Path) -> None:
    (folder / "tarry.toml").write_text('namespace = "file"\nlease = "1m"\nconcurrency = 5\n')

    found = config.load(
        {"concurrency": 7, "grace": None},
        environ={"TARRY_LEASE": "2m", "TARRY_CONCURRENCY": "6"},
        folder=folder,
    )

    assert (found.concurrency, found.lease, found.namespace) == (7, "2m", "file")
    assert found.grace == "10s"
    assert found.sources["concurrency"] == "--concurrency"
    assert found.sources["lease"] == "TARRY_LEASE"
    assert "tarry.toml" in found.sources["namespace"]


def test_without_anything_there_are_defaults(folder: Path) -> None:
    assert config.load(environ={}, folder=folder) == config.Settings()


def test_an_empty_variable_says_nothing(folder: Path) -> None:
    assert config.load(environ={"TARRY_STORE": ""}, folder=folder).store == config.DEFAULT_STORE


def test_pyproject_is_read_if_it_speaks_of_tarry(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.tarry]\nkinds = ["a", "b"]\n')

    assert config.load(environ={}, folder=folder).kinds == ("a", "b")


def test_the_nearest_file_counts_and_a_broken_stranger_does_no_harm(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "tarry.toml").write_text('namespace = "outer"\n')
    (inner / "pyproject.toml").write_text("this is no TOML")

    assert config.load(environ={}, folder=inner).namespace == "outer"


def test_a_relative_store_lies_beside_the_file_that_names_it(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "tarry.toml").write_text('store = "sqlite:///shop.db"\n')

    assert config.load(environ={}, folder=inner).store == f"sqlite:///{folder}/shop.db"
    assert config.load(environ={}, folder=folder).store == "sqlite:///shop.db"


@pytest.mark.parametrize("url", ["sqlite:////var/shop.db", "redis://localhost"])
def test_other_stores_stay_as_they_are(folder: Path, url: str) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "tarry.toml").write_text(f'store = "{url}"\n')

    assert config.load(environ={}, folder=inner).store == url


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("concurency = 5", ["unknown setting 'concurency'", "did you mean concurrency?"]),
        ("health-port = 1", ["did you mean health_port?"]),
        ("xyz = 5", ["known are: store"]),
        ('concurrency = "many"', ["concurrency", "whole number"]),
        ("concurrency = true", ["whole number"]),
        ("concurrency = 0", ["whole number from 1"]),
        ('lease = "soon"', ["lease", "duration"]),
        ("lease = 30", ["not text"]),
        ('lease = "0s"', ["no time at all"]),
        ("health_port = 70000", ["port"]),
        ("kinds = []", ["list of kinds"]),
        ('kinds = ["a b"]', ["kind"]),
        ('log_level = "loud"', ["debug, info"]),
        ("log_json = 1", ["true nor false"]),
        ('namespace = "a/b"', ["namespace"]),
        ("store = 1", ["store"]),
        ("= 3", ["no TOML"]),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(
    folder: Path, text: str, words: list[str]
) -> None:
    (folder / "tarry.toml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        config.load(environ={}, folder=folder)

    for word in ["tarry.toml", *words]:
        assert word in str(caught.value)


def test_a_table_that_is_none_is_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool]\ntarry = 1\n# tool.tarry\n")

    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        config.load(environ={}, folder=folder)


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "tarry.toml").write_bytes(b"\xff")

    with pytest.raises(ConfigError, match=r"tarry.toml cannot be read"):
        config.load(environ={}, folder=folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TARRY_CONCURRENCY", "abc"),
        ("TARRY_LEASE", "-5s"),
        ("TARRY_LOG_JSON", "perhaps"),
        ("TARRY_HEALTH_PORT", "x"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(folder: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config.load(environ={name: text}, folder=folder)


def test_the_environment_speaks_in_text(folder: Path) -> None:
    environ = {"TARRY_LOG_JSON": "true", "TARRY_KINDS": "a, b", "TARRY_HEALTH_PORT": "0"}

    found = config.load(environ=environ, folder=folder)

    assert (found.log_json, found.kinds, found.health_port) == (True, ("a", "b"), 0)
