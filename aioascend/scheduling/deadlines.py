"""Which of many deadlines have passed: a heap whose settled entries do not pile up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

T = TypeVar("T", bound=Hashable)

_SLACK = 64


class Deadlines(Generic[T]):
    """Items with the time at which each is over; adding, settling and expiring one costs O(log n), amortised.

    An item that is settled leaves its entry in the heap. The heap is rebuilt when more than half of it is such
    entries, so that a million short requests with a limit of an hour hold no memory.
    """

    def __init__(self) -> None:
        self.live: dict[T, int] = {}  # all of them, with the numbers of their entries; to look at, no more
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self.live)

    def add(self, item: T, deadline: float) -> None:
        """Watch an item until `deadline`."""
        number = self.live[item] = next(self._numbers)
        heapq.heappush(self._heap, (deadline, number, item))

    def settle(self, item: T) -> None:
        """Watch an item no more; one that is not watched is left alone."""
        if self.live.pop(item, None) is None:
            return
        if not self.live:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self.live) + _SLACK:
            self._heap = [entry for entry in self._heap if self.live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def earliest(self) -> float | None:
        """The earliest deadline, None when nothing is watched."""
        heap = self._heap
        while heap:
            deadline, number, item = heap[0]
            if self.live.get(item) == number:
                return deadline
            heapq.heappop(heap)
        return None

    def expire(self, now: float) -> list[tuple[T, float]]:
        """Take out the items whose deadline is not after `now`, with their deadlines, the earliest first."""
        expired = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            deadline, number, item = heapq.heappop(heap)
            if self.live.get(item) == number:
                del self.live[item]
                expired.append((item, deadline))
        return expired
