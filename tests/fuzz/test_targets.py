"""The targets of long fuzzing work, and a short run of each finds nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.atheris_targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds(name: str) -> None:
    target = TARGETS[name]()

    for seed in SEEDS[name]:
        target(seed.encode())


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=100))
@settings(deadline=None)
def test_a_target_takes_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name]()(data)
