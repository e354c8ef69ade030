"""TimerThread: one thread that sleeps exactly until the next call is due, and makes it."""

import threading
from concurrent.futures import Executor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tarry.clock import SYSTEM, Clock
from tarry.timers.callbacks import BATCH, Call, CallbackTimers
from tarry.timers.kernel_timer import wake_sharply
from tarry.timers.timers import LAST, OnError

_NS = 1_000_000_000
_LONGEST_NS = 60 * _NS
"""A sleep does not count the time in suspend: after it, a call is late by this at most."""


class TimerThread(CallbackTimers):
    """Timers of a program with threads; may be armed from any of them.

        with TimerThread() as timers:
            timer = timers.after("5s", print, "no answer")
            timer.cancel()

    Calls are made on the timers' own thread, one after the other: keep them short, or hand in an
    *executor*, which then makes them. The thread starts with the first timer and is a daemon: it
    does not keep a program alive. It does not live on in a forked child: make timers there anew.
    """

    def __init__(
        self,
        *,
        executor: Executor | None = None,
        on_error: OnError | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(clock=clock, on_error=on_error)
        self._executor = executor
        self._bell = threading.Lock()
        self._bell.acquire()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        # Asleep, with no thread yet: whoever arms the first timer "wakes" it.
        self._wakes_at = LAST + 1

    def run_due(self, limit: int | None = None) -> int:
        """Make the calls that are due, or hand them to the executor."""
        if self._executor is None:
            return super().run_due(limit)
        values = self._wheel.advance(self._clock.elapsed(), limit)
        for value in values:
            self._executor.submit(self._call, value)
        return len(values)

    def stop(self) -> list[Call]:
        """End the thread after the call it is in; returns what was still armed, earliest first."""
        with self._starting:
            self._stopped = True
            thread = self._thread
        self._ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        return self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wake(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopped:
                    self._thread = threading.Thread(
                        target=self._run, name="tarry-timers", daemon=True
                    )
                    self._thread.start()
        self._ring()

    def _ring(self) -> None:
        # It rings already: one ring is as good as two.
        with suppress(RuntimeError):
            self._bell.release()

    def _run(self) -> None:
        wake_sharply()
        while not self._stopped:
            self._wakes_at = -LAST
            if self.run_due(BATCH) == BATCH:
                continue
            due = self._wheel.next_due
            self._wakes_at = LAST + 1 if due is None else due
            # Who armed before it was said until when we sleep has not rung: look once more.
            if self._wheel.next_due != due or self._stopped:
                continue
            if due is None:
                self._bell.acquire()
                continue
            wait = due - self._clock.elapsed()
            if wait > 0:
                self._bell.acquire(timeout=min(wait, _LONGEST_NS) / _NS)

    def _call(self, value: Any) -> None:
        """Call on a thread of the executor."""
        try:
            if type(value) is tuple:
                value[0](*value[1:])
            else:
                value()
        except Exception as error:  # noqa: BLE001 - it is told, and stops nobody else
            self._on_error(value, error)
