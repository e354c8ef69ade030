"""MariaDB behind a proxy: a verb that is hit at its commit has the effect of one call.

A sample of the verbs: what callers ask for goes one way, and so does what is only looked at.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.network.conftest import worlds
from tests.network.media import Forgetful, Medium, MysqlMedium
from tests.network.servers import mariadb
from tests.network.test_verbs import (
    test_a_write_that_gets_no_reply_for_too_long_is_an_unknown_outcome,
    test_cancel,
    test_claim,
    test_get,
    test_renew,
    test_schedule,
    test_settle,
)

__all__ = [
    "test_a_write_that_gets_no_reply_for_too_long_is_an_unknown_outcome",
    "test_cancel",
    "test_claim",
    "test_get",
    "test_renew",
    "test_schedule",
    "test_settle",
]
pytestmark = [pytest.mark.medium("mysql"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def medium() -> Iterator[Medium]:
    with closing(MysqlMedium(mariadb())) as medium:
        yield medium


@pytest.mark.parametrize("verb", ["schedule"])
def test_a_medium_that_forgets_its_calls_is_found_out(medium: Medium, verb: str) -> None:
    """A sample: the others are found out on Redis."""
    with pytest.raises(AssertionError):
        globals()[f"test_{verb}"](lambda verb: worlds(medium, verb, Forgetful))
