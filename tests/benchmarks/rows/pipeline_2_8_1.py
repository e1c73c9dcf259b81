from __future__ import annotations

from ..harness import Outcome, Row, Settings
from .pipelines import share_of_limit

ROW = Row("pipeline of 2/8/1 ms, 1,000 requests", "of the limit", 0.985, 0.997, "higher", "2/8/1 ms", "3")


def measure(settings: Settings) -> Outcome:
    """Throughput over what the slowest stage allows."""
    return share_of_limit(settings, 2, 8, 1, 3)
