"""Many durations as a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Summary", "percentile", "summarize"]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of `ordered` (ascending) that at least `percent` of them do not exceed: one that was measured.

    Nearest rank, so that a p99 of few samples is their maximum and not a number between two that never occurred.
    Raises `ValueError` for an empty sequence or a percentage outside 0 to 100.
    """
    if not ordered:
        raise ValueError("a percentile of nothing was asked for")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent: wanted 0 to 100, given {percent!r}")
    # 99 % of 1000 must be rank 990 whatever the product's last bit is.
    rank = math.ceil(round(percent * len(ordered) / 100, 9))
    return ordered[max(0, rank - 1)]


@dataclass(frozen=True)
class Summary:
    """Least, greatest, mean and percentiles (`percent` -> value) of `count` values; in the values' own unit."""

    count: int
    min: float
    max: float
    mean: float
    median: float
    percentiles: dict[float, float]


def summarize(values: Iterable[float], percents: Sequence[float] = (50, 90, 95, 99)) -> Summary | None:
    """The summary of `values`, None where there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Summary(
        count=len(ordered),
        min=ordered[0],
        max=ordered[-1],
        mean=math.fsum(ordered) / len(ordered),
        median=percentile(ordered, 50),
        percentiles={percent: percentile(ordered, percent) for percent in percents},
    )
