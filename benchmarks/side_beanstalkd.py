"""beanstalkd's side of the comparison: a server with a binlog, spoken to over one socket.

Its delays are whole seconds; rounded up, so that nothing is early. peers.py starts the server.
"""

import socket
import time
from pathlib import Path

import side


class BeanstalkdSide:
    """A connection to the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        port = int((folder / "port").read_text())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._ids: dict[int, bytes] = {}
        self._mark = mark

    def schedule(self, n: int, due: int) -> None:
        delay = max(0, -(-(due - time.time_ns() // 1_000_000) // 1_000))
        body = b"%d" % n
        answer = self._ask(b"put 0 %d 120 %d\r\n%s\r\n" % (delay, len(body), body))
        self._ids[n] = self._word(answer, b"INSERTED")

    def cancel(self, n: int) -> None:
        self._word(self._ask(b"delete %s\r\n" % self._ids[n]), b"DELETED")

    def work(self) -> None:
        while True:
            answer = self._ask(b"reserve\r\n").split()
            body = self._answers.read(int(answer[2]) + 2)
            self._mark(int(body))
            self._word(self._ask(b"delete %s\r\n" % answer[1]), b"DELETED")

    def _ask(self, command: bytes) -> bytes:
        self._socket.sendall(command)
        return self._answers.readline()

    def _word(self, answer: bytes, wanted: bytes) -> bytes:
        words = answer.split()
        if words[:1] != [wanted]:
            raise SystemExit(f"beanstalkd said {answer!r}")
        return words[-1]


if __name__ == "__main__":
    side.main(BeanstalkdSide)
