"""The story that `tarry demo` tells: a small shop, on real tasks."""

from collections.abc import Callable

from tarry.app import Tarry
from tarry.attempt import Dead, Skip, Snooze
from tarry.backoff import Backoff
from tarry.context import Context
from tarry.due import format_duration
from tarry.errors import TarryError
from tarry.task import TaskRef

Say = Callable[[TaskRef, str, str, int | None], None]
"""Told of each step: the task, what was done, why, and the due it has now."""

LENGTH = 8_000
"""The story's own milliseconds; everything is stretched to the seconds that were asked for."""

PAID = 1002
CANCELLED = TaskRef("order.cancel", "1003")
SLOW_BANK = 2
"""So many calls of the bank fail before one gets through."""

TASKS = (
    ("order.cancel", 1001, 1_000),
    ("order.cancel", PAID, 1_500),
    ("order.cancel", 1003, 2_500),
    ("payment.notify", 88, 1_800),
    ("rating.ask", 1001, 7_600),
    ("rating.ask", 1004, 3_000),
    ("parcel.check", 55, 3_500),
    ("webhook.call", 13, 4_200),
    ("order.cancel", 1005, 6_000),
    ("rating.ask", 1006, 7_000),
)
ENDS = len(TASKS) - 1
"""All but the cancelled one come to an end."""


class BankSleepsError(Exception):
    """What a payment runs into."""


class Story:
    """Declares its handlers on an app, schedules the tasks, and changes its mind three times."""

    def __init__(self, app: Tarry, seconds: float) -> None:
        self._app = app
        self._stretch = seconds * 1_000 / LENGTH
        self._declare()

    def _after(self, ms: int) -> str:
        return format_duration(max(1, round(ms * self._stretch)))

    def _declare(self) -> None:
        app = self._app

        @app.task("order.cancel")
        async def cancel_order(number: int) -> None:
            if number == PAID:
                raise Skip("paid meanwhile")

        @app.task("rating.ask")
        async def ask_for_rating(number: int) -> None:
            del number

        @app.task("payment.notify", retry=Backoff.fixed(self._after(1_000), times=3))
        async def notify_payment(ctx: Context, number: int) -> None:
            if ctx.attempt <= SLOW_BANK:
                message = f"the bank did not answer for {number}"
                raise BankSleepsError(message)

        @app.task("parcel.check")
        async def check_parcel(ctx: Context, number: int) -> None:
            if not ctx.snoozes:
                raise Snooze(self._after(1_500), f"parcel {number} is still on its way")

        @app.task("webhook.call")
        def call_webhook(number: int) -> None:
            reason = f"410 Gone from hook {number}"
            raise Dead(reason)

    def tell(self, say: Say) -> None:
        """Schedule everything; then move one task earlier, one later, and cancel one."""
        for kind, number, delay in TASKS:
            made = self._app.schedule(
                kind, self._after(delay), key=str(number), payload={"number": number}
            )
            say(made.ref, "scheduled", "", made.due)
        self._move(TaskRef("rating.ask", "1001"), 2_200, "earlier", say)
        self._move(TaskRef("rating.ask", "1004"), 5_200, "later", say)
        answer = self._app.cancel(CANCELLED)
        if not answer:
            message = f"{CANCELLED} could not be cancelled: {answer}"
            raise TarryError(message)
        say(CANCELLED, "cancelled", "the customer called", None)

    def _move(self, ref: TaskRef, delay: int, where: str, say: Say) -> None:
        moved = self._app.reschedule(ref, self._after(delay))
        if not moved:
            message = f"{ref} could not be moved: {moved.status}"
            raise TarryError(message)
        say(ref, "moved", where, moved.due)
