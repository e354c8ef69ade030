"""Starting: what a worker makes sure of before it attempts a task."""

from tarry.stores.store import Claimed
from tarry.testing.controls.control import Control
from tarry.testing.simulation import Bench, situations
from tarry.worker.run import Attempt
from tarry.worker.worker import Worker


class CountsFromTheReply(Worker):
    """Lets a lease begin when the claim's reply arrives, not when the claim was sent."""

    def _take(self, claimed: Claimed, asked: int, given: int) -> None:
        del asked, given
        now = self._clock.elapsed()
        super()._take(claimed, now, now)


class InCompany(Worker):
    """Attempts a task that may kill its worker without letting the others go first."""

    async def _be_alone(self, attempt: Attempt) -> None:
        """Go ahead."""


STARTING: tuple[Control, ...] = (
    Control(
        "lease-counted-from-the-reply",
        "The worker lets a lease begin when the reply arrives.",
        "The reply was on its way for longer than the lease lasts. The store has given the task to "
        "somebody else, or told a caller that it is cancelled; the worker starts it all the same.",
        ("after cancel",),
        Bench(worker=CountsFromTheReply),
        situations.late_replies,
    ),
    Control(
        "mates-of-a-poison-task",
        "A task that kills its worker is attempted while others wait in the same worker.",
        "They die with it, again and again, and become dead letters for nothing they did. At the "
        "limit the worker lets go of everything else first.",
        ("dead without cause",),
        Bench(worker=InCompany),
        situations.poisoned,
    ),
)
