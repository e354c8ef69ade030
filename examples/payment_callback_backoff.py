"""A merchant is told about a payment, again and again until the merchant's server accepts it.

After a failure the next attempt comes 2, 4, 8, 16, 32 minutes later (x, x², x³ … minutes); then the
task becomes a dead letter, which an operator can revive. The HTTP server is real and refuses at
first; the hours are virtual.

    python examples/payment_callback_backoff.py
"""

import json
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self
from urllib.error import HTTPError

from tarry import Backoff, Context, Tarry
from tarry.due import format_duration
from tarry.testing import virtual

app = Tarry("sqlite:///payments.db", namespace="payments")


@app.task(
    "payment.notify",
    key="order:{order_id}",
    retry=Backoff.powers(2, unit="1m", times=5),
    timeout="10s",
)
def notify_merchant(ctx: Context, order_id: int, url: str) -> None:
    body = json.dumps({"order": order_id, "attempt": ctx.attempt}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except HTTPError as refusal:
        # Any answer but 2xx is an exception, and an exception is a retry; it holds a connection.
        refusal.close()
        raise


class Merchant(ThreadingHTTPServer):
    """A merchant's server that answers 503 to its first *refusals* calls."""

    def __init__(self, refusals: int) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.refusals = refusals
        self.calls: list[dict[str, int]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/paid"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Desk(BaseHTTPRequestHandler):
    server: Merchant

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append(call)
        self.send_response(503 if len(self.server.calls) <= self.server.refusals else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def main() -> None:
    print(f"policy: {notify_merchant.handler.retry}")
    with Merchant(refusals=3) as slow, Merchant(refusals=99) as broken, virtual(app) as t:
        start = t.now()
        notify_merchant.schedule("now", order_id=42, url=slow.url)
        notify_merchant.schedule("now", order_id=43, url=broken.url)
        for step in ("0s", "2m", "4m", "8m", "16m", "32m"):
            t.advance(step)
            waited = format_duration(t.now() - start)
            print(f"after {waited}: order 42 {len(slow.calls)}x, 43 {len(broken.calls)}x")
        for task in t.dead():
            print(f"dead letter {task.ref}: {task.reason}")
        broken.refusals = 0
        notify_merchant.run_now(order_id=43)
        t.advance("1s")
        print(f"revived: {len(t.dead())} dead letters left")


if __name__ == "__main__":
    main()
