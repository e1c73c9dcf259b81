"""How many requests to have on the device at once: the least depth beyond which throughput hardly grows.

No clock and no device: whoever measures asks `DepthSearch.trying` for the next depth, and tells it the throughput.

Throughput over depth rises until the slowest stage is never idle and is flat from there, while every further request
on the device only waits there longer. So one place is measured first, then one more at a time; the first that brings
less than `gain` ends the search, and it is not taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["GAIN", "LEAST", "MOST", "Choice", "DepthSearch", "choose", "steady_rate"]

GAIN = 0.05
"""What another place must bring: below that a difference is noise on most machines."""
MOST = 8
LEAST = 4
"""So many ends, after a pipeline has filled, make a rate."""
_BLOCKS = 5


@dataclass(frozen=True)
class Choice:
    """A depth, and why it is that one."""

    depth: int
    reason: str


class DepthSearch:
    """A search for the depth of a session.

    `gain` is the growth in throughput that one more place must bring (0.05: 5 %), `most` the greatest depth tried.
    """

    def __init__(self, *, gain: float = GAIN, most: int = MOST) -> None:
        if not gain >= 0:
            raise ValueError(f"gain: wanted a share of at least 0, given {gain!r}")
        if most < 1:
            raise ValueError(f"most: wanted at least 1, given {most!r}")
        self._gain = gain
        self._most = most
        self._measured: list[float] = []  # by depth, from 1
        self._choice: Choice | None = None

    @property
    def trying(self) -> int | None:
        """The depth to measure now; None when the search is over."""
        return None if self._choice is not None else len(self._measured) + 1

    @property
    def choice(self) -> Choice | None:
        """The outcome; None while the search goes on."""
        return self._choice

    @property
    def curve(self) -> dict[int, float]:
        """The throughputs told so far, by depth."""
        return dict(enumerate(self._measured, 1))

    def pays(self, throughput: float) -> bool:
        """Whether the depth being tried would be worth it with this throughput."""
        return not self._measured or _grows(self._measured[-1], throughput, self._gain)

    def measured(self, throughput: float) -> None:
        """The depth being tried gave `throughput` (in any unit, the same for all)."""
        if self._choice is not None:
            raise RuntimeError("the search is over")
        if not throughput >= 0:
            raise ValueError(f"throughput: wanted a number of at least 0, given {throughput!r}")
        pays = self.pays(throughput)
        self._measured.append(throughput)
        depth = len(self._measured)
        if not pays:
            self._choice = Choice(depth - 1, _too_little(depth - 1, depth, self._measured[-2], throughput, self._gain))
        elif depth == self._most:
            self._choice = Choice(depth, _last(self.curve, self._gain))

    def give_up(self, reason: str) -> None:
        """The depth being tried cannot be measured, for `reason`: what has been found so far has to do."""
        if self._choice is not None:
            raise RuntimeError("the search is over")
        self._choice = Choice(max(1, len(self._measured)), reason)


def steady_rate(ends: Sequence[float], filling: int, least: int = LEAST) -> float | None:
    """Ends a second, once a pipeline is full: the first `filling` are those of filling it.

    The median of five blocks, because a pause of the machine makes one block slow and not the device. None where there
    are not as many as `least` ends after the filling.
    """
    steady = ends[max(0, filling - 1) :]  # the last of filling is where the clock starts
    count = len(steady) - 1
    if count < least:
        return None
    blocks = _BLOCKS if count >= _BLOCKS * LEAST else 1
    bounds = [count * block // blocks for block in range(blocks + 1)]
    seconds = [(steady[last] - steady[first]) / (last - first) for first, last in pairwise(bounds)]
    middle = statistics.median(seconds)
    return 1 / middle if middle > 0 else None


def choose(curve: Mapping[int, float], gain: float = GAIN) -> Choice:
    """The least depth of a measured curve that no greater one beats by more than `gain`, and why.

    Raises `ValueError` for an empty curve.
    """
    if not curve:
        raise ValueError("no depth was measured")
    *others, last = sorted(curve)
    for depth in others:
        best = max((more for more in curve if more > depth), key=curve.__getitem__)
        if not _grows(curve[depth], curve[best], gain):
            return Choice(depth, _too_little(depth, best, curve[depth], curve[best], gain))
    return Choice(last, _last(curve, gain))


def _grows(before: float, after: float, gain: float) -> bool:
    return after > before * (1 + gain)


def _too_little(depth: int, more: int, before: float, after: float, gain: float) -> str:
    if not before:
        return f"depth {more} brings nothing either"
    growth = after / before - 1
    change = f"{growth:.1%} more" if growth >= 0 else f"{-growth:.1%} less"
    return (
        f"depth {more} brings {change} throughput than depth {depth}, and has to bring {gain:.0%} more to be worth it"
    )


def _last(curve: Mapping[int, float], gain: float) -> str:
    if len(curve) == 1:
        return "it is the only depth that was tried"
    *_, before, depth = sorted(curve)
    growth = curve[depth] / curve[before] - 1 if curve[before] else 0.0
    return (
        f"it is the greatest depth tried, and still brings {growth:.1%} more throughput than depth {before}: "
        "a greater one may bring more"
    )
