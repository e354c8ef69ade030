"""Run a worker: until a signal, on a thread, or on the running loop."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from tarry.errors import WorkerError
from tarry.worker.worker import Worker

_START_SECONDS = 30


def run_until_signal(worker: Worker) -> None:
    """Run *worker* until SIGTERM or SIGINT; the second signal stops it at once."""
    asyncio.run(_run_with_signals(worker))


async def _run_with_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)
    await worker.run()


@contextmanager
def in_background(worker: Worker) -> Iterator[Worker]:
    """Run *worker* on a thread of its own while the block lasts."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(worker.run())
        except BaseException as error:  # noqa: BLE001 - handed to the block's thread
            failures.append(error)
            worker.ready.set()

    thread = threading.Thread(target=target, name="tarry-worker", daemon=True)
    thread.start()
    if not worker.ready.wait(_START_SECONDS):
        message = f"the worker did not start within {_START_SECONDS} s"
        raise WorkerError(message)
    try:
        if not failures:
            yield worker
    finally:
        worker.stop_threadsafe()
        thread.join()
    if failures:
        raise failures[0]


@asynccontextmanager
async def on_loop(worker: Worker) -> AsyncIterator[Worker]:
    """Run *worker* on the running loop while the block lasts."""
    task = asyncio.get_running_loop().create_task(worker.run(), name="tarry-worker")
    try:
        yield worker
    finally:
        worker.stop()
        await task
