from __future__ import annotations

from ..harness import Outcome, Row, Settings
from ..worlds import convolutions
from .real_models import against_a_bare_loop

ROW = Row("a real model of 1 ms against ORT run in a bare loop", "x", 0.93, 0.98, "higher", "none", "3")


def measure(settings: Settings) -> Outcome:
    """Blocks of 0.1 s in turn."""
    return against_a_bare_loop(settings, convolutions(6, 16, 128))
