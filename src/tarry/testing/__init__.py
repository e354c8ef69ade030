"""The public test kit; nothing in tarry imports it."""

from tarry.testing.clock import ManualClock
from tarry.testing.virtual import Virtual, virtual

__all__ = ["ManualClock", "Virtual", "virtual"]
