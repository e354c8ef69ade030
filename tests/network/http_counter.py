"""An HTTP server that counts: POST adds one and tells the sum, GET tells it; /large is large."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = bytes(range(256)) * 8_192


class Counter(BaseHTTPRequestHandler):
    """Answers requests; connections are kept."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Counter.count += 1
        self.do_GET()

    def do_GET(self) -> None:
        body = LARGE if self.path == "/large" else b"%d" % Counter.count
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Minds no client that is cut off."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Counter).serve_forever()
