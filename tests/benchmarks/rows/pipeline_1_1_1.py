from __future__ import annotations

from ..harness import Outcome, Row, Settings
from .pipelines import share_of_limit

ROW = Row("pipeline of 1/1/1 ms, 1,000 requests", "of the limit", 0.90, 0.96, "higher", "1/1/1 ms", "8")


def measure(settings: Settings) -> Outcome:
    """Throughput over what the slowest stage allows."""
    return share_of_limit(settings, 1, 1, 1, 8)
