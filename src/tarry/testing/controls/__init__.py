"""Negative controls: algorithms known to be wrong, which the simulation must catch."""
