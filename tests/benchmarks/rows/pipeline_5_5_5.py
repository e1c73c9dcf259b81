from __future__ import annotations

from ..harness import Outcome, Row, Settings
from .pipelines import share_of_limit

ROW = Row("pipeline of 5/5/5 ms, 1,000 requests", "of the limit", 0.97, 0.99, "higher", "5/5/5 ms", "4")


def measure(settings: Settings) -> Outcome:
    """Throughput over what the slowest stage allows."""
    return share_of_limit(settings, 5, 5, 5, 4)
