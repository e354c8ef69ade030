"""An order and its task are one commit, and so are the effect of the task and its end.

The shop's tables and the tasks lie in one file. Placing an order schedules its cancellation in the
same transaction; paying cancels it in the same transaction; and the handler closes the order,
writes the ledger and ends its task in one. Whatever dies in between, there is never an order
without its task, nor an effect that happens twice.

    python examples/order_in_one_transaction.py
"""

import sqlite3
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from queue import Queue
from tempfile import TemporaryDirectory

from tarry import Context, Event, Tarry
from tarry.events import AttemptEnded

FILE = "shop.db"
app = Tarry(f"sqlite:///{FILE}?shared=yes", namespace="shop")


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Commit at the end of the block, or roll back."""
    with closing(sqlite3.connect(FILE)) as db, db:
        yield db


@app.task("order.cancel", key="order:{order_id}")
def cancel_order(ctx: Context, order_id: int) -> None:
    with transaction() as db:
        db.execute("UPDATE orders SET state = 'closed' WHERE id = ? AND state = 'open'", [order_id])
        db.execute("INSERT INTO ledger VALUES (?, 'closed')", [order_id])
        ctx.settle(tx=db)


def place(order_id: int, pay_within: str = "30m", *, stock: int = 1) -> None:
    with transaction() as db:
        db.execute("INSERT INTO orders VALUES (?, 'open')", [order_id])
        cancel_order.using(tx=db).schedule(pay_within, order_id=order_id)
        if not stock:
            message = f"order {order_id}: sold out"
            raise LookupError(message)


def pay(order_id: int) -> bool:
    """Take the payment; false if the order is not open."""
    with transaction() as db:
        paid = "UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'"
        if not db.execute(paid, [order_id]).rowcount:
            return False
        cancel_order.using(tx=db).cancel(order_id=order_id)
        return True


def main() -> None:
    ended: Queue[AttemptEnded] = Queue()

    def tell(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            ended.put(event)

    app.listen(tell)
    with TemporaryDirectory() as folder, chdir(folder), app:
        with transaction() as db:
            db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
            db.execute("CREATE TABLE ledger (order_id INTEGER, what TEXT)")
        # The worker opens the store; a real clock, half a second stands for the half hour.
        with app.worker():
            place(41, "500ms")
            place(42, "500ms")
            try:
                place(43, "500ms", stock=0)
            except LookupError as error:
                print(f"{error}: no order, no task ({cancel_order.get(order_id=43)})")
            print(f"order 42 is paid: {pay(42)}")
            event = ended.get(timeout=10)
            print(f"{event.ref}: {event.outcome}")
        with transaction() as db:
            print(f"orders: {db.execute('SELECT * FROM orders').fetchall()}")
            print(f"ledger: {db.execute('SELECT * FROM ledger').fetchall()}")


if __name__ == "__main__":
    main()
