"""What every measure is made of: rows with limits, blocks that alternate, medians.

A machine that others use swings by tens of percent within seconds, so that only ratios of things measured in turn, in
one process, mean anything: the two sides of a ratio alternate in short blocks, and the median of the pairs counts.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from time import perf_counter as now
from typing import Any, Literal, TypeVar

import uvloop

from .neighbours import Neighbours

__all__ = ["Line", "Outcome", "Row", "Settings", "alternate", "latencies", "on_uvloop", "rate", "ratio", "steady_rate"]

T = TypeVar("T")
QUIET = 0.1
"""Cores' worth of work of other programs that does not count."""
Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Settings:
    """How long to measure: `rounds` medians are taken of; `quick` makes each of them short (a smoke test)."""

    rounds: int = 5
    quick: bool = False

    def measured(self, outcome: Outcome) -> Iterator[int]:
        """So many rounds, each of which adds a value to `outcome`.

        Rounds in which others used the CPUs are made good by further ones, as many again at most; those with the
        quietest neighbours count, and what these did is noted.
        """
        seen: list[tuple[float, float]] = []
        neighbours = Neighbours()
        most = self.rounds if self.quick else 2 * self.rounds
        while len(seen) < most and sum(cores < QUIET for cores, _ in seen) < self.rounds:
            yield len(seen)
            seen.append((neighbours.cores(), outcome.values.pop()))
        quietest = sorted(seen)[: self.rounds]
        outcome.values = [value for _, value in quietest]
        outcome.notes["cores used by others"] = round(statistics.median(cores for cores, _ in quietest), 2)

    def of(self, number: int, quick: int) -> int:
        """A number of requests, or the one for a smoke test."""
        return quick if self.quick else number


@dataclass(frozen=True)
class Row:
    """One measure: what, its unit, what it must and should reach, and which way is better."""

    title: str
    unit: str
    must: float
    aim: float
    better: Literal["higher", "lower"]
    profile: str
    depth: str

    def verdict(self, value: float) -> str:
        """Where a value stands."""
        sign = 1 if self.better == "higher" else -1
        if sign * value >= sign * self.aim:
            return "aim"
        return "must" if sign * value >= sign * self.must else "missed"


@dataclass
class Outcome:
    """One value a round, and what else was seen."""

    values: list[float] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """What counts."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Line:
    """One line of a table of published figures: what was published, what we get, what the profile allows at best."""

    what: str
    published: str
    ours: str
    limit: str


def on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop."""
    return uvloop.run(main)


async def _callers(call: Call, callers: int, seconds: float, ends: list[float], took: list[float] | None) -> None:
    limit = now() + seconds

    async def caller() -> None:
        while (sent := now()) < limit or len(ends) < 2:  # a rate takes two, whatever the machine does
            await call()
            at = now()
            ends.append(at)
            if took is not None:
                took.append(at - sent)

    await asyncio.gather(*(caller() for _ in range(callers)))


async def rate(call: Call, callers: int, seconds: float) -> float:
    """Calls a second of so many callers in a block, its beginning and end included."""
    ends: list[float] = []
    start = now()
    await _callers(call, callers, seconds, ends, None)
    return len(ends) / (now() - start)


async def steady_rate(call: Call, callers: int, seconds: float) -> float:
    """Calls a second from the first end to the last: without the filling of a pipeline."""
    ends: list[float] = []
    await _callers(call, callers, seconds, ends, None)
    return (len(ends) - 1) / (ends[-1] - ends[0])


async def cpu_us(call: Call, callers: int, seconds: float = 0.5) -> float:
    """Microseconds of CPU, all threads together, that a call costs: what other programs do hardly changes it."""
    ends: list[float] = []
    before = time.process_time()
    await _callers(call, callers, seconds, ends, None)
    return round((time.process_time() - before) / len(ends) * 1e6, 1)


async def latencies(call: Call, seconds: float) -> list[float]:
    """Seconds that each call of one caller took."""
    took: list[float] = []
    await _callers(call, 1, seconds, [], took)
    return took


async def alternate(sides: list[Callable[[], Awaitable[float]]], pairs: int) -> list[list[float]]:
    """Run the sides in turn, `pairs` times, beginning with another one each time; the results by side."""
    results: list[list[float]] = [[] for _ in sides]
    for turn in range(pairs):
        for index in range(len(sides)):
            side = (index + turn) % len(sides)
            results[side].append(await sides[side]())
    return results


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the pairs' ratios."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
