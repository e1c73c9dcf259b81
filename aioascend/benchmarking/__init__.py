"""Measuring a model on a device through the public face: what `aioascend bench` does, usable in a program.

A room of its own, above `session` and below `cli`: the command only reads options and prints, and the project's own
benchmarks load sessions in the same way.
"""

from .load import Load, Loaded, closed_loop, open_loop
from .measure import Level, Plan, Result, measure

__all__ = ["Level", "Load", "Loaded", "Plan", "Result", "closed_loop", "measure", "open_loop"]
