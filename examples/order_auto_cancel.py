"""An order that is not paid within 30 minutes is closed.

The task is scheduled when the order is placed, moved when the customer asks for more time, and
cancelled when the payment arrives. The handler looks at the order once more: a payment may arrive
while the attempt is under way, and then `cancel` answers RUNNING.

    python examples/order_auto_cancel.py
"""

from contextlib import chdir
from queue import Queue
from tempfile import TemporaryDirectory

from tarry import Event, Later, Skip, Tarry
from tarry.events import AttemptEnded

app = Tarry("sqlite:///shop.db", namespace="shop")
orders: dict[int, str] = {}  # stands for the shop's own database


@app.task("order.cancel", key="order:{order_id}")
def cancel_order(order_id: int) -> None:
    if orders[order_id] == "paid":
        raise Skip("paid")
    orders[order_id] = "closed"


def place(order_id: int, pay_within: str = "30m") -> None:
    orders[order_id] = "open"
    cancel_order.schedule(pay_within, order_id=order_id)


def more_time(order_id: int, pay_within: str = "2h") -> bool:
    """Give the customer more time; false if it is too late for that."""
    return bool(cancel_order.reschedule(Later(pay_within), order_id=order_id))


def pay(order_id: int) -> bool:
    """Take the payment; false if the order was closed before."""
    if orders[order_id] == "closed":
        return False
    orders[order_id] = "paid"
    cancel_order.cancel(order_id=order_id)
    return True


def main() -> None:
    ended: Queue[AttemptEnded] = Queue()

    def tell(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            ended.put(event)

    app.listen(tell)
    # A real worker on a real clock; half a second stands for the half hour.
    with TemporaryDirectory() as folder, chdir(folder), app, app.worker():
        place(41, pay_within="500ms")
        place(42, pay_within="500ms")
        print("orders 41 and 42 are placed")
        pay(42)
        print("order 42 is paid")
        event = ended.get(timeout=10)
        print(f"{event.ref}: {event.outcome}, {event.lateness_ms:.1f} ms late")
    print(f"order 41 is {orders[41]}, order 42 is {orders[42]}")


if __name__ == "__main__":
    main()
