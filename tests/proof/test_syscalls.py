"""Every write and sync may fail or be the last: nothing acknowledged is lost, nothing is hidden."""

import os

import pytest

from tarry.testing.proof import syscalls
from tarry.testing.proof.syscalls import FOLDER, all_points, run, sample

KILLS = int(os.environ.get("TARRY_SYSCALL_KILLS", "60"))
ERRORS = int(os.environ.get("TARRY_SYSCALL_ERRORS", "20"))
SEED = int(os.environ.get("TARRY_SEED", "0"))


@pytest.fixture
def _strace() -> None:
    why = syscalls.unavailable()
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@pytest.mark.usefixtures("_strace")
def test_the_history_has_every_kind_of_call_on_every_kind_of_file() -> None:
    kinds = {(point.call, point.file) for point in all_points()}

    assert {("pwrite64", file) for file in ("journal", "db", "wal", "shm")} <= kinds
    assert {("fdatasync", file) for file in ("journal", "db", "wal", FOLDER)} <= kinds
    assert {("ftruncate", "db"), ("ftruncate", "shm")} <= kinds
    assert {("unlink", "journal"), ("unlink", "wal")} <= kinds


@pytest.mark.usefixtures("_strace")
def test_a_sample_has_as_much_of_each_call_as_fits() -> None:
    points = sample(SEED, 40)

    assert len(set(points)) == 40
    assert sum(point.call == "fdatasync" for point in points) > 10
    assert set(sample(SEED, 10_000)) == set(all_points())


@pytest.mark.slow
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("part", range(3))
def test_a_process_killed_at_a_write_or_sync_loses_nothing(part: int) -> None:
    tally = run(SEED, 0, how="kill", points=sample(SEED, KILLS)[part::3])

    assert tally.broken == []
    assert tally.tried == len(range(part, KILLS, 3))
    assert tally.counts["acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("how", ["EIO", "ENOSPC"])
def test_a_write_or_sync_that_fails_is_never_acknowledged(how: str) -> None:
    tally = run(SEED, ERRORS, how=how)

    assert tally.broken == []
    assert tally.tried == ERRORS
    assert tally.counts["acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("how", ["kill", "EIO"])
def test_a_cancel_that_is_answered_before_it_is_done_is_found_out(how: str) -> None:
    tally = run(SEED, 16, how=how, hasty=True)

    assert "after cancel" in {broken.rule for broken in tally.broken}


def test_without_strace_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert syscalls.unavailable() == "strace is not installed"
