"""Moving: tasks and dead letters go from a store to a file of SQLite, and back to another place."""

from collections.abc import Callable
from typing import Any

from click.testing import Result
from msgspec.structs import replace

from tarry import Tarry, Task, TaskRef, TaskState
from tarry.stores.store import Filter

_THERE = ("--store", "sqlite:///there.db")
_TRIED = Task(
    ref=TaskRef("tried", "1"), due=10**13, revision=0, created=5, attempt=3, lost=1, snoozes=2
)


def moves_there_and_back(
    run: Callable[..., Result], shop: Tarry, bury: Callable[..., None]
) -> None:
    """Export from the shop and import it elsewhere, twice: everything is as it was."""
    shop.schedule("order.cancel", "1h", key="42", payload={"order_id": 42}, headers={"trace": "ä"})
    shop.schedule("report", "1h", key="r", every="1h")
    shop.client.take_over([_TRIED])
    bury("payment.notify", "88", reason="card refused")
    back = ("--store", shop.url, "--namespace", "back")

    for here, there in (((), _THERE), (_THERE, back)):
        assert run("export", "tasks.ndjson", "--force", *here).exit_code == 0
        said = run("import", "tasks.ndjson", *there)
        assert said.stdout == "imported: tasks 3, dead letters 1\n"

    with Tarry(shop.url, namespace="back") as other:
        assert _everything(other) == _everything(shop)
        assert _TRIED in _everything(other)


def _everything(app: Tarry) -> list[Any]:
    states = (TaskState.SCHEDULED, TaskState.DEAD)
    found = [task for state in states for task in app.store.scan(Filter(state)).tasks]
    return sorted((replace(task, revision=0) for task in found), key=lambda task: task.ref)
