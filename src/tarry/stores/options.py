"""Options: the numbers in a store's URL (pure)."""

from collections.abc import Mapping

Limits = Mapping[str, tuple[float, float]]
"""The least and the most that each option may be."""


def number(name: str, value: str, limits: Limits) -> float:
    """Return an option that is a number; time-outs may be fractions of a second."""
    low, high = limits[name]
    try:
        found = float(value) if "timeout" in name else int(value)
    except ValueError:
        found = -1
    if not low <= found <= high:
        message = f"{name} is a number from {low} to {high}, not {value!r}"
        raise ValueError(message)
    return found
