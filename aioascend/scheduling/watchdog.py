"""Which streams hang: judged from looks at the lanes now and then, so that running costs nothing.

A lane stalls when the first of its runs could have begun long enough ago and has not ended. Runs of other lanes may go
first, because lanes share the cores: the time counts anew whenever another lane ends one of the first few runs since
then, and as long as such a run may still be going on, its own limit counts if it is longer, unless it waits for
another lane's result, because then it keeps no core from anybody. So neither a long queue
that moves nor a slow run within its limit is ever taken for a stall; a stall is noticed up to a few looks late.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

__all__ = ["Sight", "Watchdog"]

K = TypeVar("K", bound=Hashable)

_TURNS = 2  # runs of another lane that may go before ours: one that is going on, and one that is next


@dataclass(frozen=True)
class Sight:
    """What is seen of a lane: how many runs have ended, whether there are others, and how long one may take."""

    ended: int
    busy: bool
    limit: float | None = None  # seconds; None: for ever
    waits: bool = False  # its first run cannot begin before a run of another lane has ended


@dataclass
class _Head:
    """The first run of a lane, since it was seen first."""

    ended: int  # before it
    since: float  # when it could have begun
    before: dict[object, int]  # what the other lanes had ended then
    seen: dict[object, int] = field(default_factory=dict)  # what they have ended since


class Watchdog(Generic[K]):
    """Looks at the lanes of one device."""

    def __init__(self) -> None:
        self._heads: dict[K, _Head] = {}

    def look(self, now: float, lanes: Mapping[K, Sight]) -> tuple[list[K], list[K]]:
        """The lanes that have moved nothing since the last look, and those of them that have stalled."""
        heads = self._heads
        quiet, stalled = [], []
        for key in [key for key in heads if key not in lanes or not lanes[key].busy]:
            del heads[key]
        for key, lane in lanes.items():
            if not lane.busy:
                continue
            head = heads.get(key)
            if head is None or head.ended != lane.ended:
                before: dict[object, int] = {other: sight.ended for other, sight in lanes.items() if other != key}
                heads[key] = _Head(lane.ended, now, before)
                continue
            quiet.append(key)
            limit = inf if lane.limit is None else lane.limit
            for other, sight in lanes.items():
                if other == key:
                    continue
                ended = sight.ended - head.before.setdefault(other, sight.ended)
                seen = head.seen.get(other, 0)
                if seen < _TURNS and ended > seen:
                    head.since = now
                    head.seen[other] = ended
                if ended < _TURNS and sight.busy and not sight.waits:
                    limit = max(limit, inf if sight.limit is None else sight.limit)
            if now - head.since >= limit:
                stalled.append(key)
        return quiet, stalled
