"""Station 3a: order by due in memory, and the drivers that fire it."""

from tarry.timers.async_timers import AsyncTimers
from tarry.timers.callbacks import CallbackTimers, Repeat
from tarry.timers.delay_queue import DelayQueue
from tarry.timers.hashed_wheel import HashedWheel
from tarry.timers.heap import Heap
from tarry.timers.native import CORE, Callback, HierarchicalWheel
from tarry.timers.timer_thread import TimerThread
from tarry.timers.timers import Timer, Timers

__all__ = [
    "CORE",
    "AsyncTimers",
    "Callback",
    "CallbackTimers",
    "DelayQueue",
    "HashedWheel",
    "Heap",
    "HierarchicalWheel",
    "Repeat",
    "Timer",
    "TimerThread",
    "Timers",
]
