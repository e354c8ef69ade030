"""The public test kit; nothing but `tarry prove` imports it."""

from tarry.testing.clock import ManualClock
from tarry.testing.virtual import Virtual, virtual

__all__ = ["ManualClock", "Virtual", "virtual"]
