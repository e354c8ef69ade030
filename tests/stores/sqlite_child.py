"""Another process that uses a SQLite store: reads commands line by line, answers each in JSON."""

import fcntl
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import closing

from tarry.attempt import DONE
from tarry.clock import SYSTEM
from tarry.due import In
from tarry.errors import TarryError
from tarry.request import Cancellation, Request, Settlement
from tarry.stores.sqlite.store import SqliteStore
from tarry.task import TaskRef

KIND = "child.kind"


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Child:
    """What the commands do; each argument is a word."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = SqliteStore(path, namespace="test")

    def schedule(self, key: str, delay_ms: str) -> int:
        """Schedule one task; answers with its revision."""
        [answer] = self.store.schedule([Request(TaskRef(KIND, key), In(int(delay_ms)))])
        return answer.revision

    def fill(self, prefix: str, size: str) -> list[object]:
        """Schedule tasks of *size* bytes until the store refuses; answers how many, and why."""
        count = 0
        while True:
            request = Request(TaskRef(KIND, f"{prefix}{count}"), In(0), b"x" * int(size))
            try:
                self.store.schedule([request])
            except TarryError as error:
                return [count, type(error).__name__, str(error)]
            count += 1

    def write_for(self, prefix: str, milliseconds: str) -> int:
        """Schedule and cancel as fast as possible for a while; answers how many times."""
        end = SYSTEM.elapsed() + int(milliseconds) * 1_000_000
        count = 0
        while SYSTEM.elapsed() < end:
            ref = TaskRef(KIND, f"{prefix}{count}")
            self.store.schedule([Request(ref, In(60_000))])
            self.store.cancel([Cancellation(ref)])
            count += 1
        return count

    def drain(self) -> list[str]:
        """Claim and settle all that is due; answers the keys."""
        keys: list[str] = []
        while True:
            leases = self.store.claim([KIND], limit=100, lease_ms=60_000, holder="child").leases
            if not leases:
                return sorted(keys)
            self.store.settle([Settlement(lease, DONE) for lease in leases])
            keys += [lease.ref.key for lease in leases]

    def watch(self) -> bool:
        """Listen; each wake-up is a line of its own."""
        self.store.watch(lambda due: say({"heard": due}))
        return True

    def limit_file_size(self, size: str) -> bool:
        """Let no file grow beyond *size* bytes; 0: as before."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        most = int(size) or resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        return True

    def hold_side_lock(self) -> bool:
        """Stand at the head of the writers' queue for good, without a transaction."""
        self._held = os.open(f"{self.path}-lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        return True

    def check(self) -> list[str]:
        return self.store.check()

    def close(self) -> bool:
        self.store.close()
        return True


def main() -> None:
    child = Child(sys.argv[1])
    with closing(child.store):
        say("ready")
        for line in sys.stdin:
            verb, *words = line.split()
            command: Callable[..., object] = getattr(child, verb)
            try:
                say(command(*words))
            except TarryError as error:
                say({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main()
