"""Waiting tasks survive the end of every process, and a killed worker's task is attempted again.

One process schedules three messages and is killed. A worker starts and is killed in the middle of
the second message. Another worker delivers what is left: what waits at its due, what was under way
when the dead worker's lease (one second here) has ended.

    python examples/recovery_after_restart.py
"""

import os
import signal
import subprocess
import sys
from queue import Queue
from tempfile import TemporaryDirectory

from tarry import Context, Event, Tarry
from tarry.events import AttemptEnded

app = Tarry(os.environ.get("TARRY_STORE", "sqlite:///messages.db"), namespace="messages")
MESSAGES = ("breakfast", "lunch", "dinner")


@app.task("message.deliver", key="{text}", concurrency=1)
def deliver(ctx: Context, text: str) -> None:
    if text == os.environ.get("CRASH_AT") and ctx.lost == 0:
        print(f"  {text}: the worker is killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    lost = f", after {ctx.lost} lost" if ctx.lost else ""
    print(f"  {text}: delivered at attempt {ctx.attempt}{lost}", flush=True)


def schedule() -> None:
    for place, text in enumerate(MESSAGES, start=1):
        deliver.schedule(f"{place * 200}ms", text)
    print("  scheduled; this process is killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def work() -> None:
    ended: Queue[str] = Queue()

    def tell(event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.outcome == "done":
            ended.put(event.ref.key)

    left = {text for text in MESSAGES if deliver.get(text)}
    app.listen(tell)
    with app, app.worker(lease="1s"):
        while left:
            left.discard(ended.get(timeout=20))


def main() -> None:
    with TemporaryDirectory() as folder:
        environ = {"TARRY_STORE": f"sqlite:///{folder}/messages.db", **os.environ}
        for what, crash_at in [("schedule", ""), ("work", "lunch"), ("work", "")]:
            print(f"process: {what}", flush=True)
            environ["CRASH_AT"] = crash_at
            code = subprocess.call([sys.executable, __file__, what], env=environ)
            print(f"  ended with {'SIGKILL' if code == -signal.SIGKILL else code}", flush=True)


if __name__ == "__main__":
    commands = {"schedule": schedule, "work": work}
    commands.get(sys.argv[-1], main)()
