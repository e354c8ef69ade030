"""Native: which core HierarchicalWheel stands on: the one in C where it was built, else its twin.

`TARRY_TIMERS=python` in the environment takes the twin in any case; `TARRY_TIMERS=native` fails
where the core in C was not built.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tarry.clock import ELAPSED_ID, SYSTEM, Clock

if TYPE_CHECKING:
    from tarry.timers.hierarchical_wheel import HierarchicalWheel
    from tarry.timers.stepwise import StepwiseCallback as Callback

    CORE: str
else:
    _wanted = os.environ.get("TARRY_TIMERS", "")
    if _wanted not in {"", "native", "python"}:
        raise ImportError(f"TARRY_TIMERS is {_wanted!r:.80}: it may be native or python")
    try:
        if _wanted == "python":
            raise ImportError  # noqa: TRY301 - as if it had not been built
        _wheel = import_module("tarry.timers._wheel")
        from tarry.timers.timers import Timer, Timers

        Callback, HierarchicalWheel = _wheel.Callback, _wheel.HierarchicalWheel
        Timer.register(_wheel.Timer)
        Timers.register(HierarchicalWheel)
        CORE = "native"
    except ImportError:
        if _wanted == "native":
            raise
        from tarry.timers.hierarchical_wheel import HierarchicalWheel
        from tarry.timers.stepwise import StepwiseCallback as Callback

        CORE = "python"

W = TypeVar("W", bound=HierarchicalWheel[Any])


def wheel_on(clock: Clock, wheel: type[W], timer: type[Callback]) -> W:
    """Return a *wheel* whose `arm_in` asks *clock*; the native core reads the system's itself."""
    if CORE == "native" and clock is SYSTEM:
        return wheel(clock.elapsed(), clock=cast("Any", ELAPSED_ID), timer=timer)
    return wheel(clock.elapsed(), clock=clock.elapsed, timer=timer)


__all__ = ["CORE", "Callback", "HierarchicalWheel", "wheel_on"]
