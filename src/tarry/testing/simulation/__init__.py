"""Deterministic simulation: many processes, one store, virtual time, one seed."""

from tarry.testing.simulation.drawing import draw
from tarry.testing.simulation.history import History, run, simulate
from tarry.testing.simulation.plan import Fault, Plan, Step
from tarry.testing.simulation.stage import REAL, Bench

__all__ = ["REAL", "Bench", "Fault", "History", "Plan", "Step", "draw", "run", "simulate"]
