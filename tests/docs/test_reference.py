"""The reference leaves nothing out: every public name, event, answer, error and setting."""

import inspect
from enum import Enum

import pytest
from tests.docs.conftest import ROOT

import tarry
from tarry import answers, config, events
from tarry.api.function import TaskFunction
from tarry.app import Declared, Tarry
from tarry.attempt import Outcome
from tarry.request import OnConflict

REFERENCE = ROOT / "docs" / "reference"
API = (REFERENCE / "api.md").read_text(encoding="utf-8")
SETTINGS = (REFERENCE / "settings.md").read_text(encoding="utf-8")

EVENTS = sorted(
    name
    for name, value in vars(events).items()
    if inspect.isclass(value) and issubclass(value, events.Event) and value is not events.Event
)
STATUSES = sorted(
    f"{owner.__name__}.{status.name}"
    for owner in (answers.ScheduleStatus, answers.MoveStatus, answers.CancelResult)
    for status in owner
)
INNER = {"schedule_request", "move", "cancel_ref", "swap", "emit", "make_worker"}


def verbs(owner: type) -> list[str]:
    return [
        name
        for name, value in vars(owner).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and name not in INNER
        and not (name.startswith("a") and name[1:] in vars(owner))
    ]


@pytest.mark.parametrize("name", tarry.__all__)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in API


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_in_the_reference_with_its_facts(name: str) -> None:
    [row] = [line for line in API.splitlines() if line.startswith("|") and f"`{name}`" in line]

    assert [fact for fact in getattr(events, name).__struct_fields__ if fact not in row] == []


@pytest.mark.parametrize("status", STATUSES)
def test_an_answer_is_in_the_reference(status: str) -> None:
    assert status.partition(".")[2] in API or status == "ScheduleStatus.CONFLICT"


@pytest.mark.parametrize("verb", sorted({*verbs(TaskFunction), *verbs(Tarry)}))
def test_a_verb_is_in_the_reference(verb: str) -> None:
    assert f".{verb}(" in API or f"`{verb}`" in API


@pytest.mark.parametrize("mode", OnConflict)
def test_a_mode_of_conflicts_is_in_the_reference(mode: Enum) -> None:
    assert f'"{mode.value}"' in API


@pytest.mark.parametrize("outcome", [kind.__name__ for kind in Outcome.__subclasses__()])
def test_an_outcome_is_in_the_reference(outcome: str) -> None:
    assert outcome in API or outcome == "_Later"


@pytest.mark.parametrize("option", ["key", *Declared.__annotations__])
def test_an_option_of_a_kind_is_in_the_reference(option: str) -> None:
    assert f"{option}=" in API


@pytest.mark.parametrize(
    "option", [name for name in inspect.signature(TaskFunction.using).parameters if name != "self"]
)
def test_an_option_of_using_is_in_the_reference(option: str) -> None:
    assert f"{option}=" in API


@pytest.mark.parametrize(
    "option", [name for name in inspect.signature(Tarry).parameters if name != "url"]
)
def test_an_option_of_the_app_is_in_the_reference(option: str) -> None:
    assert f"| `{option}` |" in SETTINGS


@pytest.mark.parametrize(
    "setting", [name for name in config.Settings.__struct_fields__ if name != "sources"]
)
def test_a_setting_is_in_the_reference(setting: str) -> None:
    [row] = [line for line in SETTINGS.splitlines() if line.startswith(f"| {setting} |")]

    assert f"`TARRY_{setting.upper()}`" in row
