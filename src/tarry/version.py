"""Version: the one place that says which tarry this is."""

__version__ = "0.1.0"
