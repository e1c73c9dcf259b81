"""Who is next: a line with priorities in which nobody waits for ever."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["SHARE", "Line"]

T = TypeVar("T", bound=Hashable)

SHARE = 8
"""One of so many turns, at least, goes to whoever has waited longest, whatever its priority."""


class Line(Generic[T]):
    """Items by priority, the smallest first, and within a priority in the order of arrival.

    Without more a steady flow of urgent items would keep the others waiting for ever. So no more than ``share - 1``
    turns in a row pass over the item that has waited longest: one with `m` items in line before it at its arrival is
    taken after ``share * (m + 1)`` turns at the latest, however many arrive after it. A share of the turns rather than
    an age in seconds, because with an age every item is overdue once the queue is longer than that, and then priorities
    mean nothing just when they matter.

    Everything costs O(1) in the number of items, and O(p) in that of the priorities in use.
    """

    def __init__(self, share: int = SHARE) -> None:
        self._share = share
        # Not plain dicts: finding the first key of one that is emptied from the front walks over what was removed.
        self.arrived: OrderedDict[T, int] = OrderedDict()  # all of them with their priorities; to look at, no more
        self._only = 0  # the priority of all items, while there are no classes
        self._classes: dict[int, OrderedDict[T, None]] = {}  # by priority, from its second one until nobody waits
        self._passed_over = 0  # turns in a row that went past the oldest

    def __len__(self) -> int:
        return len(self.arrived)

    def __contains__(self, item: T) -> bool:
        return item in self.arrived

    def __iter__(self) -> Iterator[T]:
        """The items in the order of arrival."""
        return iter(self.arrived)

    def add(self, item: T, priority: int) -> None:
        """Put an item at the end of its priority's line."""
        arrived = self.arrived
        if not arrived:
            self._only = priority
        elif priority != self._only and not self._classes:
            self._classes[self._only] = OrderedDict.fromkeys(arrived)
        arrived[item] = priority
        if self._classes:
            level = self._classes.get(priority)
            if level is None:
                level = self._classes[priority] = OrderedDict()
            level[item] = None

    def put_back(self, item: T, priority: int) -> None:
        """Put an item at the head of its priority's line, as the one that has waited longest."""
        self.add(item, priority)
        self.arrived.move_to_end(item, last=False)
        if self._classes:
            self._classes[priority].move_to_end(item, last=False)

    def remove(self, item: T) -> None:
        """Take an item out, wherever it stands; raises `KeyError` when it is not in line."""
        priority = self.arrived.pop(item)
        if self._classes:
            level = self._classes[priority]
            del level[item]
            if not level:
                del self._classes[priority]
            if not self.arrived:
                self._classes.clear()

    def head(self) -> T:
        """The item whose turn it is; the line must not be empty."""
        if not self._classes or len(self._classes) == 1 or self._passed_over >= self._share - 1:
            return next(iter(self.arrived))
        return next(iter(self._classes[min(self._classes)]))

    def take(self, item: T) -> None:
        """Take the head out and count its turn."""
        if not self._classes or item is next(iter(self.arrived)):
            self._passed_over = 0
        else:
            self._passed_over += 1
        self.remove(item)

    def take_head(self) -> T:
        """Take the head out; the line must not be empty."""
        if self._classes:
            item = self.head()
            self.take(item)
            return item
        self._passed_over = 0
        return self.arrived.popitem(last=False)[0]

    def take_all(self) -> list[T]:
        """Take everything out, in the order in which `take_head` would."""
        if self._classes:
            return [self.take_head() for _ in range(len(self.arrived))]
        self._passed_over = 0
        items = list(self.arrived)
        self.arrived.clear()
        return items

    def ahead(self, priority: int) -> int:
        """How many items stand before a newcomer of `priority`."""
        if not self._classes:
            return len(self.arrived) if self._only <= priority else 0
        return sum(len(level) for other, level in self._classes.items() if other <= priority)
