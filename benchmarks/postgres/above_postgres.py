"""Lets the sides of this folder import what all benchmarks share, from the folder above."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
